"""The one move that comes next for a node-client authority."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from signer.authority.presented import Presented
from signer.model.seal import Generation
from signer.rotation.authorities import AuthorityReference
from signer.rotation.facts import (
    Absent,
    Acceptance,
    HeldCertificate,
    HeldPair,
    NotObserved,
    ServerFacts,
    ServersFacts,
    Unusable,
)
from signer.rotation.node_client.plan import (
    Ask,
    DoNotSign,
    MakeAuthority,
    NodeClientFacts,
    NotAsked,
    NotWanted,
    Publish,
    Reason,
    SealAuthority,
    Sign,
    Wanted,
    next_move,
)
from signer.rotation.proofs import NotKnown, NotProven
from tests.unit.signer.authority.support import NOW

YES, NO = Acceptance.ACCEPTED, Acceptance.REFUSED
END: Final = NOW + timedelta(days=3650)
CLUSTER, OWN, OTHER, SAME_KEY = (AuthorityReference(name * 64, f"sha256:{name * 64}", END) for name in "abcd")
SAME_KEY = replace(SAME_KEY, public_key_hash=CLUSTER.public_key_hash)
"""Another certificate of the cluster CA's key."""


def server(name: str = "a", **changes: Any) -> ServerFacts:
    return replace(ServerFacts(name, Presented.OLD, old=YES, new=YES), **changes)


def asked(*servers: ServerFacts, **unseen: str) -> ServersFacts:
    return ServersFacts(servers, unseen, NOW)


FACTS: Final = NodeClientFacts(
    now=NOW,
    wanted=Wanted(),
    own=HeldPair((OWN,), OWN),
    sealed_with=Generation.CURRENT,
    cluster=HeldPair((CLUSTER,), CLUSTER),
    trust=(CLUSTER.digest, OWN.digest),
    servers=asked(server("a"), server("b")),
    signs=Absent(),
)


def test_every_server_accepts_it() -> None:
    move = next_move(FACTS)
    assert move == Sign(OWN, "every API server accepts its certificates")
    linked = asked(server(presents=Presented.OLD_LINKED))
    assert isinstance(next_move(replace(FACTS, servers=linked)), Sign)


def test_a_seal_by_the_previous_key_is_replaced_before_anything_else() -> None:
    assert next_move(replace(FACTS, sealed_with=Generation.PREVIOUS)) == SealAuthority()
    unwanted = replace(FACTS, sealed_with=Generation.PREVIOUS, wanted=NotWanted(Reason.PAUSED, "paused"))
    assert isinstance(next_move(unwanted), DoNotSign), "nothing is written while the Cluster is paused"


def test_the_way_there() -> None:
    assert next_move(replace(FACTS, own=Absent(), trust=Absent(), servers=NotAsked())) == MakeAuthority()
    for trust in (Absent(), (), (CLUSTER.digest,), (OWN.digest,), (CLUSTER.digest, OTHER.digest)):
        assert next_move(replace(FACTS, trust=trust, servers=NotAsked())) == Publish(), trust
    assert next_move(replace(FACTS, servers=NotAsked())) == Ask()
    assert next_move(replace(FACTS, trust=(OTHER.digest, CLUSTER.digest, OWN.digest), servers=NotAsked())) == Ask()


@pytest.mark.parametrize("signs", [Absent(), OWN])
def test_one_server_refuses_it(signs: Any) -> None:
    """Whether it signs already or not: nodes must not get certificates that a server refuses."""
    move = next_move(replace(FACTS, servers=asked(server("a"), server("b", new=NO), c="off"), signs=signs))
    assert isinstance(move, DoNotSign)
    assert (move.reason, type(move.proof), move.proof.members) == (Reason.NOT_ACCEPTED, NotProven, ("b",))


NOT_KNOWN: Final = [
    asked(server("a"), b="no connection"),
    asked(server("a"), server("b", new=NotObserved("no answer"))),
    asked(server("a"), server("b", old=NotObserved("no answer"))),
    asked(server("a"), server("b", old=NO)),
    asked(server("a"), server("b", presents=Presented.FOREIGN)),
    asked(server("a"), server("b", presents=Presented.NEW)),
    asked(server("a"), server("b", presents=Presented.NEW_LINKED)),
    asked(),
    NotObserved("the management cluster shows no control-plane Machine"),
]


@pytest.mark.parametrize("servers", NOT_KNOWN)
def test_what_is_not_known_starts_nothing_and_ends_nothing(servers: Any) -> None:
    move = next_move(replace(FACTS, servers=servers))
    assert isinstance(move, DoNotSign)
    assert (move.reason, type(move.proof)) == (Reason.NOT_PROVEN, NotKnown)
    assert isinstance(next_move(replace(FACTS, servers=servers, signs=OWN)), Sign)
    assert next_move(replace(FACTS, servers=servers, signs=OTHER)) == move, "another one was proven"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"wanted": NotWanted(Reason.PAUSED, "paused")}, Reason.PAUSED),
        ({"wanted": NotWanted(Reason.NOT_CHOSEN, "shared")}, Reason.NOT_CHOSEN),
        ({"own": Unusable("no seal")}, Reason.FOREIGN_AUTHORITY),
        ({"own": HeldCertificate(OWN)}, Reason.FOREIGN_AUTHORITY),
        ({"own": HeldPair((OWN, OTHER), OWN)}, Reason.FOREIGN_AUTHORITY),
        ({"own": HeldPair((CLUSTER,), CLUSTER)}, Reason.FOREIGN_AUTHORITY),
        ({"own": HeldPair((SAME_KEY,), SAME_KEY)}, Reason.FOREIGN_AUTHORITY),
        ({"cluster": Absent()}, Reason.FOREIGN_AUTHORITY),
        ({"cluster": HeldCertificate(CLUSTER)}, Reason.FOREIGN_AUTHORITY),
        ({"cluster": Absent(), "own": Absent()}, Reason.FOREIGN_AUTHORITY),
        ({"trust": Unusable("garbage")}, Reason.FOREIGN_AUTHORITY),
        ({"now": END - timedelta(days=30) + timedelta(seconds=1)}, Reason.ENDS),
    ],
)
def test_what_stops_it(changes: dict[str, Any], reason: Reason) -> None:
    for signs in (Absent(), OWN):
        move = next_move(replace(FACTS, signs=signs, **changes))
        assert isinstance(move, DoNotSign)
        assert move.reason is reason
        if "wanted" not in changes:
            assert isinstance(next_move(replace(FACTS, servers=NotAsked(), **changes)), DoNotSign), "no canary of it"


def test_it_signs_until_thirty_days_before_its_end() -> None:
    assert isinstance(next_move(replace(FACTS, now=END - timedelta(days=30))), Sign)
