"""A rotation of the SSH authorities, from the order to its end, by the real reconciler."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from attestors.wire.ssh.key_line import key_line
from signer.ssh.available import NotAvailable
from signer.ssh.reports import NotReported, Reports
from signer.ssh.secrets import TRUST_VERSION_ANNOTATION
from tests.unit.signer.rotation.memory_api import Call, Interfere, Moment
from tests.unit.signer.ssh.world import HOST, USER, Fleet, Process, World, new_line, node, order, ordered, run

BREAK_GLASS: Final = new_line()
SSH: Final = {"breakGlass": {"publicKeys": [{"key": BREAK_GLASS}]}}


async def started(*nodes: str) -> tuple[World, Process, Fleet]:
    """A cluster whose nodes attest, and whose rotation has started."""
    world = World(ssh=SSH)
    process = await Process.started(world)
    await process.until_it_waits()
    fleet = Fleet(process, *nodes)
    fleet.attest()
    fleet.attest()
    world.wait(0.01)
    order(world, "start-ssh-ca-rotation")
    await process.until_it_waits()
    return world, process, fleet


def phases(process: Process) -> tuple[str, str, str]:
    """Of both, of the user authority, of the host authority."""
    found: Any = process.reconciler.status["rotation"]
    return found["phase"], found["user"]["step"], found["host"]["step"]


def lines(process: Process) -> tuple[list[str], list[str]]:
    """The online user authorities and the host authorities that are trusted."""
    trust = process.available().trust
    return [key_line(key) for key in trust.user_authorities], [key_line(key) for key in trust.host_authorities]


def test_from_the_order_to_the_end() -> None:
    async def scenario() -> None:
        world = World(ssh=SSH)
        process = await Process.started(world)
        await process.until_it_waits()
        fleet = Fleet(process, "a", "b")
        fleet.attest()
        fleet.attest()
        before, first = lines(process), process.available()
        world.wait(0.01)

        order(world, "start-ssh-ca-rotation")
        await process.until_it_waits()
        assert ordered(world) == ""
        assert phases(process) == ("Preparing", "NodesTrust", "Prepared")
        users, hosts = lines(process)
        assert ([users[0]], [hosts[0]]) == before, "the old ones sign"
        assert (len(users), len(hosts)) == (2, 2)
        trusting = process.available()
        assert trusting.trust.version > first.trust.version
        assert trusting.renew_below == trusting.trust.version

        fleet.attest()
        await process.until_it_waits()
        assert phases(process)[1] == "NodesTrust", "each has attested with the trust that it had before"
        assert "a, b" in process.reconciler.conditions[1].message
        fleet.attest()
        await process.until_it_waits()
        assert phases(process) == ("Prepared", "Prepared", "Prepared")
        signing = process.available()
        assert key_line(signing.user.public_key) == users[1]
        assert key_line(signing.host.public_key) == hosts[0], "clients may not know the new one"
        assert signing.trust.version == trusting.trust.version
        assert set(lines(process)[0]) == set(users)
        assert signing.renew_below == 0

        world.wait(5)
        await process.until_it_waits()
        assert phases(process) == ("Prepared", "Prepared", "Prepared"), "a person completes"

        order(world, "complete-ssh-ca-rotation")
        await process.until_it_waits()
        completing = process.available()
        assert phases(process) == ("Completing", "NodesForget", "NodesRenew"), "the longest certificate has ended"
        assert lines(process) == ([users[1]], [hosts[1], hosts[0]])
        assert completing.trust.version > signing.trust.version
        assert completing.renew_below == completing.trust.version

        fleet.attest()
        await process.until_it_waits()
        assert lines(process) == ([users[1]], [hosts[1]])
        fleet.attest()
        fleet.attest()
        await process.until_it_waits()
        assert phases(process)[0] == "Completed"
        assert lines(process) == ([users[1]], [hosts[1]])
        assert process.available().renew_below == 0
        for path, line in ((USER, users[1]), (HOST, hosts[1])):
            assert world.public_key(path) == line
            assert set(world.found(path)["data"]) == {"ssh-privatekey", "ssh-publickey"}, "the former key is deleted"
        assert [reason for _, reason, _ in process.told] == [
            "SSHAuthorityPrepared",
            "SSHAuthorityPreparing",
            "SSHAuthorityPrepared",
            "SSHAuthorityCompleting",
            "SSHAuthorityCompleting",
            "SSHAuthorityCompleted",
            "SSHAuthorityCompleted",
        ]

    run(scenario())


async def prepared(*nodes: str) -> tuple[World, Process, Fleet]:
    """All nodes trust both, and a person may complete."""
    world, process, fleet = await started(*nodes)
    await attested(process, fleet)
    assert phases(process) == ("Prepared", "Prepared", "Prepared")
    return world, process, fleet


async def attested(process: Process, fleet: Fleet) -> None:
    """Nodes attest until each has reported what it was given last."""
    for _ in range(2):
        fleet.attest()
        await process.until_it_waits()


async def completing(*nodes: str) -> tuple[World, Process, Fleet]:
    """Both new ones sign, and both old ones are trusted."""
    world, process, fleet = await prepared(*nodes)
    order(world, "complete-ssh-ca-rotation")
    await process.until_it_waits()
    assert phases(process) == ("Completing", "CertificatesEnd", "NodesRenew")
    return world, process, fleet


def rejected(process: Process) -> str:
    """Why the last order was rejected; empty if it was not."""
    found = [one.message for one in process.reconciler.conditions if one.type == "SSHOperationRejected"]
    return found[0] if found else ""


def test_the_gate_waits_for_each_node() -> None:
    """By its attested request alone: the node that is asleep is named, and holds the rotation for ever."""

    async def scenario() -> None:
        world, process, fleet = await started("a", "b")
        old = process.available().user.public_key
        fleet.asleep.add("b")
        for _ in range(5):
            await attested(process, fleet)
            world.wait(1)
        assert process.available().user.public_key == old
        shown: Any = process.reconciler.status["rotation"]
        assert shown["user"]["lagging"] == ["b"]
        assert process.reconciler.lagging == ("b",)
        assert " b" in shown["user"]["waitsFor"]
        fleet.asleep.clear()
        await attested(process, fleet)
        assert process.available().user.public_key != old

    run(scenario())


@pytest.mark.parametrize(
    "reports", [NotReported("no record can be read"), Reports((), ("b",))], ids=["nothing is known", "one is not known"]
)
@pytest.mark.parametrize("phase", ["Preparing", "Completing"])
def test_what_is_not_known_advances_nothing(reports: Reports | NotReported, phase: str) -> None:
    async def scenario() -> None:
        world, process, fleet = await (started("a") if phase == "Preparing" else completing("a"))
        fleet.attest()
        fleet.attest()
        world.reports = (
            reports if isinstance(reports, NotReported) else Reports(tuple(fleet.reports.values()), reports.unknown)
        )
        world.wait(40)
        await process.until_it_waits()
        before = phases(process)
        await process.until_it_waits()
        assert phases(process) == before
        assert before[0] == phase
        assert len(lines(process)[1]) == 2, "no host authority was dropped"
        message = reports.message if isinstance(reports, NotReported) else "nothing is known of these nodes: b"
        assert any(message in one.message for one in process.reconciler.conditions)

    run(scenario())


@pytest.mark.parametrize("beyond", [1, 10**9, 2**62])
def test_a_node_that_reports_a_version_that_was_not_given(beyond: int) -> None:
    """It holds the rotation under its own name, and no other node attests again and again for it."""

    async def scenario() -> None:
        world, process, fleet = await started("a")
        version = process.available().trust.version
        fleet.attest()
        fleet.attest()
        world.reports = Reports((*fleet.reports.values(), node("liar", version + beyond)))
        for _ in range(5):
            await process.until_it_waits()
            assert phases(process)[1] == "NodesTrust"
            assert process.available().trust.version == version
        assert process.reconciler.lagging == ("liar",)

    run(scenario())


@pytest.mark.parametrize("replaced", ["by hand", "from a backup"])
def test_a_node_that_reports_a_future_version_holds_back_no_replacement(replaced: str) -> None:
    """The others have the version that followed its report. They take the trust that comes next all the same, though
    they have not reported theirs yet.
    """

    async def scenario() -> None:
        world = World(ssh=SSH)
        process = await Process.started(world)
        await process.until_it_waits()
        backup = world.found(USER)
        world.wait(1)
        world.reports = Reports((node("liar", int(world.now.timestamp()) + 80_000),))
        await process.until_it_waits()
        given = process.available().trust
        assert given.version > int(world.now.timestamp())
        world.wait(0.01)
        if replaced == "by hand":
            world.api.remove(USER)
        else:
            world.api.put(USER, backup)
            world.choose({})
        await process.until_it_waits()
        assert process.available().trust != given
        assert process.available().trust.version > given.version

    run(scenario())


def test_a_skipped_node_is_recorded() -> None:
    async def scenario() -> None:
        world, process, fleet = await started("a", "b")
        fleet.asleep.add("b")
        await attested(process, fleet)
        order(world, "retry-ssh-ca-rotation", "unreachable-nodes")
        await process.until_it_waits()
        assert phases(process)[0] == "Prepared"
        shown: Any = process.reconciler.status["rotation"]["user"]
        assert [one["gate"] for one in shown["skippedGates"]] == ["unreachable-nodes"]
        assert ("Warning", "NodesSkipped") in [one[:2] for one in process.told]
        assert any("not waited for: b" in message for _, _, message in process.told)

    run(scenario())


def test_the_longest_certificate_is_waited_for() -> None:
    async def scenario() -> None:
        world, process, _ = await completing("a")
        users = lines(process)[0]
        world.wait(69 / 24 / 60)
        pause = await process.pass_once()
        assert lines(process)[0] == users
        assert 1 <= pause <= 60, "it looks again when the wait is over"
        world.wait(1 / 24 / 60)
        await process.until_it_waits()
        assert lines(process)[0] == users[:1]

    run(scenario())


def test_the_wait_is_skipped_by_a_person() -> None:
    async def scenario() -> None:
        world, process, _ = await completing("a")
        users = lines(process)[0]
        order(world, "retry-ssh-ca-rotation", "overlap")
        await process.until_it_waits()
        assert lines(process)[0] == users[:1]
        assert phases(process)[1] == "NodesForget"

    run(scenario())


@pytest.mark.parametrize("end", [-1, 1])
def test_a_node_whose_last_certificate_has_ended_is_not_waited_for(end: int) -> None:
    async def scenario() -> None:
        world, process, fleet = await completing("a", "b")
        old = lines(process)[1][1]
        fleet.asleep.add("b")
        fleet.attest()
        report = fleet.reports["b"]
        world.reports = Reports(
            (fleet.reports["a"], node("b", report.trust_version, "SHA256:old", end=world.now + timedelta(hours=end)))
        )
        assert report.host_authority != fleet.reports["a"].host_authority
        await process.until_it_waits()
        assert (old in lines(process)[1]) is (end > 0)

    run(scenario())


def test_nodes_that_trust_the_dropped_authority_are_named() -> None:
    """The rotation is over once none does."""

    async def scenario() -> None:
        world, process, fleet = await completing("a", "b")
        world.wait(0.1)
        fleet.asleep.add("b")
        await process.until_it_waits()
        await attested(process, fleet)
        shown: Any = process.reconciler.status["rotation"]
        assert (shown["user"]["phase"], shown["user"]["lagging"]) == ("Completing", ["b"])
        assert shown["rollbackAvailable"] == "Full", "of the host authority, which b's certificate holds"
        assert shown["user"]["rollbackAvailable"] == "None"
        fleet.asleep.clear()
        await attested(process, fleet)
        await attested(process, fleet)
        assert phases(process)[0] == "Completed"

    run(scenario())


# The way back


def test_a_rollback_before_anything_is_signed() -> None:
    async def scenario() -> None:
        world, process, fleet = await started("a")
        users, hosts = lines(process)
        order(world, "rollback-ssh-ca-rotation")
        await process.until_it_waits()
        assert phases(process)[0] == "RolledBack"
        assert lines(process) == (users[:1], hosts[:1])
        assert not rejected(process)
        order(world, "start-ssh-ca-rotation")
        await process.until_it_waits()
        assert lines(process)[0][1] != users[1], "another new one"
        await attested(process, fleet)
        assert phases(process)[0] == "Prepared"

    run(scenario())


@pytest.mark.parametrize("from_", ["Prepared", "Completing"])
def test_a_rollback_of_what_has_signed(from_: str) -> None:
    """Certificates of the new ones stay good until they have ended, or are replaced."""

    async def scenario() -> None:
        world, process, fleet = await (prepared("a", "b") if from_ == "Prepared" else completing("a", "b"))
        new_user, old_user = lines(process)[0]
        fleet.asleep.add("b")
        if from_ == "Completing":
            fleet.attest()
            new_host, old_host = lines(process)[1]
        else:
            old_host, new_host = lines(process)[1]
        order(world, "rollback-ssh-ca-rotation")
        await process.until_it_waits()
        assert phases(process)[0] == "RollingBack"
        assert lines(process)[0] == [old_user, new_user]
        assert lines(process)[1] == ([old_host] if from_ == "Prepared" else [old_host, new_host])
        world.wait(71 / 24 / 60)
        await process.until_it_waits()
        assert lines(process)[0] == [old_user]
        fleet.asleep.clear()
        await attested(process, fleet)
        await attested(process, fleet)
        assert phases(process)[0] == "RolledBack"
        assert lines(process) == ([old_user], [old_host])
        assert (world.public_key(USER), world.public_key(HOST)) == (old_user, old_host)

    run(scenario())


def test_a_rollback_of_the_host_authority_alone() -> None:
    """The old user authority is dropped, and some node has no certificate of the new host authority."""

    async def scenario() -> None:
        world, process, fleet = await completing("a", "b")
        fleet.asleep.add("b")
        world.wait(0.1)
        fleet.attest()
        await process.until_it_waits()
        assert phases(process) == ("Completing", "NodesForget", "NodesRenew")
        users, hosts = lines(process)
        order(world, "rollback-ssh-ca-rotation")
        await process.until_it_waits()
        assert not rejected(process)
        assert lines(process) == (users, hosts[::-1])
        fleet.asleep.clear()
        await attested(process, fleet)
        await attested(process, fleet)
        shown: Any = process.reconciler.status["rotation"]
        assert (shown["user"]["phase"], shown["host"]["phase"]) == ("Completed", "RolledBack")

    run(scenario())


# A leaked authority


def test_a_leaked_user_authority() -> None:
    """It, and the other key that its Secret held, lose all trust in one write."""

    async def scenario() -> None:
        world, process, fleet = await started("a", "b")
        users, hosts = lines(process)
        keys = world.keys_ever(USER)
        fleet.asleep.add("b")
        order(world, "revoke-ssh-user-ca")
        await process.until_it_waits()
        assert len(lines(process)[0]) == 1
        assert lines(process)[0][0] not in users
        assert lines(process)[1] == hosts, "the other authority's rotation goes on"
        assert set(world.found(USER)["data"]) == {"ssh-privatekey", "ssh-publickey"}
        assert (world.found(USER)["data"]["ssh-privatekey"], world.found(USER)["data"]["ssh-publickey"]) not in keys
        shown: Any = process.reconciler.status["rotation"]["user"]
        assert (shown["phase"], shown["step"], shown["cause"]) == ("Completing", "NodesForget", "Revoked")
        assert ("Warning", "SSHAuthorityRevoked") in [one[:2] for one in process.told]
        await attested(process, fleet)
        shown = process.reconciler.status["rotation"]["user"]
        assert shown["lagging"] == ["b"], "which node still trusts it"
        fleet.asleep.clear()
        await attested(process, fleet)
        shown = process.reconciler.status["rotation"]["user"]
        assert shown["phase"] == "Completed"
        order(world, "complete-ssh-ca-rotation")
        await process.until_it_waits()
        assert not rejected(process)
        await attested(process, fleet)
        assert phases(process)[0] == "Completed"

    run(scenario())


@pytest.mark.parametrize("leaving", [Reports((), (), (node("b", 1),)), Reports((), (), (), ("b",))], ids=repr)
def test_after_a_leak_a_node_counts_until_it_is_gone(leaving: Reports) -> None:
    """While its Machine is being deleted, it runs, and the leaked authority opens it."""

    async def scenario() -> None:
        world, process, fleet = await started("a")
        order(world, "revoke-ssh-user-ca")
        await process.until_it_waits()
        for _ in range(3):
            fleet.attest()
            world.reports = replace(leaving, nodes=tuple(fleet.reports.values()))
            world.wait(1)
            await process.until_it_waits()
        shown: Any = process.reconciler.status["rotation"]["user"]
        assert (shown["step"], shown["lagging"]) == ("NodesForget", ["b"])
        assert shown["waitsFor"] == "these nodes run until their Machines, which are being deleted, are gone: b"
        assert process.reconciler.lagging == ("b",)
        assert any("until their Machines" in one.message for one in process.reconciler.conditions)
        fleet.asleep.add("a")
        fleet.reports["a"] = node("a", 1)
        world.reports = replace(leaving, nodes=tuple(fleet.reports.values()))
        await process.until_it_waits()
        shown = process.reconciler.status["rotation"]["user"]
        assert shown["lagging"] == ["a", "b"]
        assert "have not attested with trust version" in shown["waitsFor"]
        assert "until their Machines" in shown["waitsFor"]
        fleet.asleep.clear()
        await attested(process, fleet)
        assert process.reconciler.status["rotation"]["user"]["phase"] == "Completed", "b is gone"

    run(scenario())


def test_a_node_that_leaves_may_report_the_last_of_it() -> None:
    async def scenario() -> None:
        world, process, fleet = await started("a")
        order(world, "revoke-ssh-user-ca")
        await process.until_it_waits()
        await attested(process, fleet)
        assert process.reconciler.status["rotation"]["user"]["phase"] == "Completed"
        order(world, "revoke-ssh-user-ca")
        await process.until_it_waits()
        fleet.attest()
        fleet.attest()
        world.reports = Reports((), (), tuple(fleet.reports.values()))
        await process.until_it_waits()
        assert process.reconciler.status["rotation"]["user"]["phase"] == "Completed"

    run(scenario())


def test_without_a_leak_nodes_that_leave_hold_nothing() -> None:
    async def scenario() -> None:
        world, process, fleet = await completing("a")
        await attested(process, fleet)
        world.wait(1)
        await process.until_it_waits()
        assert phases(process)[1] == "NodesForget"
        fleet.attest()
        fleet.attest()
        world.reports = Reports(tuple(fleet.reports.values()), (), (node("b", 1),), ("c",))
        await process.until_it_waits()
        assert process.reconciler.status["rotation"]["user"]["phase"] == "Completed"

    run(scenario())


def test_a_leaving_node_with_a_higher_version_gets_a_higher_one() -> None:
    """It refuses a lower one: its state is from before a restored backup."""

    async def scenario() -> None:
        world, process, fleet = await started("a")
        version = process.available().trust.version
        world.wait(1)
        world.reports = Reports(tuple(fleet.reports.values()), (), (node("b", version + 60),))
        await process.until_it_waits()
        assert process.available().trust.version > version + 60

    run(scenario())


def test_a_certificate_that_was_only_journaled_renews_nothing() -> None:
    """The node may present the former one until the record says that it could read the new one."""

    async def scenario() -> None:
        world, process, fleet = await completing("a")
        old = lines(process)[1][1]
        fleet.attest()
        report = fleet.reports["a"]
        assert report.host_authority == process.available().host.public_key.fingerprint
        world.reports = Reports((replace(report, former_certificate_end=world.now + timedelta(hours=1)),))
        await process.until_it_waits()
        assert old in lines(process)[1]
        shown: Any = process.reconciler.status["rotation"]["host"]
        assert (shown["step"], shown["lagging"]) == ("NodesRenew", ["a"])
        world.wait(2 / 24)
        await process.until_it_waits()
        assert old not in lines(process)[1], "the former certificate has ended"

    run(scenario())


def test_a_leaked_host_authority() -> None:
    async def scenario() -> None:
        world = World(ssh=SSH)
        process = await Process.started(world)
        await process.until_it_waits()
        users, hosts = lines(process)
        fleet = Fleet(process, "a")
        await attested(process, fleet)
        order(world, "revoke-ssh-host-ca")
        await process.until_it_waits()
        assert lines(process)[0] == users
        assert len(lines(process)[1]) == 1
        assert lines(process)[1] != hosts
        assert process.available().renew_below == process.available().trust.version
        shown: Any = process.reconciler.status["rotation"]
        assert (shown["host"]["step"], shown["host"]["lagging"]) == ("NodesRenew", ["a"])
        await attested(process, fleet)
        assert process.reconciler.status["rotation"]["phase"] == "Completed"

    run(scenario())


def test_a_revocation_twice_is_two_revocations_and_one_order_is_one() -> None:
    async def scenario() -> None:
        world = World(ssh=SSH)
        process = await Process.started(world)
        await process.until_it_waits()
        seen = {lines(process)[0][0]}
        for number in range(2):
            order(world, "revoke-ssh-user-ca")
            await process.until_it_waits()
            seen.add(lines(process)[0][0])
            assert len(seen) == number + 2
            await process.until_it_waits()
            assert lines(process)[0][0] in seen

    run(scenario())


# Orders that are not possible


@pytest.mark.parametrize(
    ("operation", "gates", "why"),
    [
        ("complete-ssh-ca-rotation", "", "no rotation of the SSH authorities is under way"),
        ("rollback-ssh-ca-rotation", "", "no rotation of the SSH authorities is under way"),
        ("retry-ssh-ca-rotation", "overlap", "no rotation of the SSH authorities is under way"),
        ("start-ssh-ca-rotation", "machines", "can skip overlap and unreachable-nodes alone"),
        ("start-ssh-ca-rotation", "everything", "is no gate"),
    ],
)
def test_an_order_without_a_rotation(operation: str, gates: str, why: str) -> None:
    async def scenario() -> None:
        world = World(ssh=SSH)
        process = await Process.started(world)
        await process.until_it_waits()
        before = {path: world.found(path) for path in (USER, HOST)}
        order(world, operation, gates)
        await process.until_it_waits()
        assert rejected(process).startswith(f"{operation}: ")
        assert why in rejected(process)
        assert ordered(world) == ""
        assert {path: world.found(path) for path in (USER, HOST)} == before
        assert process.told[-1][:2] == ("Warning", "SSHOperationRejected")
        order(world, "start-ssh-ca-rotation")
        await process.until_it_waits()
        assert not rejected(process), "the next order that is accepted takes it away"

    run(scenario())


@pytest.mark.parametrize(
    ("reach", "operation", "why"),
    [
        (started, "start-ssh-ca-rotation", "complete it or roll it back"),
        (started, "complete-ssh-ca-rotation", "completed once it is Prepared"),
        (started, "retry-ssh-ca-rotation", "name the gates"),
        (prepared, "start-ssh-ca-rotation", "complete it or roll it back"),
        (completing, "complete-ssh-ca-rotation", "the completion was ordered before"),
    ],
)
def test_an_order_in_the_wrong_phase(reach: Any, operation: str, why: str) -> None:
    async def scenario() -> None:
        world, process, _ = await reach("a")
        before = {path: world.found(path) for path in (USER, HOST)}
        order(world, operation)
        await process.until_it_waits()
        assert why in rejected(process)
        assert {path: world.found(path) for path in (USER, HOST)} == before

    run(scenario())


@pytest.mark.parametrize("ssh", [None, {"rotationPeriod": "1s"}])
def test_an_order_where_ssh_is_off(ssh: Any) -> None:
    async def scenario() -> None:
        world = World(ssh=ssh)
        process = await Process.started(world)
        order(world, "start-ssh-ca-rotation")
        await process.until_it_waits()
        assert "not available" in rejected(process)
        assert ordered(world) == ""
        assert (world.found(USER), world.found(HOST)) == ({}, {})

    run(scenario())


def test_other_orders_are_left_alone() -> None:
    async def scenario() -> None:
        for operation in ("start-ca-rotation", "rotate-everything"):
            world = World(ssh=SSH)
            process = await Process.started(world)
            order(world, operation)
            await process.until_it_waits()
            assert ordered(world) == operation

    run(scenario())


def test_gardeners_name() -> None:
    async def scenario() -> None:
        world = World(ssh=SSH)
        process = await Process.started(world)
        await process.until_it_waits()
        order(world, "rotate-ssh-keypair")
        await process.until_it_waits()
        assert phases(process)[0] in ("Preparing", "Prepared")

    run(scenario())


@pytest.mark.parametrize(
    ("changes", "warned"),
    [
        ([[0], [1]], True),
        ([[0], [0, 1], [1]], False),
        ([[0, 1], [1, 2]], False),
        ([[0], []], False),
        ([[], [0]], False),
    ],
)
def test_break_glass_keys_rotate_by_generation(changes: list[list[int]], warned: bool) -> None:
    """The policy lists the old and the new one for a while; where it does not, an Event says so."""

    async def scenario() -> None:
        keys = [new_line() for _ in range(3)]
        world = World(ssh={})
        process = await Process.started(world)
        for listed in changes:
            world.choose({"breakGlass": {"publicKeys": [{"key": keys[number]} for number in listed]}})
            await process.until_it_waits()
        assert ("BreakGlassKeysReplaced" in [reason for _, reason, _ in process.told]) is warned

    run(scenario())


def test_a_rotation_replaces_no_break_glass_key() -> None:
    async def scenario() -> None:
        world, process, _ = await prepared("a")
        order(world, "revoke-ssh-user-ca")
        await process.until_it_waits()
        assert "BreakGlassKeysReplaced" not in [reason for _, reason, _ in process.told]

    run(scenario())


# Moves and backups


def test_a_move_in_the_middle() -> None:
    """The Secrets, as ``clusterctl move`` creates them again, and the controller key are all that it needs."""

    async def scenario() -> None:
        world, process, fleet = await started("a")
        shown = process.reconciler.status
        target = World(ssh=SSH)
        target.now, target.reports = world.now, world.reports
        for path in (USER, HOST):
            found = world.found(path)
            metadata = {name: found["metadata"][name] for name in ("name", "namespace", "labels", "annotations")}
            target.api.put(path, {**found, "metadata": metadata})
        process.stop()
        moved = await Process.started(target)
        await moved.until_it_waits()
        assert moved.reconciler.status == {**shown, "rotation": moved.reconciler.status["rotation"]}
        fleet.process = moved
        await attested(moved, fleet)
        assert phases(moved)[0] == "Prepared"

    run(scenario())


@pytest.mark.parametrize("which", [(USER, HOST), (USER,), (HOST,)], ids=["both", "user", "host"])
@pytest.mark.parametrize("taken", ["before", "started", "prepared", "completing"])
def test_a_restored_backup(taken: str, which: tuple[str, ...]) -> None:
    """After a rotation and a revocation, Secrets are restored from a backup of any moment: in the end, every node
    trusts what signs, and nothing else.
    """

    async def scenario() -> None:
        world = World(ssh=SSH)
        process = await Process.started(world)
        await process.until_it_waits()
        fleet = Fleet(process, "a", "b")
        await attested(process, fleet)
        backup = {}

        def back_up(moment: str) -> None:
            if moment == taken:
                backup.update({path: world.found(path) for path in (USER, HOST)})

        back_up("before")
        world.wait(0.01)
        order(world, "start-ssh-ca-rotation")
        await process.until_it_waits()
        back_up("started")
        await attested(process, fleet)
        back_up("prepared")
        order(world, "complete-ssh-ca-rotation")
        await process.until_it_waits()
        back_up("completing")
        world.wait(1)
        for _ in range(3):
            await attested(process, fleet)
        assert phases(process)[0] == "Completed"
        order(world, "revoke-ssh-user-ca")
        for _ in range(3):
            await attested(process, fleet)
        world.wait(1)

        for path in which:
            world.api.put(path, backup[path])
        for _ in range(10):
            found = process.available()
            await attested(process, fleet)
            world.wait(0.1)
            if process.reconciler.status.get("rotation", {}).get("phase") == "Prepared":
                order(world, "complete-ssh-ca-rotation")
                await process.until_it_waits()
        found = process.available()
        for one in fleet.trusts.values():
            assert one == found.trust
        assert found.user.public_key in found.trust.user_authorities
        shown = process.reconciler.status.get("rotation", {"phase": "Completed"})["phase"]
        assert shown == "Completed"
        assert lines(process) == ([world.public_key(USER)], [world.public_key(HOST)])

    run(scenario())


def test_a_backup_of_the_middle_does_not_pass_its_gate_by_old_reports() -> None:
    """The nodes reported a higher version, of a trust in which the restored new authority is not."""

    async def scenario() -> None:
        world, process, fleet = await started("a")
        backup, both = world.found(USER), lines(process)[0]
        world.wait(1)
        order(world, "rollback-ssh-ca-rotation")
        await process.until_it_waits()
        order(world, "revoke-ssh-host-ca")
        await process.until_it_waits()
        await attested(process, fleet)
        given = fleet.reports["a"].trust_version
        assert given > int(backup["metadata"]["annotations"][TRUST_VERSION_ANNOTATION])
        world.wait(1)
        world.api.put(USER, backup)
        await process.until_it_waits()
        assert process.available().trust.version > given
        assert lines(process)[0] == both
        assert phases(process)[1] == "NodesTrust"
        await attested(process, fleet)
        assert lines(process)[0] == both[::-1]

    run(scenario())


# Orders that change nothing


@pytest.mark.parametrize("gates", ["overlap", "unreachable-nodes"])
def test_a_rollback_skips_no_gate(gates: str) -> None:
    async def scenario() -> None:
        world, process, _ = await prepared("a")
        before = {path: world.found(path) for path in (USER, HOST)}
        order(world, "rollback-ssh-ca-rotation", gates)
        await process.until_it_waits()
        assert "a rollback skips no gate" in rejected(process)
        assert {path: world.found(path) for path in (USER, HOST)} == before

    run(scenario())


def test_what_is_dropped_cannot_be_rolled_back() -> None:
    async def scenario() -> None:
        world, process, fleet = await completing("a")
        world.wait(0.1)
        fleet.attest()
        await process.until_it_waits()
        shown: Any = process.reconciler.status["rotation"]
        assert (shown["user"]["step"], shown["host"]["phase"]) == ("NodesForget", "Completed")
        assert shown["rollbackAvailable"] == "None"
        before = {path: world.found(path) for path in (USER, HOST)}
        order(world, "rollback-ssh-ca-rotation")
        await process.until_it_waits()
        assert "nothing can be rolled back" in rejected(process)
        assert {path: world.found(path) for path in (USER, HOST)} == before

    run(scenario())


@pytest.mark.parametrize("position", [0, 1])
def test_a_break_glass_key_that_is_an_authority_of_a_rotation(position: int) -> None:
    """That of the new one, and that of the old one once it signs no more."""

    async def scenario() -> None:
        world, process, _ = await completing("a")
        for trusted in lines(process):
            world.choose({"breakGlass": {"publicKeys": [{"key": trusted[position]}]}})
            assert (await process.until_it_waits()).startswith("BreakGlassKeyIsAuthority: ")
            assert isinstance(process.of(), NotAvailable)

    run(scenario())


def test_orders_without_end_delay_no_revocation() -> None:
    """A client writes the next order as soon as the last one is taken off the policy."""

    class Another(Interfere):
        async def __call__(self, call: Call, moment: Moment) -> None:
            if call.method == "PATCH" and moment is Moment.AFTER:
                order(world, "rollback-ssh-ca-rotation")

    world = World(ssh=SSH)

    async def scenario() -> None:
        process = await Process.started(world, Another())
        await process.until_it_waits()
        leaked = process.available().user.public_key
        order(world, "revoke-ssh-user-ca")
        for _ in range(6):
            await process.pass_once()
        assert ordered(world) == "rollback-ssh-ca-rotation"
        assert leaked not in process.available().trust.user_authorities

    run(scenario())


def test_an_order_that_another_person_wrote_meanwhile_stays() -> None:
    """The annotation is taken off exactly the version that had the order."""

    class Another(Interfere):
        done = False

        async def __call__(self, call: Call, moment: Moment) -> None:
            if call.method == "PATCH" and moment is Moment.BEFORE and not self.done:
                self.done = True
                order(world, "rollback-ssh-ca-rotation")

    world = World(ssh=SSH)

    async def scenario() -> None:
        process = await Process.started(world, Another())
        await process.until_it_waits()
        world.reports = NotReported("nodes are asleep")
        order(world, "start-ssh-ca-rotation")
        await process.pass_once()
        assert ordered(world) == "rollback-ssh-ca-rotation"
        await process.until_it_waits()
        assert phases(process)[0] == "RolledBack"

    run(scenario())
