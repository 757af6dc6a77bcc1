"""What people run beside the controller: `status`, `explain`, `history`, `top`, `doctor`, `freeze`, `restore`, `sweep`.

`explanation` makes the sentences of `explain` from a JobGrowth's status, as the cluster stores it or as a recorded pass
gives it; `recorded` reads a decision record, and `replay` compares one with its passes run again.
"""
