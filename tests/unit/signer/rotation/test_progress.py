"""Which members lag, in each direction, and until when a rotation can wait."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pytest

from signer.authority.presented import Presented
from signer.controller.rotation_gauges import rotation_gauges
from signer.controller.telemetry.metrics_collector import (
    ROTATION_LINK,
    ROTATION_NODES,
    ROTATION_PREPARED,
    ROTATION_SERVERS,
    ROTATION_STEP,
)
from signer.model.fields import format_time
from signer.rotation.authorities import AuthorityKind, Role, RotatedAuthority
from signer.rotation.facts import Absent, Acceptance, Facts, NodeFacts, NotObserved, ServerFacts, ServersFacts
from signer.rotation.phases import Phase, Step
from signer.rotation.progress import (
    MOST_ROLLOUTS,
    complete_before,
    lagging_nodes,
    lagging_servers,
    link_end,
    pending_rollouts,
)
from signer.rotation.record import Moment, RotationRecord
from signer.rotation.status import rotation_status
from tests.unit.signer.rotation.model_world import START, ModelWorld, first_record, reference

OLD, NEW = (reference(role).public_key_hash for role in Role)
HOUR = timedelta(hours=1)
YES, NO, SILENT = Acceptance.ACCEPTED, Acceptance.REFUSED, NotObserved("a timeout")


def record(step: Step, phase: Phase = Phase.PREPARING, **changes: Any) -> RotationRecord:
    made = RotatedAuthority(AuthorityKind.CLUSTER, reference(Role.OLD), reference(Role.NEW))
    times = {Moment.STARTED: START, Moment.STEP: START + HOUR, **changes.pop("times", {})}
    return replace(
        first_record((AuthorityKind.CLUSTER,)), step=step, phase=phase, authorities=(made,), times=times, **changes
    )


def node(name: str, evidence: str, client: str, serving: str = "") -> NodeFacts:
    return NodeFacts(name, f"machine-{name}", evidence, client, serving, is_all=True)


def facts(*nodes: NodeFacts, servers: Any = (), unseen: Any = (), **changes: Any) -> Facts:
    asked = ServersFacts(tuple(servers), dict.fromkeys(unseen, "no answer"), START)
    return replace(ModelWorld().facts(), **{"nodes": nodes, "servers": asked, **changes})


ALL = (
    node("a", NEW, NEW, NEW),
    node("b", NEW, NEW, OLD),
    node("c", NEW, OLD),
    node("d", OLD, NEW),
    node("e", OLD, OLD, OLD),
    node("f", NEW, NEW),
)


@pytest.mark.parametrize(
    ("step", "phase", "lagging"),
    [
        (Step.NODES_TRUST, Phase.PREPARING, "cdez"),
        (Step.SERVERS_PRESENT, Phase.COMPLETING, "cdez"),
        (Step.SIGN_SERVING, Phase.COMPLETING, "bcdez"),
        (Step.NODES_RETURN, Phase.ROLLING_BACK, "abcdf"),
    ],
)
def test_nodes(step: Step, phase: Phase, lagging: str) -> None:
    """The serving certificate matters once the new CA signs it; a Machine that never attested has nothing to undo."""
    found = lagging_nodes(record(step, phase), facts(*reversed(ALL), unattested=("z",)))
    assert found == tuple(lagging)
    assert rotation_status(record(step, phase), facts(*ALL, unattested=("z",)))["nodes"]["lagging"] == list(lagging)


def test_before_the_new_authority_exists_every_node_lags_and_none_on_the_way_back() -> None:
    observed = facts(*ALL)
    first = first_record((AuthorityKind.CLUSTER,))
    assert lagging_nodes(first, observed) == tuple("abcdef")
    assert lagging_nodes(replace(first, step=Step.NODES_RETURN, phase=Phase.ROLLING_BACK), observed) == ()


SERVERS = (
    ServerFacts("m1", Presented.OLD, YES, NO),
    ServerFacts("m2", Presented.OLD, YES, YES),
    ServerFacts("m3", Presented.OLD_LINKED, YES, YES),
    ServerFacts("m4", Presented.NEW, YES, YES),
    ServerFacts("m5", Presented.NEW_LINKED, NO, YES),
    ServerFacts("m6", Presented.NEW, YES, SILENT),
    ServerFacts("m7", Presented.NEW, SILENT, YES),
    ServerFacts("m8", Presented.FOREIGN, NO, YES),
)


@pytest.mark.parametrize(
    ("step", "phase", "lagging"),
    [
        (Step.SERVERS_TRUST, Phase.PREPARING, "12689"),
        (Step.PREPARED, Phase.PREPARED, "12689"),
        (Step.SERVERS_PRESENT, Phase.COMPLETING, "123689"),
        (Step.RETIRE_OLD, Phase.COMPLETING, "123689"),
        (Step.DROP_OLD, Phase.COMPLETING, "12346789"),
        (Step.NODES_RETURN, Phase.ROLLING_BACK, "456789"),
    ],
)
def test_api_servers(step: Step, phase: Phase, lagging: str) -> None:
    observed = facts(servers=SERVERS, unseen=("m9",))
    assert lagging_servers(record(step, phase), observed) == tuple(f"m{number}" for number in lagging)


def test_api_servers_that_could_not_be_found_are_no_number() -> None:
    assert lagging_servers(record(Step.ACCEPT), facts()) == ()
    nothing = replace(facts(), servers=NotObserved("no new CA"))
    assert lagging_servers(record(Step.ACCEPT), nothing) == NotObserved("no new CA")
    assert ROTATION_SERVERS not in {one.family for one in rotation_gauges(record(Step.ACCEPT), nothing)}


GROUPS = MappingProxyType({"machine-d": "pool", "machine-e": "workers", "machine-a": "others", "z": "workers"})


def test_rollouts_that_are_waited_for() -> None:
    observed = facts(*ALL, unattested=("z",), worker_groups=GROUPS)
    began = format_time(START + HOUR)
    waiting = record(Step.NODES_TRUST)
    assert pending_rollouts(waiting, observed) == [
        {"name": "pool", "lastInitiationTime": began},
        {"name": "workers", "lastInitiationTime": began},
    ]
    assert rotation_status(waiting, observed)["pendingWorkersRollouts"] == pending_rollouts(waiting, observed)
    assert pending_rollouts(record(Step.SERVERS_TRUST), observed) == [{"name": "pool"}, {"name": "workers"}]
    for step, phase in (
        (Step.SWITCH, Phase.COMPLETING),
        (Step.NODES_RETURN, Phase.ROLLING_BACK),
        (Step.FORGET, Phase.COMPLETED),
    ):
        assert pending_rollouts(record(step, phase), observed) == []
    done = facts(node("a", NEW, OLD), worker_groups=GROUPS)
    assert "pendingWorkersRollouts" not in rotation_status(waiting, done)


def test_rollouts_are_bounded() -> None:
    machines = tuple(f"m{number:04}" for number in range(300))
    observed = facts(unattested=machines, worker_groups=dict(zip(machines, machines, strict=True)))
    assert len(pending_rollouts(record(Step.NODES_TRUST), observed)) == MOST_ROLLOUTS


def with_link(end: Any, observed: Facts) -> Facts:
    return replace(observed, trust=replace(observed.trust, link_not_after=end))


def test_the_completion_must_be_ordered_before_the_link_or_the_old_authority_ends() -> None:
    prepared, overlap = record(Step.PREPARED, Phase.PREPARED), first_record().waits.overlap
    old_end = reference(Role.OLD).not_after
    soon, late = START + timedelta(days=45), old_end + timedelta(days=1)
    for link, first in ((soon, soon), (late, old_end), (Absent(), old_end)):
        observed = with_link(link, facts())
        assert complete_before(prepared, observed) == first - overlap
        status = rotation_status(prepared, observed)
        assert status["completeBefore"] == format_time(first - overlap)
        assert status.get("linkNotAfter") == (None if isinstance(link, Absent) else format_time(link))
    for step, phase in (
        (Step.SWITCH, Phase.COMPLETING),
        (Step.NODES_RETURN, Phase.ROLLING_BACK),
        (Step.FORGET, Phase.COMPLETED),
    ):
        assert isinstance(complete_before(record(step, phase), facts()), NotObserved)
        assert "completeBefore" not in rotation_status(record(step, phase), facts())
    assert "linkNotAfter" not in rotation_status(record(Step.FORGET, Phase.COMPLETED), with_link(soon, facts()))
    assert isinstance(link_end(replace(facts(), trust=Absent())), NotObserved)


def gauges(rotation: RotationRecord, observed: Facts | None) -> dict[Any, float]:
    found = rotation_gauges(rotation, observed)
    assert len({one.family for one in found}) == len(found)
    return {one.family: one.value for one in found}


def test_gauges_before_the_first_pass_are_those_of_the_record() -> None:
    assert gauges(record(Step.NODES_TRUST), None) == {ROTATION_STEP: (START + HOUR).timestamp()}


def test_gauges_of_a_rotation() -> None:
    link = START + timedelta(days=45)
    observed = with_link(link, facts(*ALL, servers=SERVERS, unseen=("m9",)))
    times = {Moment.PREPARED: START + 2 * HOUR}
    preparing = gauges(record(Step.NODES_TRUST, times=times), observed)
    assert preparing == {
        ROTATION_STEP: (START + HOUR).timestamp(),
        ROTATION_LINK: link.timestamp(),
        ROTATION_NODES: 3,
        ROTATION_SERVERS: 5,
    }
    prepared = gauges(record(Step.PREPARED, Phase.PREPARED, times=times), observed)
    assert prepared[ROTATION_PREPARED] == (START + 2 * HOUR).timestamp()
    assert ROTATION_PREPARED not in gauges(record(Step.SWITCH, Phase.COMPLETING, times=times), observed)


@pytest.mark.parametrize("phase", [Phase.COMPLETED, Phase.ROLLED_BACK, Phase.ABANDONED])
def test_no_gauges_of_a_rotation_that_is_over(phase: Phase) -> None:
    assert gauges(record(Step.FORGET, phase), facts(*ALL)) == {}
