from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from signer.model.cluster import ClusterKey
from signer.store.machine_index import Holders

CLUSTER = ClusterKey("team-a", "prod")
MACHINES = st.sampled_from([("team-a", "m1"), ("team-a", "m2"), ("team-a", "m3")])
NAMES = st.frozensets(st.sampled_from(["a", "b", "c"]).map(lambda name: (CLUSTER, name)))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(MACHINES, NAMES), max_size=20))
def test_equals_a_scan(changes: list[tuple[tuple[str, str], frozenset[tuple[ClusterKey, str]]]]) -> None:
    holders, names = Holders(), dict[tuple[str, str], frozenset[tuple[ClusterKey, str]]]()
    for key, new in changes:
        before = names.get(key, frozenset())
        holders.move(key, before - new, new - before)
        names[key] = new
        for held in ((CLUSTER, name) for name in "abc"):
            assert holders.of(held) == {one for one, of in names.items() if held in of}
    for key, before in names.items():
        holders.move(key, before, ())
    assert holders._held == {}
