"""Moves jobs to other nodes, from a policy's decision to the first step there.

A pass decides and begins a move; the leader's thread of moves (`manager/move_loop.py`, every 0.5 s) continues it. The
object that is moved stores the step, and one write changes object and step together, so a leader that starts after a
crash reads the step and continues, and no step is made twice.

1. `movability_inputs` collects what decides whether a job can move; `movability` computes it: by which way, and which
   nodes would refuse it. Its reasons come from the namespace, which opts in, `recreation` and `owner_cache` (the owner
   makes the pod again), `node_predicates` (the node accepts the pod), `eviction` and `backoff` (not now).
2. A policy answers with `Migrate` or `Place`, guards review it (`guards/moves.py`), `move_attempts.py` tries it.
3. `dispatch` begins it: `suspend/` for a Job that can be suspended, `evict/` for pods whose template has the gate
   `slopewise.dev/place`, `gated_pods` for a pod that arrives behind that gate.
4. The thread of moves writes the steps:

   suspend/  step on the Job (annotation slopewise.dev/move)   next write, once
     (none)     runs                                            suspend, with step `leaving`: a pass began the move
     leaving    suspended; its pods save and end                resume with the pin, `pinning`: no pod is left
     pinning    runs, tied to the target                        `pinned`: all of its pods run there
     pinned     moved; the annotation keeps the owner's pin     no annotation: the Job has ended
     unpinning  suspended again: the target was lost            resume with the owner's affinity: no pod is left

   evict/    state (JobGrowth status.move, pod)                 next write, once
     (none)     runs                                            status.move with its pods: a pass began the move
     stored     the pod runs                                    eviction: the budgets allow it, within 30 s
     evicted    the pod ends; then its replacement is gated     gate removed, tied to the node: the replacement exists
     placed     the replacement has a node                      no status.move: every pod is placed, or none is to come

5. The new process reports its first step, and `feedback/move_tracking.py` compares it with what the job lost: resumed,
   cancelled or failed. `reporting/job_reporters.py` writes events and history.

Who writes what, and what follows a crash:

- `suspend/begin` (first step) and `suspend/controller` (the others) write the Job: `spec.suspend`, affinity,
  annotation.
  The next leader continues at the step.
- `evict/controller` writes `status.move` of the JobGrowth, then evicts. The next leader continues; a late pod is
  an arrival.
- `scheduling_gate` writes the pod: gate, affinity, annotation `slopewise.dev/placed`, in one patch. The next leader, or
  `slopewise sweep`, releases a gate that was left.
- `reporting` and `state/job_memory` write `status.history` and `status.pods[].memory`. A move without record is
  adopted.
- `slopewise sweep` releases gates and resumes Jobs each minute, where there is no leader.

`docs/moves.md` has every transition, its limit in seconds and the test that proves it.
"""
