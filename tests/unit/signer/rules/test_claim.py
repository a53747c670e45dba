"""What attestors are told of the claimed Machine and of whoever asks: in doubt the less."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from attestors.contract import (
    MachineRole,
    NoClaimedMachine,
    NodeCredential,
    NoRecordedIdentity,
    OtherToken,
    RecordedIdentity,
    RequesterCredential,
    Security,
    TokenNotTraceableNow,
    TokenOfMachine,
)
from signer.model.bootstrap_token import (
    NodeAsks,
    TokenAsks,
    TokenOwner,
    Trace,
    TracedTo,
    TracingInterrupted,
    TracingOff,
    Untraceable,
)
from signer.model.cluster import InfrastructureReference, MachineView
from signer.model.reasons import Reason
from signer.model.record import AttestedIdentity, AttestedNode
from signer.rules.claim import recorded_identity, requester_credential, require_as_told, role_of
from tests.unit.signer.builders import machine_view, record
from tests.unit.signer.outcomes import deferred

MACHINE = machine_view(name="m1", uid="u1")
OWN = TokenOwner("team-a", "Machine", "m1", "u1")


# Role


def test_roles() -> None:
    assert role_of(machine_view()) is MachineRole.WORKER
    assert role_of(machine_view(of_a_pool=True)) is MachineRole.POOL_MEMBER
    assert role_of(machine_view(control_plane=True)) is MachineRole.CONTROL_PLANE


def test_a_control_plane_machine_of_a_pool_is_of_the_control_plane() -> None:
    assert role_of(machine_view(control_plane=True, of_a_pool=True)) is MachineRole.CONTROL_PLANE


# The Machine that the attestor was told of


def test_what_attestors_are_not_told_may_change() -> None:
    require_as_told(MACHINE, MACHINE)
    require_as_told(MACHINE, replace(MACHINE, node_ref="m1", addresses=(), readiness_gates=frozenset({"Ready"})))


@pytest.mark.parametrize(
    "changed",
    [
        replace(MACHINE, uid="u2"),
        replace(MACHINE, name="m2"),
        replace(MACHINE, annotations=(("attestation.cluster.x-k8s.io/tpm-endorsement-key", "sha256:" + "ab" * 32),)),
        replace(MACHINE, control_plane=True),
        replace(MACHINE, of_a_pool=True),
        replace(
            MACHINE,
            infrastructure=InfrastructureReference("infrastructure.cluster.x-k8s.io", "v1", "Metal3Machine", "i"),
        ),
    ],
    ids=["made anew", "another", "annotated", "of the control plane", "of a pool", "another InfraMachine"],
)
def test_a_machine_that_is_another_than_the_attestor_was_told_of(changed: MachineView) -> None:
    found = deferred(partial(require_as_told, MACHINE), changed)
    assert found.reason == Reason.RESERVATION_PENDING
    assert found.retry_after is not None
    assert found.retry_after.total_seconds() < 1


def test_a_machine_that_appeared_meanwhile() -> None:
    deferred(partial(require_as_told, NoClaimedMachine()), MACHINE)


def test_of_an_instance_of_a_pool_nothing_is_told() -> None:
    instance = replace(MACHINE, kind="MachinePool")
    require_as_told(NoClaimedMachine(), instance)
    deferred(partial(require_as_told, MACHINE), instance)


# Recorded identity


ATTESTED = record(MACHINE).last_attestation
A_TOKEN = TokenOfMachine()


def told(
    *records: AttestedNode,
    machine: MachineView = MACHINE,
    credential: RequesterCredential = A_TOKEN,
    created: datetime = ATTESTED - timedelta(days=1),
) -> RecordedIdentity | NoRecordedIdentity:
    return recorded_identity(machine, records, "tpm", credential=credential, cluster_created=created)


def test_what_was_proven_is_told() -> None:
    assert told(record(MACHINE, "ek:1")) == RecordedIdentity("ek:1")


def test_nothing_was_recorded() -> None:
    assert told() == NoRecordedIdentity()


def test_one_identity_under_two_node_names() -> None:
    assert told(record(MACHINE), replace(record(MACHINE), node_name="another")) == RecordedIdentity("ek:1")


@pytest.mark.parametrize("credential", [NodeCredential(), A_TOKEN])
def test_a_machine_made_anew_has_no_record(credential: RequesterCredential) -> None:
    anew = replace(MACHINE, uid="u2")
    assert told(record(MACHINE), machine=anew, credential=credential) == NoRecordedIdentity()
    assert told(record(MACHINE), machine=anew, credential=credential, created=ATTESTED) == NoRecordedIdentity()


def test_a_node_keeps_what_was_recorded_before_its_cluster_was_moved() -> None:
    moved, after = replace(MACHINE, uid="u2"), ATTESTED + timedelta(seconds=1)
    assert told(record(MACHINE), machine=moved, credential=NodeCredential(), created=after) == RecordedIdentity("ek:1")


@pytest.mark.parametrize("credential", [A_TOKEN, OtherToken("another"), TokenNotTraceableNow("later")])
def test_who_joins_with_a_token_after_a_move_starts_anew(credential: RequesterCredential) -> None:
    moved, after = replace(MACHINE, uid="u2"), ATTESTED + timedelta(seconds=1)
    assert told(record(MACHINE), machine=moved, credential=credential, created=after) == NoRecordedIdentity()


@pytest.mark.parametrize(
    "identity",
    [AttestedIdentity("aws", "ek:1", Security.SECURE), AttestedIdentity("tpm", "ek:1", Security.INSECURE)],
)
def test_what_another_attestor_proved_or_one_only_asserted_is_not_told(identity: AttestedIdentity) -> None:
    assert told(replace(record(MACHINE), identity=identity)) == NoRecordedIdentity()


def test_records_that_disagree_make_it_wait() -> None:
    """To tell of none would let a third chip in on trust."""
    disagreeing = (record(MACHINE, "ek:1"), replace(record(MACHINE, "ek:2"), node_name="another"))
    defer = deferred(lambda records: told(*records), disagreeing)
    assert defer.reason == Reason.IDENTITY_CONFLICT
    assert defer.message == "AttestedNodes of 2 identities name Machine team-a/m1: delete the wrong one"
    assert defer.retry_after == timedelta(minutes=5)


# Who asks


def credential(trace: Trace, machine: MachineView | NoClaimedMachine = MACHINE) -> Any:
    return requester_credential(TokenAsks(trace), machine)


def of_owners(*owners: TokenOwner, machine: MachineView | NoClaimedMachine = MACHINE) -> Any:
    return credential(TracedTo(frozenset(owners)), machine)


def test_a_node() -> None:
    assert requester_credential(NodeAsks(), MACHINE) == NodeCredential()
    assert requester_credential(NodeAsks(), NoClaimedMachine()) == NodeCredential()


def test_the_machines_own_token() -> None:
    assert of_owners(OWN) == TokenOfMachine()


@pytest.mark.parametrize(
    ("owner", "cause"),
    [
        (replace(OWN, name="m2"), "made for Machine team-a/m2, and not for Machine team-a/m1"),
        (replace(OWN, namespace="team-b"), "made for Machine team-b/m1, and not for"),
        (replace(OWN, uid="u0"), "made for a former Machine team-a/m1"),
        (replace(OWN, uid=""), "made for a former Machine team-a/m1"),
        (replace(OWN, kind="MachinePool"), "made for MachinePool team-a/m1, and not for"),
    ],
)
def test_a_token_of_another(owner: TokenOwner, cause: str) -> None:
    found = of_owners(owner)
    assert isinstance(found, OtherToken)
    assert found.cause.startswith(f"the bootstrap token was {cause}")


def test_a_pools_token_is_no_machines_own() -> None:
    """All of the pool's machines have it."""
    pool = TokenOwner("team-a", "MachinePool", "p1", "p")
    found = of_owners(pool, machine=replace(MACHINE, owner_pool="p1"))
    assert found == OtherToken("the bootstrap token was made for MachinePool team-a/p1, and not for Machine team-a/m1")


def test_one_token_for_several_is_nobodys_own() -> None:
    found = of_owners(OWN, replace(OWN, name="m2"))
    assert found == OtherToken("the bootstrap token was made for 2 owners, and not for Machine team-a/m1 alone")
    assert isinstance(of_owners(OWN, replace(OWN, uid="u0")), OtherToken)


def test_a_token_beside_no_machine() -> None:
    assert of_owners(OWN, machine=NoClaimedMachine()) == OtherToken(
        "no Machine has the claimed provider ID, so the bootstrap token was made for none"
    )


def test_a_token_that_leads_nowhere() -> None:
    assert credential(Untraceable()) == OtherToken("no KubeadmConfig of the Cluster holds the bootstrap token")
    assert credential(TracingOff("no grant")) == OtherToken("bootstrap tokens are not traced: no grant")


def test_a_token_that_cannot_be_traced_now() -> None:
    assert credential(TracingInterrupted("out of touch")) == TokenNotTraceableNow("out of touch")
