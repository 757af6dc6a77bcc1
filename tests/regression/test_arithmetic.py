"""The decision core computes the same on every processor: no BLAS, no function of numpy with a variant for AVX-512.

`sum` of an array along an axis (`np.add.reduce`), `np.sqrt` and `einsum(optimize=False)` give the same bits with each
of numpy's dispatches. `np.exp`, `np.log` and powers differ in the last bit with AVX-512. `math.exp` and `math.log` are
those of the C library, which are the same on all processors with FMA.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "controller/slopewise"
CORE = ("model", "estimators", "policies", "guards", "feedback", "allocation", "composition", "reconcile", "ports",
        "move_attempts", "memory_sizing")  # fmt: skip
BLAS = {"dot", "vdot", "inner", "matmul", "tensordot", "multi_dot", "linalg", "convolve", "correlate", "cov",
    "corrcoef", "polyfit"}  # fmt: skip
OF_THE_PROCESSOR = {"exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "logaddexp", "power", "float_power",
    "cbrt", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "arctan2", "sinh", "cosh", "tanh"}  # fmt: skip


def files() -> list[Path]:
    return sorted(
        path for name in CORE for path in (SOURCE / f"{name}.py", *(SOURCE / name).rglob("*.py")) if path.exists()
    )


def violations(tree: ast.AST) -> Iterator[str]:
    """What depends on the processor, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()):
                yield f"{node.lineno}: @"
            case ast.Attribute(attr=name) if name in BLAS:
                yield f"{node.lineno}: {name}"
            case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=name) if name in OF_THE_PROCESSOR:
                yield f"{node.lineno}: np.{name}"
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] == "numpy":
                names = {each.name for each in node.names} | {*module.split(".")}
                yield from (f"{node.lineno}: {name}" for name in sorted(names & (BLAS | OF_THE_PROCESSOR | {"einsum"})))
            case ast.Call(func=ast.Attribute(attr="einsum"), keywords=given):
                chosen = [
                    each.value.value
                    for each in given
                    if each.arg == "optimize" and isinstance(each.value, ast.Constant)
                ]
                if chosen != [False]:
                    yield f"{node.lineno}: einsum without optimize=False"


def test_the_core_uses_nothing_whose_result_depends_on_the_processor() -> None:
    found = {path.relative_to(SOURCE).as_posix(): [*violations(ast.parse(path.read_text()))] for path in files()}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    [
        "a @ b",
        "a @= b",
        "a.dot(b)",
        "np.linalg.solve(a, b)",
        "from numpy.linalg import solve",
        "from numpy import einsum",
        "np.einsum('ij,j->i', a, b)",
        "np.einsum('ij,j->i', a, b, optimize=True)",
        "np.exp(a)",
    ],
)
def test_what_depends_on_the_processor_is_found(line: str) -> None:
    assert [*violations(ast.parse(line))]


@pytest.mark.parametrize(
    "line", ["(a * b).sum(axis=1)", "np.einsum('ij,j->i', a, b, optimize=False)", "math.exp(a)", "np.sqrt(a)"]
)
def test_the_rest_is_not(line: str) -> None:
    assert not [*violations(ast.parse(line))]
