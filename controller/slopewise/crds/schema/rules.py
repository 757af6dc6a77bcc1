"""Rules that a schema cannot express, in CEL, with the messages of `config/training_policy.py`.

A message has texts and quantities, but no other numbers: the API server refuses rules with `string(double)`, whose
length is not bounded. It prints the value in front of the message. `tests/cluster/test_crds.py` tests a real API
server; `tests/controller/crds` checks that every rule has its counterpart in a validator of the same model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pydantic import BaseModel

from slopewise import policies
from slopewise.config.freeze import FreezeSpec
from slopewise.config.quantities import cpu_quantity
from slopewise.config.training_policy import FORGOTTEN_UNIT_CORES, Behaviour, CpuBounds, LabelRequirement
from slopewise.crds.schema.from_models import Format, Rule
from slopewise.policies import PolicyFile

_AS_WRITTEN = '(type(self) == string ? "\'" + self + "\'" : string(self))'
"""As Python prints it: 'text' in quotes, a number without."""

_LABEL_NAMES = (
    Rule(
        "self.all(name, name.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))",
        "a key is not a label name; use letters, digits and _ (PromQL is not accepted)",
    ),
)

FORMATS = {
    "cpu-quantity": Format(
        schema={"type": None, "x-kubernetes-int-or-string": True, "maxLength": 20},
        rules=(
            Rule(
                r"string(self).matches('^[0-9]+(\\.[0-9]+)?m?$')",
                expression=f"{_AS_WRITTEN} + ' is not a CPU quantity; write millicores as 250m or cores as 0.25'",
            ),
            Rule(
                "!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('500u'))",
                expression=f"{_AS_WRITTEN} + ' is less than the smallest CPU quantity; write at least 1m'",
            ),
        ),
        default=cpu_quantity,
    ),
    "metric-name": Format(
        schema={},
        rules=(
            Rule(
                "self.matches('^[a-zA-Z_:][a-zA-Z0-9_:]*$')",
                expression='"\'" + self + "\' is not a metric name; use letters, digits, _ and : '
                '(PromQL is not accepted)"',
            ),
        ),
    ),
    "label-name": Format(
        schema={},
        rules=(
            Rule(
                "self.matches('^[a-zA-Z_][a-zA-Z0-9_]*$')",
                expression='"\'" + self + "\' is not a label name; use letters, digits and _ (PromQL is not accepted)"',
            ),
        ),
    ),
    "failed-values": Format(schema={"x-kubernetes-preserve-unknown-fields": None}, rules=_LABEL_NAMES),
    "label-names": Format(schema={"x-kubernetes-preserve-unknown-fields": None}, rules=_LABEL_NAMES),
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
            expression="'min ' + string(self.min) + ' is above max ' + string(self.max) + "
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
            expression="'operator ' + self.operator + ' needs values'",
        ),
        Rule(
            "self.operator in ['In', 'NotIn'] || !has(self.values) || size(self.values) == 0",
            expression="'operator ' + self.operator + ' takes no values'",
        ),
    ),
    FreezeSpec: (
        Rule("self.scope != 'all' || !has(self.name)", "scope all takes no name", field_path=".name"),
        Rule(
            "self.scope == 'all' || has(self.name)",
            expression="'scope ' + self.scope + ' needs the name of what is frozen'",
        ),
    ),
}
"""By model; the rules of `PolicyChoice` are made from the policies themselves (`parameters.py`)."""


def known_policy_rules(*, others: bool = False) -> tuple[Rule, ...]:
    """A policy must be a known one for real jobs; with `others`, any name but a path."""
    found = _shipped()
    known = [policy.name for policy in found]
    listed = ", ".join(policy.name for policy in found if not policy.simulator_only)
    named = Rule(
        f"self.name.replace('_', '-') in {known}",
        expression=f'"there is no policy \'" + self.name + "\'; use one of {listed}"',
        field_path=".name",
    )
    return (_NAMEABLE if others else named, *_only_simulated(found))


def _shipped() -> list[PolicyFile]:
    return [policies.find(name.replace("_", "-")) for name in policies.names()]


def _only_simulated(found: Iterable[PolicyFile]) -> Iterator[Rule]:
    """A rule for each policy that decides about no real job."""
    for policy in found:
        if policy.simulator_only:
            sentence = f"policy {policy.name}: {policy.simulator_only}"
            yield Rule(f"self.name.replace('_', '-') != '{policy.name}'", sentence, field_path=".name")


_NAMEABLE = Rule(
    "self.name.matches('^[a-z][a-z0-9]*([-_][a-z0-9]+)*$')",
    expression='"\'" + self.name + "\' is not the name of a policy; use small letters, digits and _ or - in between"',
    field_path=".name",
)


def placing_policy_rules(*, others: bool = False) -> tuple[Rule, ...]:
    """A placement must be a policy that chooses nodes; with `others`, or none of ours, by any name but a path."""
    found = _shipped()
    able = [policy for policy in found if policy.chooses_nodes]
    placing, rest = [policy.name for policy in able], [policy.name for policy in found if not policy.chooses_nodes]
    listed = ", ".join(policy.name for policy in able if not policy.simulator_only)
    known = "self.name.replace('_', '-')"
    chooses = Rule(
        f"!({known} in {rest})" if others else f"{known} in {placing}",
        expression=f"'policy ' + self.name + ' chooses no nodes; use one that does: {listed}'",
        field_path=".name",
    )
    return (*((_NAMEABLE,) if others else ()), chooses, *_only_simulated(able))


def beside_a_placement_rule() -> Rule:
    """Beside a placement, a policy that only chooses nodes would do nothing."""
    idle = [name.replace("_", "-") for name in policies.names() if policies.find(name).only_chooses_nodes]
    only = "only chooses nodes, which spec.placement does here; name one that decides CPU, or fair, which changes none"
    return Rule(
        f"!has(self.placement) || !(self.policy.name.replace('_', '-') in {idle})",
        expression=f"'policy ' + self.policy.name + ' {only}'",
        field_path=".policy.name",
    )
