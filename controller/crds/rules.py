"""What a schema cannot say, in CEL, with the sentences of `settings.py`: the API server refuses with our words.

After it: `definitions.py`. A message tells a text or a quantity that was written, but no other number: the API server
reckons with `string(double)` of any length, and refuses the rule. It prints the value in front of the message anyway.
`tests/cluster/test_crds.py` asks a real API server; `tests/controller/crds` sees that
every rule has its counterpart in a validator of the same model.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from controller import policies
from controller.crds.schema import Format, Rule
from controller.settings import FORGOTTEN_UNIT_CORES, Behaviour, CpuBounds, LabelRequirement, cpu_quantity

_AS_WRITTEN = '(type(self) == string ? "\'" + self + "\'" : string(self))'
"""As Python prints it: 'text' in quotes, a number without."""


FORMATS = {
    "cpu-quantity": Format(
        schema={
            "type": None,
            "x-kubernetes-int-or-string": True,
            "maxLength": 20,
        },
        rules=(
            Rule(
                r"string(self).matches('^[0-9]+(\\.[0-9]+)?m?$')",
                "not a CPU quantity; write millicores as 250m or cores as 0.25",
                f"{_AS_WRITTEN} + ' is not a CPU quantity; write millicores as 250m or cores as 0.25'",
            ),
            Rule(
                "!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('500u'))",
                "less than the smallest CPU quantity; write at least 1m",
                f"{_AS_WRITTEN} + ' is less than the smallest CPU quantity; write at least 1m'",
            ),
        ),
        default=cpu_quantity,
    ),
    "metric-name": Format(
        schema={},
        rules=(
            Rule(
                "self.matches('^[a-zA-Z_:][a-zA-Z0-9_:]*$')",
                "not a metric name; use letters, digits, _ and : (PromQL is not accepted)",
                '"\'" + self + "\' is not a metric name; use letters, digits, _ and : (PromQL is not accepted)"',
            ),
        ),
    ),
    "label-names": Format(
        schema={"x-kubernetes-preserve-unknown-fields": None},
        rules=(
            Rule(
                "self.all(name, name.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))",
                "a key is not a label name; use letters, digits and _ (PromQL is not accepted)",
            ),
        ),
    ),
}


_UNIT_LEFT_OUT = (
    r"string(self.min).matches('^[0-9]{1,9}$') && "
    f"quantity(string(self.min)).compareTo(quantity('{FORGOTTEN_UNIT_CORES}')) >= 0 && "
    "quantity(string(self.min) + 'm').compareTo(quantity(string(self.max))) <= 0"
)

RULES: Mapping[type[BaseModel], tuple[Rule, ...]] = {
    CpuBounds: (
        Rule(
            "!isQuantity(string(self.min)) || !isQuantity(string(self.max)) || "
            "quantity(string(self.min)).compareTo(quantity(string(self.max))) <= 0",
            "min is above max; swap them",
            "'min ' + string(self.min) + ' is above max ' + string(self.max) + "
            f"({_UNIT_LEFT_OUT} ? '; did you mean ' + string(self.min) + 'm?' : '; swap them')",
        ),
    ),
    Behaviour: (
        Rule(
            "1.0 - 1.0 / double(self.maxStepRatio) > double(self.minChangeRatio)",
            "maxStepRatio allows no decrease as large as minChangeRatio asks for; raise the first or lower the second",
            field_path=".maxStepRatio",
        ),
    ),
    LabelRequirement: (
        Rule(
            "!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)",
            "operators In and NotIn need values",
            "'operator ' + self.operator + ' needs values'",
        ),
        Rule(
            "self.operator in ['In', 'NotIn'] || !has(self.values) || size(self.values) == 0",
            "operators Exists and DoesNotExist take no values",
            "'operator ' + self.operator + ' takes no values'",
        ),
    ),
}
"""By model; the rules of `PolicyChoice` are made from the policies themselves (`parameters.py`)."""


def known_policy_rules(*, others: bool = False) -> tuple[Rule, ...]:
    """A policy must be one of the known ones, and one that needs no oracle; with `others`, any name but a path."""
    known = [name.replace("_", "-") for name in policies.names()]
    oracles = [name for name in known if policies.find(name).simulator_only]
    listed = ", ".join(known)
    only_simulated = (
        ": it must know how much work each job has left, which only the simulator does; "
        "use `slopewise simulate`, or another policy"
    )
    named = Rule(
        f"self.name.replace('_', '-') in {known}",
        f"there is no such policy; use one of {listed}",
        f'"there is no policy \'" + self.name + "\'; use one of {listed}"',
        ".name",
    )
    nameable = Rule(
        "self.name.matches('^[a-z][a-z0-9]*([-_][a-z0-9]+)*$')",
        "not the name of a policy; use small letters, digits and _ or - in between",
        '"\'" + self.name + "\' is not the name of a policy; use small letters, digits and _ or - in between"',
        ".name",
    )
    return (
        nameable if others else named,
        Rule(
            f"!(self.name.replace('_', '-') in {oracles})",
            f"this policy{only_simulated}",
            f"'policy ' + self.name.replace('_', '-') + '{only_simulated}'",
            ".name",
        ),
    )
