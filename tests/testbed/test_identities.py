import csv

from testbed.identities import ADMINISTRATOR, PROMETHEUS, Identities
from testbed.settings import Settings


def test_the_keys_are_for_root_alone_each_client_has_a_token_and_prometheus_is_no_administrator(
    settings: Settings,
) -> None:
    made = Identities(settings)
    made.make()
    assert made.tokens.parent.stat().st_mode & 0o077 == 0
    rows = list(csv.reader(made.tokens.read_text().splitlines()))
    groups = {user: group for _, user, _, group in rows}
    assert (groups[ADMINISTRATOR], groups[PROMETHEUS]) == ("system:masters", "")
    assert len({token for token, *_ in rows}) == len(rows)
