"""Label selectors, and which pods a TrainingPolicy selects (`spec.selector`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from slopewise.config.validation import Document


class LabelRequirement(Document):
    """One `matchExpressions` entry of a Kubernetes label selector."""

    key: str = Field(max_length=317)
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[Annotated[str, Field(max_length=63)], ...] = Field((), max_length=64)

    @model_validator(mode="after")
    def _values_fit_operator(self) -> LabelRequirement:
        if (self.operator in ("In", "NotIn")) != bool(self.values):
            remedy = "needs values" if self.operator in ("In", "NotIn") else "takes no values"
            raise ValueError(f"operator {self.operator} {remedy}")
        return self


class LabelSelector(Document):
    """A Kubernetes label selector; an empty one selects everything."""

    match_labels: dict[str, str] = Field(default_factory=dict, max_length=64)
    match_expressions: tuple[LabelRequirement, ...] = Field((), max_length=16)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected; all parts must agree."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            _meets(requirement, labels) for requirement in self.match_expressions
        )


def _meets(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    if requirement.operator == "Exists":
        return requirement.key in labels
    if requirement.operator == "DoesNotExist":
        return requirement.key not in labels
    return (labels.get(requirement.key) in requirement.values) == (requirement.operator == "In")


class Selection(Document):
    """Which pods of a cluster are managed: all parts must agree, and the pod must carry `slopewise.dev/managed`."""

    namespaces: LabelSelector = Field(LabelSelector(), description="by the labels of the namespace; empty: all")
    pods: LabelSelector = Field(LabelSelector(), description="by the labels of the pod; empty: all")
    nodes: LabelSelector = Field(LabelSelector(), description="by the labels of the node; empty: all")
    container: str | None = Field(
        None,
        max_length=63,
        description="the trainer's container; else the pod's annotation slopewise.dev/container, or its only one",
    )
