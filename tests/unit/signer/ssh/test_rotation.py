"""A rotation of the SSH authorities, from the order to its end, by the real reconciler."""

from __future__ import annotations

from typing import Any, Final

from attestors.wire.ssh.key_line import key_line
from tests.unit.signer.ssh.world import HOST, USER, Fleet, Process, World, new_line, order, ordered, run

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
    """The user and host authorities that are trusted, without the break-glass key."""
    trust = process.available().trust
    return [key_line(key) for key in trust.user_authorities][:-1], [key_line(key) for key in trust.host_authorities]


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
