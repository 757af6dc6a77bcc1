"""pytest's fixture `policy_contract`, which holds the file of a policy to the contract."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def policy_contract() -> Callable[..., None]:
    """Fails the test with the first rule that a policy breaks, and the smallest world: `policy_contract("mine.py")`."""
    from slopewise.extras import require  # noqa: PLC0415 - pytest loads this module where no policy is tested, too

    require("hypothesis", "policies", "policy_contract needs hypothesis")
    from slopewise.own_policies.check import WORLDS, check_file  # noqa: PLC0415

    def hold(path: Path | str, worlds: int = WORLDS) -> None:
        last = check_file(Path(path), worlds).findings[-1]
        if last.mistake is not None:
            pytest.fail(f"{path}: {last.check}: {last.mistake}\n{last.world or ''}", pytrace=False)

    return hold
