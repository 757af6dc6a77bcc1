"""`slopewise explain JOB`: what was seen of a job, what was decided, which guard said what, and what comes next.

`explanation` makes the sentences from a JobGrowth's status, as the cluster stores it or as a recorded pass gives it;
`recorded` adds what only a decision record holds: each guard's verdict and the time of the next pass.
"""
