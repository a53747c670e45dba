"""Other ways into a node, from what was read on it."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authenticator.model.other_ways_in import (
    KeyFile,
    ListeningSocket,
    NodeFacts,
    Process,
    key_count,
    listening_sockets,
    other_ways_in,
)

HEADER: Final = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
REST: Final = "00000000:00000000 00:00000000 00000000     0        0"
IPV4: Final = f"   0: 00000000:0016 00000000:0000 0A {REST} 635 1 00000000dfb1f0dc 100 0 0 10 0\n"
IPV6: Final = f"  12: {'0' * 32}:08AE {'0' * 32}:0000 0A {REST} 636 1 00000000dfb1f0dc 100 0 0 10 0\n"
ESTABLISHED: Final = f"   1: 0100007F:0016 0100007F:9C40 01 {REST} 637 1 00000000dfb1f0dc 20 4 30 10 -1\n"
STOCK: Final = "0::/system.slice/ssh.service\n"
SOCKETS: Final = (ListeningSocket(22, 635), ListeningSocket(2222, 636))


def ways(*, name: str = "sshd", cgroup: str = STOCK, inode: int = 635) -> tuple[str, ...]:
    return other_ways_in(NodeFacts(SOCKETS, (Process(name, cgroup, frozenset({inode, 99})),)))


def test_the_tables_of_linux() -> None:
    assert listening_sockets(HEADER + IPV4 + ESTABLISHED) == (ListeningSocket(22, 635),)
    assert listening_sockets(HEADER + IPV6) == (ListeningSocket(2222, 636),)


@pytest.mark.parametrize("line", ["", "x", IPV4[:40], IPV4.replace("0016", "00GG"), IPV4.replace("635", "-1")])
def test_other_lines(line: str) -> None:
    assert listening_sockets(HEADER + line) == ()


@pytest.mark.parametrize("name", ["sshd", "dropbear"])
def test_a_stock_server(name: str) -> None:
    assert ways(name=name) == (f"{name} listens on port 22, beside this project's",)


@pytest.mark.parametrize(
    "own",
    [
        "0::/nodeaccess.slice/node-access-ssh@1-127.0.0.1:2222-127.0.0.1:1.service\n",
        "12:pids:/nodeaccess.slice\n0::/\n",
        "0::/system.slice/system-node.slice/node-access-ssh@3.service\n",
    ],
)
def test_the_projects_own(own: str) -> None:
    assert ways(cgroup=own) == ()


def test_programs_that_do_not_listen_for_ssh() -> None:
    assert ways(name="sshd-session") == ()
    assert ways(name="kubelet") == ()
    assert ways(inode=637) == (), "a connection"
    assert other_ways_in(NodeFacts(SOCKETS)) == ()


def test_enabled_units() -> None:
    found = other_ways_in(NodeFacts(enabled_units=("ssh.socket", "ssh.socket")))
    assert found == ("ssh.socket is enabled: a stock sshd beside this project's",)


def test_keys() -> None:
    files = (KeyFile("/root/.ssh/authorized_keys", 1), KeyFile("/home/a/.ssh/authorized_keys", 0), KeyFile("/b", 2))
    assert other_ways_in(NodeFacts(key_files=files)) == (
        "/root/.ssh/authorized_keys has 1 key, for an sshd that takes keys",
        "/b has 2 keys, for an sshd that takes keys",
    )


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("\n  \n# a comment\n  # another\n", 0), ("ssh-ed25519 A\n", 1), ("a\r\n\r\nb", 2), ("  a # b", 1)],
)
def test_lines_with_keys(text: str, count: int) -> None:
    assert key_count(text) == count


def test_what_could_not_be_read_is_named() -> None:
    assert other_ways_in(NodeFacts(unread=("/proc cannot be read: x",))) == ("not known: /proc cannot be read: x",)


def test_it_is_bounded() -> None:
    found = other_ways_in(NodeFacts(key_files=tuple(KeyFile(f"/{number}", 1) for number in range(50))))
    assert len(found) == 21
    assert found[-1] == "and 30 more"


@given(st.text())
def test_any_table_is_read(text: str) -> None:
    listening_sockets(text)
    key_count(text)
