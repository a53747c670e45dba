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
    AuthenticationFacts,
    HeldCertificate,
    HeldPair,
    NotObserved,
    ServerFacts,
    ServersFacts,
    Unusable,
)
from signer.rotation.node_client.former import Retired, Retirement, Retiring, skipping_nodes
from signer.rotation.node_client.plan import (
    NOT_YET,
    Ask,
    AskFormer,
    DoNotSign,
    ForgetFormer,
    FormerNodes,
    MakeAuthority,
    MakeSuccessor,
    NodeClientFacts,
    NotAsked,
    NotWanted,
    Prune,
    Publish,
    Reason,
    SealAuthority,
    SealFormer,
    Sign,
    Stage,
    Unpublish,
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
        assert next_move(replace(FACTS, trust=trust, servers=NotAsked())) == Publish(with_former=False), trust
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


# The former authority


FORMER: Final = OTHER
RETIRING: Final = Retiring(FORMER, Retirement("order", NOW.replace(microsecond=0)))
RETIRED: Final = Retired(FORMER, RETIRING.retirement)
SKIPPED: Final = skipping_nodes(RETIRING, "other order")
LONG_AGO: Final = NOW - timedelta(seconds=65)
REFUSING: Final = asked(server("a", new=NO), server("b", new=NO))
DONE: Final = replace(
    FACTS,
    signs=OWN,
    former=RETIRING,
    former_servers=REFUSING,
    refused_since=LONG_AGO,
    authentication=AuthenticationFacts((CLUSTER.digest, OWN.digest), ()),
    absent_since=LONG_AGO,
)
"""All that the former authority's key waits for."""
WITH_FORMER: Final = (CLUSTER.digest, OWN.digest, FORMER.digest)


def test_the_key_is_deleted_once_all_is_proven() -> None:
    assert next_move(DONE) == ForgetFormer()


def test_the_present_one_is_replaced_once_there_is_a_copy() -> None:
    copied = replace(DONE, former=Retiring(OWN, RETIRING.retirement))
    assert next_move(copied) == MakeSuccessor()
    same_key = replace(FORMER, public_key_hash=OWN.public_key_hash)
    assert next_move(replace(DONE, former=Retiring(same_key, RETIRING.retirement))) == MakeSuccessor()
    paused = NotWanted(Reason.PAUSED, "paused")
    changes: tuple[dict[str, Any], ...] = ({"cluster": Absent()}, {"own": Unusable("no seal")}, {"wanted": paused})
    for unusable in changes:
        assert isinstance(next_move(replace(copied, **unusable)), DoNotSign)


def test_a_retired_one_that_is_back_does_not_sign() -> None:
    move = next_move(replace(DONE, former=Retired(OWN, RETIRING.retirement)))
    assert isinstance(move, DoNotSign)
    assert move.reason is Reason.FOREIGN_AUTHORITY


def test_a_retired_one_is_published_no_longer() -> None:
    assert isinstance(next_move(replace(DONE, former=RETIRED)), Sign)
    assert next_move(replace(DONE, former=RETIRED, trust=WITH_FORMER)) == Unpublish()


def test_it_is_sealed_anew() -> None:
    for former in (RETIRING, RETIRED):
        assert next_move(replace(DONE, former=former, former_sealed_with=Generation.PREVIOUS)) == SealFormer()


@pytest.mark.parametrize("nodes", [FormerNodes(users=("node-1",)), FormerNodes(unknown=("node-1",))])
def test_a_node_that_may_need_it(nodes: FormerNodes) -> None:
    waits = replace(DONE, former_nodes=nodes, trust=WITH_FORMER)
    move = next_move(waits)
    assert isinstance(move, Sign)
    assert move.stage is Stage.NODES_RENEW
    assert "node-1" in move.message
    assert next_move(replace(waits, trust=FACTS.trust)) == Publish(with_former=True), "somebody has removed it"
    assert next_move(replace(waits, former=SKIPPED)) == Unpublish()
    ended = Retiring(replace(FORMER, not_after=NOW), RETIRING.retirement)
    assert next_move(replace(waits, former=ended)) == Unpublish(), "no server accepts what has ended"


def test_nothing_is_taken_away_before_the_present_one_signs() -> None:
    waits = replace(DONE, trust=WITH_FORMER)
    assert isinstance(next_move(replace(waits, signs=Absent())), Sign)
    assert isinstance(next_move(replace(waits, signs=FORMER)), Sign)
    assert isinstance(next_move(replace(waits, servers=asked(server(new=NO)))), DoNotSign)
    unknown = next_move(replace(waits, servers=asked(server("a"), b="no connection")))
    assert isinstance(unknown, Sign)
    assert unknown.stage is Stage.SERVERS_DROP_FORMER
    assert "b" in unknown.message
    assert next_move(waits) == Unpublish()


def test_what_is_asked() -> None:
    assert next_move(replace(DONE, servers=NotAsked())) == Ask()
    assert next_move(replace(DONE, former_servers=NotAsked())) == AskFormer()
    assert next_move(replace(DONE, authentication=NotAsked())) == AskFormer()


@pytest.mark.parametrize(
    "changes",
    [
        {"former_servers": asked(server("a", new=NO), server("b"))},
        {"former_servers": asked(server("a", new=NO), b="no connection")},
        {"former_servers": asked(server("a", new=NO), server("b", new=NotObserved("no answer")))},
        {"former_servers": asked(server("a", new=NO), server("b", new=NO, old=NO))},
        {"former_servers": asked(server("a", new=NO), server("b", new=NO, old=NotObserved("no answer")))},
        {"former_servers": asked(server("a", new=NO), server("b", new=NO, presents=Presented.FOREIGN))},
        {"former_servers": asked()},
        {"former_servers": NotObserved("no Machine")},
        {"refused_since": NOT_YET},
        {"refused_since": LONG_AGO + timedelta(seconds=1)},
    ],
)
def test_it_is_not_refused_everywhere(changes: dict[str, Any]) -> None:
    move = next_move(replace(DONE, **changes))
    assert isinstance(move, Sign)
    assert move.stage is Stage.SERVERS_DROP_FORMER
    ended = Retiring(replace(FORMER, not_after=NOW), RETIRING.retirement)
    assert next_move(replace(DONE, former=ended, **changes)) == ForgetFormer(), "no server accepts what has ended"


@pytest.mark.parametrize(
    "changes",
    [
        {"authentication": NotObserved("forbidden")},
        {"absent_since": NOT_YET},
        {"absent_since": LONG_AGO + timedelta(seconds=1)},
    ],
)
def test_aggregated_servers_may_be_told_of_it(changes: dict[str, Any]) -> None:
    move = next_move(replace(DONE, **changes))
    assert isinstance(move, Sign)
    assert move.stage is Stage.FORGET_FORMER


def test_aggregated_servers_are_told_of_it() -> None:
    named = AuthenticationFacts((FORMER.digest,), ())
    assert next_move(replace(DONE, authentication=named)) == Prune()


def test_a_former_one_without_a_seal_stops_it() -> None:
    move = next_move(replace(DONE, former=Unusable("no seal")))
    assert isinstance(move, DoNotSign)
    assert move.reason is Reason.FOREIGN_AUTHORITY
