"""Access grants from their creation to their end, on the embedded API: tests 30 to 38 of the design brief."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from attestors.wire.ssh.certificate import parse_certificate_line
from attestors.wire.ssh.key_line import parse_key_line
from attestors.wire.ssh.keys import host_key
from attestors.wire.ssh.principals import HostName
from signer.access.creator import Lock, NotProtected, Protected, ProtectionUnknown
from signer.access.creator_lock import CreatorLock, GuardNames
from signer.audit.access_line import EndLine, IssuanceLine
from signer.audit.lines import Content
from signer.audit.log import AuditLogUnavailable
from signer.configuration import GatewayAddress
from signer.kube.client import Client
from signer.kube.clocks import ClockAnswer, ClocksDiffer, ClockUnknown
from signer.kube.errors import Conflict, Forbidden
from signer.kube.resources import ACCESS_GRANTS
from signer.model.cluster import ClusterKey
from tests.integration.access.world import (
    BASTION,
    BOB,
    CAROL,
    CLUSTER,
    CONTROLLER,
    MASTERS,
    NAMESPACE,
    Process,
    World,
    guard,
    process,
)
from tests.support.access_objects import ALICE, AUTHORITY_KEY

MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
NOON: Final = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
CONTAINER: Final = {"container": {"namespace": "shop", "pod": "web-0", "container": "app"}}
GATEWAY: Final = GatewayAddress(HostName("gateway.example.com"), 2222, (host_key(parse_key_line(AUTHORITY_KEY)),))
WIDE: Final = [{"ipBlock": {"cidr": "203.0.113.0/24"}}]


def certificates(world: World, name: str = "repair") -> list[Any]:
    """Those in the status, parsed."""
    return [parse_certificate_line(one["certificate"]).certificate for one in world.status(name)["certificates"]]


def key_id(world: World, name: str = "repair") -> str:
    return str(certificates(world, name)[0].key_id)


async def issued(world: World, running: Process, **spec: Any) -> str:
    """A grant with certificates; its key id."""
    world.grant(**spec)
    await running.settle()
    assert world.reason() == "CertificatesIssued", world.status()
    return key_id(world)


async def test_a_grant_is_sealed_issued_and_ended(world: World) -> None:
    async with process(world) as running:
        of = await issued(world, running)
        [certificate] = certificates(world)
        assert list(map(str, certificate.principals)) == ["root@worker-1"]
        assert running.deadline.made == [
            "PATCH /apis/access.cluster.x-k8s.io/v1alpha1/namespaces/team-a/accessgrants/repair",
            "PATCH /apis/access.cluster.x-k8s.io/v1alpha1/namespaces/team-a/accessgrants/repair/status",
        ]
        assert [one["kind"] for one in world.found()["metadata"]["ownerReferences"]] == ["Cluster"]
        world.delete()
        await running.settle()
    assert world.found() == {}
    assert world.revoked() == {of}
    first, last = world.audit.access
    assert isinstance(first, IssuanceLine)
    assert isinstance(last, EndLine)
    assert (first.key_id, last.key_id, last.cause) == (of, of, "Deleted")


async def test_through_a_bastion_there_are_two_hops_and_the_bastion_goes_at_the_end(world: World) -> None:
    async with process(world) as running:
        await issued(world, running, **BASTION)
        bastion, node = certificates(world)
        uid = world.found()["metadata"]["uid"]
        assert list(map(str, bastion.principals)) == [f"bastion@{uid}"]
        assert list(map(str, node.principals)) == ["root@worker-1"]
        assert world.status()["ingress"] == {"ip": "203.0.113.9", "port": 2222}
        assert any(line.startswith(f"node-access-bastion-{uid} ") for line in world.status()["knownHosts"])
        world.delete()
        await running.settle()
    assert (world.found(), world.bastions()) == ({}, [])


async def test_the_status_of_a_grant_for_a_container_names_the_gateway_while_it_lives(world: World) -> None:
    world.permission = replace(world.permission, gateway=GATEWAY)
    world.allow("alice", login="container")
    async with process(world) as running:
        await issued(world, running, target=CONTAINER, logins=[])
        [certificate] = certificates(world)
        assert list(map(str, certificate.principals)) == ["shop_web-0_app"]
        uid = world.found()["metadata"]["uid"]
        assert world.status()["gateway"] == {"host": "gateway.example.com", "port": 2222}
        assert f"node-access-gateway-{uid} {AUTHORITY_KEY}" in world.status()["knownHosts"]
        world.edit({"spec": {"suspend": True}})
        await running.settle()
        assert "gateway" not in world.status()
        assert world.status()["knownHosts"] == []


POD_PATH: Final = "/api/v1/namespaces/shop/pods/web-0"


@pytest.mark.parametrize(
    ("said", "shown"),
    [("worker-2", "worker-2"), ("intruder", ""), ("", "")],
    ids=["an attested node", "no node of the grant", "not scheduled"],
)
async def test_the_status_of_a_grant_for_a_container_says_on_which_node_its_pod_runs(
    world: World, said: str, shown: str
) -> None:
    """The workload cluster chooses among attested nodes, whose addresses it does not say."""
    world.pods[POD_PATH] = {"spec": {"nodeName": said}, "status": {"hostIP": "192.0.2.66"}}
    world.allow("alice", login="container")
    async with process(world) as running:
        with world.node_hints.connected(CLUSTER, world):
            await issued(world, running, target=CONTAINER, logins=[])
        assert world.status().get("containerNode", "") == shown
        targets = world.status()["targets"]
        assert sorted(one["node"] for one in targets) == ["worker-1", "worker-2"]
        assert not shown or targets[0]["node"] == shown
        assert {address for one in targets for address in one["addresses"]} == {"10.0.0.5"}
        world.edit({"spec": {"suspend": True}})
        await running.settle()
        assert "containerNode" not in world.status()


async def test_a_grant_for_a_container_with_a_bastion_leads_to_nodes_and_names_no_gateway(world: World) -> None:
    world.permission = replace(world.permission, gateway=GATEWAY)
    world.allow("alice", login="container")
    async with process(world) as running:
        await issued(world, running, target=CONTAINER, logins=[], **BASTION)
        [bastion] = world.bastions()
        assert bastion["spec"]["targets"]
        found = {one["hop"]: one["certificate"] for one in world.status()["certificates"]}
        assert sorted(found) == ["bastion", "container"]
        certificate = parse_certificate_line(found["container"]).certificate
        assert "203.0.113.9/32" in str(certificate.critical_options), "it counts from the bastion alone"
        assert "gateway" not in world.status()


async def test_a_node_may_have_a_long_name_as_its_address(world: World) -> None:
    """Such as those of AWS, with more than 45 characters. The API server refuses a status that it finds invalid."""
    world.address = "ip-10-100-100-107.ap-southeast-2.compute.internal"
    async with process(world) as running:
        await issued(world, running)
        assert world.status()["targets"][0]["addresses"] == [world.address]


async def test_a_grant_for_a_container_has_no_bastion_unless_it_names_one(world: World) -> None:
    """The policy's default is for nodes. The gateway is reached without one."""
    world.policy({"bastion": {"provider": "local"}})
    world.allow("alice", login="container")
    async with process(world) as running:
        await issued(world, running, target=CONTAINER, logins=[])
        assert world.bastions() == []
        assert [one["hop"] for one in world.status()["certificates"]] == ["container"]


async def test_a_grant_for_a_workload_has_no_bastion(world: World) -> None:
    """It would lead to nodes, which know no workloads."""
    workload = {"namespace": "shop", "workload": {"kind": "Deployment", "name": "web"}, "container": "app"}
    world.allow("alice", login="container")
    async with process(world) as running:
        world.grant(target={"container": workload}, logins=[], **BASTION)
        await running.settle()
        assert world.reason() == "ForbiddenByPolicy"
        assert world.bastions() == []


@pytest.mark.parametrize("target", [{"nodes": ["worker-1"]}, CONTAINER])
async def test_no_other_grant_names_a_gateway(world: World, target: dict[str, Any]) -> None:
    """One for nodes does not, and none does where the configuration names no gateway."""
    if "nodes" in target:
        world.permission = replace(world.permission, gateway=GATEWAY)
    world.allow("alice", login="container")
    async with process(world) as running:
        await issued(world, running, target=target, **({} if "nodes" in target else {"logins": []}))
        assert "gateway" not in world.status()
        assert not any(line.startswith("node-access-gateway-") for line in world.status()["knownHosts"])


# 30: policies deleted


@pytest.mark.parametrize("lock", [NotProtected("accepted in a foreign name"), ProtectionUnknown("no answer")])
async def test_30_without_the_creator_lock_nothing_is_issued(world: World, lock: Lock) -> None:
    world.lock.answer = lock
    world.grant()
    async with process(world) as running:
        await running.settle()
        assert world.reason("CreatorProven") == "CreatorNotProtected"
        assert world.reason("Authorized") == "NotReached"
        assert "record" not in world.status()
        assert not world.audit.access
        before = world.found()["metadata"]["resourceVersion"]
        await running.settle()
        assert world.found()["metadata"]["resourceVersion"] == before, "its condition is written once"


async def test_30_the_real_trial_on_an_api_without_policies(world: World) -> None:
    async with Client(world.api.connection(CONTROLLER, MASTERS)) as client:
        names = GuardNames(("node-access-grants", "node-access-approvals"), "node-access", "not you")
        lock = CreatorLock(client, names, is_required=True, now=lambda: world.now, monotonic=world.monotonic)
        assert isinstance(await lock.fresh(NAMESPACE), NotProtected)
    assert world.grants() == []


async def test_30_a_grant_older_than_the_policies_is_never_sealed(world: World) -> None:
    world.lock.answer = Protected((guard(world.now + MINUTE),), world.now)
    world.grant()
    async with process(world) as running:
        await running.settle()
        assert world.reason("CreatorProven") == "CreatorNotProven"
        world.pass_by(HOUR)
        await running.settle()
    assert world.found() == {}, "its time is over"


# 31: policy off for a minute


async def test_31_a_sealed_grant_outlives_a_minute_without_policies_unchanged(world: World) -> None:
    async with process(world) as running:
        await issued(world, running, ingress=BASTION["ingress"])
        before = world.status()
        world.lock.answer = NotProtected("off")
        # Somebody else, as admission would have refused it.
        world.edit({"spec": {"ingress": WIDE}})
        world.beat("bob was here")
        await running.settle()
        world.lock.answer = Protected((guard(world.now, generation=3),), world.now)
        world.pass_by(MINUTE)
        await running.settle()
        after = world.status()
        assert after["certificates"] == before["certificates"]
        assert after["record"]["ingress"] == ["198.51.100.7/32"]
        assert after["expirationTimestamp"] == before["expirationTimestamp"]
        assert world.reason() == "CertificatesIssued"
        world.edit({"spec": {"ingress": WIDE[:0]}})
        await running.settle()
        assert world.status()["record"]["ingress"] == [], "the creator says it again, under the new policies"


EDITS: Final[dict[str, Mapping[str, Any]]] = {
    "cluster": {"clusterRef": {"name": "staging"}},
    "target": {"target": {"nodes": ["worker-1", "worker-2"]}},
    "node that does not exist": {"target": {"nodes": ["worker-9"]}},
    "login": {"logins": ["admin"]},
    "duration": {"duration": "168h"},
    "short duration": {"duration": "1m"},
    "permissions": {"permissions": {"portForwarding": True}},
    "reason": {"reason": "another"},
    "creator": {"createdBy": dict(BOB)},
    "no creator": {"createdBy": None},
    "invalid": {"ingress": [{"ipBlock": {"cidr": "198.51.100.7/24"}}]},
}


async def test_a_sealed_grant_that_is_edited_in_any_field_changes_nothing(world: World) -> None:
    async with process(world) as running:
        for index, (name, edit) in enumerate(EDITS.items()):
            grant = f"g-{index}"
            world.grant(grant, ingress=BASTION["ingress"])
            await running.settle()
            before = world.status(grant)
            stored = world.found(grant)
            world.api.update({**stored, "spec": _edited(stored["spec"], edit)})
            world.beat("1", grant)
            world.pass_by(MINUTE)
            await running.settle()
            after = world.status(grant)
            assert after["certificates"] == before["certificates"], name
            assert after["record"] == before["record"], name
            assert world.reason(name=grant) in ("SpecChanged", "Invalid", "ForbiddenByPolicy"), name
            world.api.delete("accessgrants", grant, NAMESPACE)
            await running.settle()
            assert world.found(grant) == {}, f"{name}: it still ends"


def _edited(spec: dict[str, Any], edit: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**spec, **edit}.items() if value is not None}


async def test_a_record_that_somebody_wrote_ends_the_grant(world: World) -> None:
    async with process(world) as running:
        of = await issued(world, running)
        written = {"heartbeatTime": "2999-01-01T00:00:00Z", "seen": {"more": "than ours"}}
        world.edit({"status": {"record": written}}, subresource="status")
        await running.settle()
        assert world.reason() == "RecordNotAuthentic"
        assert of in world.revoked()
        assert world.status()["certificates"] == []
        world.pass_by(2 * HOUR)
        await running.settle()
    assert world.found() == {}


async def test_a_move_that_was_planned_on_an_older_version_does_not_happen(world: World) -> None:
    async with process(world) as running:
        await issued(world, running)
        before = world.status()
        world.pass_by(61 * MINUTE)
        world.edit({"metadata": {"labels": {"changed": "meanwhile"}}})
        with pytest.raises(Conflict):
            await running.reconciler.look((NAMESPACE, "repair"))
        assert world.status() == before


async def test_a_record_of_before_that_somebody_put_back_ends_the_grant(world: World) -> None:
    async with process(world) as running:
        of = await issued(world, running)
        old = world.status()["record"]
        world.pass_by(20 * MINUTE)
        world.beat("1")
        await running.settle()
        world.edit({"status": {"record": old}}, subresource="status")
        await running.settle()
        assert world.reason() == "RecordNotAuthentic"
        assert of in world.revoked()


async def test_a_record_that_somebody_takes_away_ends_the_grant(world: World) -> None:
    """And does not make it a new one, whose former certificates nobody revokes."""
    async with process(world) as running:
        of = await issued(world, running)
        world.edit({"status": {"record": None}}, subresource="status")
        await running.settle()
        assert world.reason() == "RecordNotAuthentic"
        assert of in world.revoked()


async def test_a_watch_that_is_behind_ends_no_grant(world: World) -> None:
    """It tells of the version before this process's last write, after that write."""
    async with process(world) as running:
        await issued(world, running)
        before = world.found()
        world.pass_by(20 * MINUTE)
        world.beat("1")
        await running.settle()
        running.stores.grants.applied(before)
        with contextlib.suppress(Conflict):
            await running.reconciler.look((NAMESPACE, "repair"))
        await running.settle()
        assert world.revoked() == set()
        assert world.counts.ends == []
        assert world.reason() == "CertificatesIssued"


async def test_admission_that_is_off_since_the_last_trial_seals_nothing(world: World) -> None:
    """The last trial is up to a minute old: another one is made before a creator or an approval is believed."""
    world.lock.now = NotProtected("somebody has deleted the policies")
    async with process(world) as running:
        world.grant()
        await running.settle()
        assert "record" not in world.status()
        assert world.reason() == "CreatorNotProtected"
        world.lock.now = None
        await running.settle()
        world.lock.now = NotProtected("somebody has deleted the policies")
        world.edit({"spec": {"ingress": WIDE}})
        await running.settle()
        assert world.status()["record"]["ingress"] == []
        world.approve("a-1", BOB, world.found(), decision="Deny")
        world.allow("bob", verbs=("approve",))
        world.pass_by(2 * MINUTE)
        await running.settle()
        assert world.status()["record"]["approvals"] == []


async def test_an_end_that_cannot_be_logged_revokes_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(content: Content) -> None:
        raise AuditLogUnavailable("the disk is full")

    async with process(world) as running:
        of = await issued(world, running)
        with monkeypatch.context() as disk:
            disk.setattr(world.audit, "append", full)
            world.edit({"spec": {"suspend": True}})
            await running.in_step()
            with pytest.raises(AuditLogUnavailable):
                await running.reconciler.look((NAMESPACE, "repair"))
        assert world.revoked() == {of}
        assert "closing" not in world.status()["record"], "the end is in the audit log first"
        await running.settle()
        assert world.status()["record"]["closing"]["stage"] == "Terminated"


async def test_a_long_message_is_written_once(world: World) -> None:
    """One that the status cannot hold was another one at each look."""
    nodes = [f"{letter * 60}.{letter * 60}.{letter * 60}.{letter * 60}" for letter in "abcdefgh"]
    world.nodes.clear()
    world.unknown_nodes = ", ".join(nodes)
    async with process(world) as running:
        world.grant(target={"nodes": nodes})
        await running.settle()
        assert world.reason() == "TargetsUnknown"
        made = len(running.deadline.made)
        world.pass_by(MINUTE)
        await running.settle()
        assert len(running.deadline.made) == made


# 32: right withdrawn


async def test_32_a_right_that_is_withdrawn_ends_the_sessions_within_five_minutes(world: World) -> None:
    async with process(world) as running:
        of = await issued(world, running)
        world.withdraw("alice")
        for _ in range(4):
            world.pass_by(MINUTE)
            await running.settle()
        assert world.reason() == "RightLost"
        assert world.reason("SessionsTerminated") == "Terminated"
        assert world.revoked() == {of}
        assert world.status()["certificates"] == []
        world.allow("alice")
        world.pass_by(2 * MINUTE)
        await running.settle()
        assert key_id(world) == f"{of}/1", "the former key id stays revoked"


async def test_32_five_minutes_without_an_answer_end_the_sessions(world: World) -> None:
    async with process(world) as running:
        of = await issued(world, running)
        world.api.faults.inject("POST *subjectaccessreviews", status=500, times=None)
        world.pass_by(3 * MINUTE)
        await running.settle()
        assert world.reason() == "RightMissing"
        assert world.revoked() == set(), "an error is no denial"
        world.pass_by(3 * MINUTE)
        await running.settle()
        assert world.reason() == "RightUnknown"
        assert world.revoked() == {of}


async def test_32_a_heartbeat_asks_anew(world: World) -> None:
    async with process(world) as running:
        await issued(world, running)
        world.withdraw("alice")
        world.pass_by(timedelta(seconds=30))
        world.beat("1")
        await running.settle()
        assert world.reason() == "RightLost"


# 33: approvals


async def test_33_approvals_by_others_each_once_for_this_very_grant(world: World) -> None:
    world.policy({"approvals": 2})
    world.allow("alice", "bob", "carol", verbs=("approve",))
    async with process(world) as running:
        grant = world.grant()
        world.approve("own", ALICE, grant)
        world.approve("old", CAROL, grant, specDigest="0" * 64)
        world.approve("first", BOB, grant)
        world.approve("again", {**BOB}, grant)
        await running.settle()
        assert world.reason("Approved") == "ApprovalsMissing"
        assert world.reason() == "ApprovalsMissing"
        world.approve("second", CAROL, grant)
        await running.settle()
        assert world.reason() == "CertificatesIssued"
        [line] = world.audit.access
        assert isinstance(line, IssuanceLine)
        assert {one.username for one in line.approvals} == {"bob", "carol"}


async def test_33_an_approver_without_the_right_does_not_count(world: World) -> None:
    world.policy({"approvals": 1})
    async with process(world) as running:
        world.approve("first", BOB, world.grant())
        await running.settle()
        assert world.reason("Approved") == "ApprovalsMissing"
        world.allow("bob", verbs=("approve",))
        world.pass_by(2 * MINUTE)
        await running.settle()
        assert world.reason() == "CertificatesIssued"


async def test_33_a_denial_ends_a_running_grant(world: World) -> None:
    world.allow("bob", verbs=("approve",))
    async with process(world) as running:
        of = await issued(world, running)
        world.approve("no", BOB, world.found(), decision="Deny")
        await running.settle()
        assert world.reason("Approved") == "DeniedByApprover"
        assert world.revoked() == {of}
        world.api.delete("accessapprovals", "no", NAMESPACE)
        await running.settle()
        assert world.reason() == "DeniedByApprover", "that is final"


# 34: heartbeats


async def test_34_heartbeats_prolong_and_cost_one_write_each(world: World) -> None:
    async with process(world) as running:
        await issued(world, running)
        for number in range(1, 6):
            world.pass_by(40 * MINUTE)
            world.beat(str(number))
            running.deadline.made.clear()
            await running.settle()
            assert len(running.deadline.made) == 1
            [certificate] = certificates(world)
            assert certificate.valid_before == int((world.now + HOUR).timestamp())


async def test_34_a_missing_heartbeat_ends_and_deletes_the_grant(world: World) -> None:
    async with process(world) as running:
        await issued(world, running)
        world.pass_by(59 * MINUTE)
        await running.settle()
        assert world.reason() == "CertificatesIssued"
        world.pass_by(2 * MINUTE)
        await running.settle()
    assert world.found() == {}
    assert world.counts.ends == ["HeartbeatMissing"]


@pytest.mark.parametrize("bound", ["grant", "policy", "operator"])
async def test_34_the_shortest_lifetime_wins(world: World, bound: str) -> None:
    if bound == "policy":
        world.policy({"maxLifetime": "2h"})
    if bound == "operator":
        world.permission = replace(world.permission, maximum_lifetime=2 * HOUR)
    async with process(world) as running:
        spec: dict[str, Any] = {"duration": "2h"} if bound == "grant" else {}
        world.grant(**spec)
        await running.settle()
        for number in range(3):
            world.pass_by(39 * MINUTE)
            world.beat(f"2999-01-01T00:00:0{number}Z")
            await running.settle()
        [certificate] = certificates(world)
        assert certificate.valid_before - int(world.now.timestamp()) < 5 * 60
        world.pass_by(5 * MINUTE)
        world.beat("last")
        await running.settle()
    assert world.found() == {}
    assert world.counts.ends == ["DurationOver"]


async def test_34_times_in_the_status_count_for_nothing(world: World) -> None:
    async with process(world) as running:
        await issued(world, running)
        times = {"lastHeartbeatTimestamp": "2999-01-01T00:00:00Z", "expirationTimestamp": "2999-01-01T00:00:00Z"}
        world.edit({"status": times}, subresource="status")
        world.pass_by(61 * MINUTE)
        await running.settle()
    assert world.found() == {}


async def test_34_a_keepalive_is_removed_and_prolongs_by_two_writes(world: World) -> None:
    async with process(world) as running:
        await issued(world, running)
        world.pass_by(40 * MINUTE)
        running.deadline.made.clear()
        world.edit({"metadata": {"annotations": {"access.cluster.x-k8s.io/operation": "keepalive"}}})
        await running.settle()
        assert len(running.deadline.made) == 2
        assert not world.found()["metadata"].get("annotations")
        world.pass_by(40 * MINUTE)
        await running.settle()
        assert world.reason() == "CertificatesIssued"


# Suspension


async def test_a_suspended_grant_ends_and_comes_back_with_another_key_id(world: World) -> None:
    async with process(world) as running:
        of = await issued(world, running, **BASTION)
        world.edit({"spec": {"suspend": True}})
        await running.settle()
        assert world.reason() == "Suspended"
        assert world.reason("SessionsTerminated") == "Terminated"
        assert (world.revoked(), world.bastions()) == ({of}, [])
        world.edit({"spec": {"suspend": False}})
        await running.settle()
        assert world.reason() == "CertificatesIssued"
        assert key_id(world) == f"{of}/1"
        assert len(world.bastions()) == 1


async def test_a_policy_that_allows_no_more_grants_ends_them(world: World) -> None:
    async with process(world) as running:
        of = await issued(world, running)
        world.policy(None)
        await running.settle()
        assert world.reason() == "NotAllowed"
        assert world.revoked() == {of}


# 35: Cluster, CA Secret or Machine gone


@pytest.mark.parametrize("with_bastion", [False, True])
async def test_35_a_grant_of_a_cluster_that_is_gone_still_ends(world: World, with_bastion: bool) -> None:
    async with process(world) as running:
        await issued(world, running, **(BASTION if with_bastion else {}))
        # The reference would have the API server's garbage collector delete the grant as well.
        world.edit({"metadata": {"ownerReferences": []}})
        world.publishes = False
        world.api.delete("clusters", CLUSTER.name, CLUSTER.namespace)
        await running.settle()
        assert world.reason() == "ClusterGone"
        assert world.bastions() == []
        assert world.reason("SessionsTerminated") == "Publishing", "certificates live, and nobody can tell nodes"
        world.pass_by(HOUR)
        await running.settle()
    assert world.found() == {}


async def test_35_a_grant_that_is_deleted_with_its_cluster_unreachable_goes_with_its_last_certificate(
    world: World,
) -> None:
    world.publishes = False
    async with process(world) as running:
        of = await issued(world, running)
        world.delete()
        await running.settle()
        assert world.revoked() == {of}
        assert world.found(), "sessions may live"
        world.pass_by(HOUR)
        await running.settle()
    assert world.found() == {}


async def test_35_a_grant_whose_machines_are_gone_ends(world: World) -> None:
    async with process(world) as running:
        of = await issued(world, running)
        world.nodes.clear()
        await running.settle()
        assert world.reason() == "TargetsGone"
        assert world.revoked() == {of}


async def test_35_the_grant_of_a_node_that_has_not_attested_waits(world: World) -> None:
    world.nodes.clear()
    async with process(world) as running:
        world.grant()
        await running.settle()
        assert world.reason() == "TargetsUnknown"
        world.nodes.add("worker-1")
        await running.settle()
        assert world.reason() == "CertificatesIssued"


async def test_a_grant_whose_finalizer_was_taken_is_revoked_all_the_same(world: World) -> None:
    async with process(world) as running:
        of = await issued(world, running)
        world.edit({"metadata": {"finalizers": []}})
        world.delete()
        await running.settle()
        assert world.found() == {}
        assert world.revoked() == {of}


# 37: a move


async def test_37_a_move_ends_grants(world: World) -> None:
    """clusterctl pauses the Cluster, makes it elsewhere, and deletes it here."""
    async with process(world) as running:
        await issued(world, running)
        world.api.patch("clusters", CLUSTER.name, {"spec": {"paused": True}}, CLUSTER.namespace)
        world.pass_by(20 * MINUTE)
        world.beat("1")
        await running.settle()
        assert world.reason() == "ClusterPaused"
        before = certificates(world)
        assert before[0].valid_before < int((world.now + 41 * MINUTE).timestamp()), "nothing is issued"
        world.edit({"metadata": {"ownerReferences": []}})
        world.api.delete("clusters", CLUSTER.name, CLUSTER.namespace)
        world.pass_by(HOUR)
        await running.settle()
    assert world.found() == {}


async def test_nothing_is_asked_about_a_creator_who_is_not_proven(world: World) -> None:
    world.lock.answer = NotProtected("off")
    world.grant(creator={"username": "root-of-all", "groups": ["system:masters"]})
    async with process(world) as running:
        world.api.requests.clear()
        await running.settle()
        assert not world.api.requests.matching("POST *subjectaccessreviews")


def test_the_resources_are_those_of_the_definitions(world: World) -> None:
    assert world.api.objects(f"{ACCESS_GRANTS.plural}.{ACCESS_GRANTS.group}") == []


# A namespace where the operator allows no grants, and has given the controller no rights


def writes_no_grants(world: World) -> None:
    """The controller's rights outside ``access.namespaces``."""
    rbac = "rbac.authorization.k8s.io"
    reads = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
    writes = {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["create", "update", "patch"]}
    subject = {"kind": "User", "apiGroup": rbac, "name": CONTROLLER}
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "writes-no-grants"}
    for kind, rest in (
        ("ClusterRole", {"rules": [reads, writes]}),
        ("ClusterRoleBinding", {"roleRef": role, "subjects": [subject]}),
    ):
        world.api.apply({"apiVersion": f"{rbac}/v1", "kind": kind, "metadata": {"name": "writes-no-grants"}, **rest})


def refused(world: World) -> list[str]:
    """The controller's writes to grants that the API server refused."""
    return [one.path for one in world.api.requests.matching("* */accessgrants/*") if one.status == 403]


def left_alone(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "left alone" in one.getMessage()]


async def test_grants_where_nothing_may_be_written_are_left_alone_and_it_is_said_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.permission = replace(world.permission, namespaces=frozenset({"team-b"}))
    writes_no_grants(world)
    for name in ("first", "second"):
        world.grant(name)
    async with process(world, groups=()) as running:
        before = len(refused(world))
        pause = await running.reconciler.look((NAMESPACE, "first"))
        assert pause is not None
        assert 48 <= pause <= 60
        assert len(refused(world)) == before + 1
        for _ in range(3):
            assert await running.reconciler.look((NAMESPACE, "second")) == pytest.approx(pause)
        world.edit({"metadata": {"labels": {"a": "b"}}}, "first")
        await running.in_step()
        assert await running.reconciler.look((NAMESPACE, "first")) == pytest.approx(pause)
        assert len(refused(world)) == before + 1, "the tenant's changes cost nothing"
        for attempt in range(1, 10):
            world.pass_by(timedelta(seconds=pause + 1))
            pause = await running.reconciler.look((NAMESPACE, "second"))
            assert pause is not None
            assert 0.8 * min(60 * 2**attempt, 3600) <= pause <= min(60 * 2**attempt, 3600)
        assert len(refused(world)) == before + 10
    assert len(left_alone(caplog)) == 1


async def test_where_the_operator_allows_grants_a_refused_write_is_tried_again_soon(world: World) -> None:
    writes_no_grants(world)
    world.grant()
    async with process(world, groups=()) as running:
        for _ in range(2):
            with pytest.raises(Forbidden):
                await running.reconciler.look((NAMESPACE, "repair"))


async def test_the_end_of_a_grant_is_not_left_alone_where_nothing_may_be_written(world: World) -> None:
    """It has certificates: they have to be revoked."""
    async with process(world) as running:
        await issued(world, running)
    world.permission = replace(world.permission, namespaces=frozenset({"team-b"}))
    writes_no_grants(world)
    async with process(world, groups=()) as running:
        for _ in range(2):
            with pytest.raises(Forbidden):
                await running.reconciler.look((NAMESPACE, "repair"))


async def test_where_the_operator_allows_no_grants_the_status_says_so_if_it_may_be_written(world: World) -> None:
    world.permission = replace(world.permission, namespaces=frozenset({"team-b"}))
    world.grant()
    async with process(world) as running:
        await running.settle()
    assert world.reason() == "NotAllowed"


async def test_the_lock_is_tried_only_where_the_operator_allows_grants(world: World) -> None:
    """Elsewhere the API server refuses the trial, each minute."""
    world.permission = replace(world.permission, namespaces=frozenset({"team-b"}))
    world.add_cluster(ClusterKey("team-b", CLUSTER.name))
    world.grant(namespace=NAMESPACE)
    world.grant(namespace="team-b")
    async with process(world) as running:
        trying = asyncio.create_task(running.reconciler._try_locks())
        for _ in range(1000):
            if "team-b" in world.lock.tried:
                break
            await asyncio.sleep(0.01)
        trying.cancel()
    assert world.lock.tried == ["team-b"]


# Clocks


@pytest.mark.parametrize("clocks", [ClocksDiffer("the clock is ahead", NOON), ClockUnknown("no answer")])
async def test_a_clock_that_is_hours_ahead_ends_nothing_and_skips_no_revocation(
    world: World, clocks: ClockAnswer
) -> None:
    async with process(world) as running:
        of = await issued(world, running, **BASTION)
        world.clocks = clocks
        world.pass_by(10 * HOUR)
        await running.settle()
        assert world.reason() == "ClocksDiffer"
        assert len(certificates(world)) == 2
        assert len(world.bastions()) == 1
        world.publishes = False
        world.delete()
        await running.settle()
        assert world.revoked() == {of}
        assert world.found(), "nodes do not know yet, and their clocks may say that the certificates count"
        world.publishes = True
        await running.settle()
        assert (world.found(), world.bastions()) == ({}, [])
        assert world.revoked() == {of}


async def test_a_grant_that_vanishes_while_the_clock_is_wrong_is_revoked(world: World) -> None:
    async with process(world) as running:
        of = await issued(world, running)
        world.clocks = ClockUnknown("no answer")
        world.pass_by(10 * HOUR)
        world.delete()
        world.edit({"metadata": {"finalizers": []}})
        await running.settle()
    assert world.revoked() == {of}


# Lost records, foreign shards, faults


async def test_an_edited_creator_and_a_lost_record_hide_no_key_id(world: World) -> None:
    """Admission is off, and somebody edits both: what was issued is revoked, not what the edited object could have."""
    async with process(world) as running:
        of = await issued(world, running)
        world.edit({"spec": {"createdBy": {"username": "mallory", "uid": "u-9"}}})
        world.edit({"status": {"record": {"createdBy": {"username": "mallory"}}}}, subresource="status")
        await running.settle()
        assert world.reason() == "RecordNotAuthentic"
        assert of in world.revoked()


async def test_a_grant_that_vanishes_is_revoked_by_the_replica_of_its_shard_alone(world: World) -> None:
    async with process(world) as running:
        of = await issued(world, running)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(running.caches.shards), "own", lambda self, cluster: False)
            world.delete()
            world.edit({"metadata": {"finalizers": []}})
            await running.settle()
            assert running.reconciler.vanished == ()
        assert world.revoked() == set()
    async with process(world) as running:
        other = await issued(world, running)
        world.delete()
        world.edit({"metadata": {"finalizers": []}})
        await running.settle()
    assert world.revoked() == {other}
    assert other != of


async def test_a_fault_in_the_trial_of_one_namespace_ends_no_work(world: World) -> None:
    tried: list[str] = []
    both = asyncio.Event()

    async def fault(namespace: str, since: float = float("-inf")) -> Lock:
        tried.append(namespace)
        if len(tried) == 2:  # by the trial of each minute, and by the look
            both.set()
        raise RuntimeError("a fault")

    async with process(world) as running:
        world.grant()
        await running.in_step()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(world.lock, "fresh", fault)
            work = asyncio.create_task(running.reconciler.run())
            await both.wait()
            for _ in range(20):
                await asyncio.sleep(0)
            assert not work.done()
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
