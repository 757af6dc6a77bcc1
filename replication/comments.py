"""Why our figures differ from the printed ones where they do, in words, by the name of the setting."""

from __future__ import annotations

_FLOWCON_RANDOM = """\
**This contradicts the paper.** The mechanism is plain in the simulator: FlowCon gives CPU to a job while its loss falls
fast, which with these curves is the first third of its work, and takes it away for the rest. Every newcomer gets its
first third early at the cost of those who are nearly done, and once all have converged they share evenly and end late,
together. CPU is conserved, so what the young gain the old lose: completion times grow, time to 90 % of the improvement
falls (it is the measure on which FlowCon wins in `make demo` too). Nine of ten jobs can only end sooner if work
disappears, that is, if the machine loses much more to contention under even sharing than the 1 % a job assumed here, or
if the jobs that converge fast are also the short ones, which the paper does not print. Hard limits make it worse: a
quota below one core costs more than its fraction, and what a job leaves goes to nobody."""

COMMENTS: dict[str, str] = {
    "flowcon-fixed": """\
The baseline is determined by what is printed (three works solve three figures) and comes out to a tenth of a
second. The work of all three is conserved, so with the works solved for no contention no policy can change the
makespan of one node by more than rounding; the printed 372 to 389 s mean that the machine lost up to 5 % to
contention, which sharing less evenly wins back. Which unit of α the authors used cannot be told from the printed
table: per interval comes nearer at small α, per second at α = 3 and 5 %; neither gives their fall with α. The
printed table disagrees with itself by 7 points (α = 10 %, itval = 20 is 26.2 % in one half and 19.0 % in the
other), which is as much as our readings differ.""",
    "flowcon-5": _FLOWCON_RANDOM,
    "flowcon-10": "**This contradicts the paper**, for the reasons given above.",
    "flowcon-15": "**This contradicts the paper**, for the reasons given above.",
}
