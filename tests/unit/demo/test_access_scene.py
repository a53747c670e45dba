"""The scene of ``make demo-access``: what it says at its end, and its exit code."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from typing import Final

import pytest
from rich.console import Console

from signer.access.admission.messages import FOREIGN_INGRESS
from signer.access.record import Cause
from tests.demo.access import __main__ as scene
from tests.demo.access.ending import (
    LATEST_SECONDS,
    MORAL,
    Lapse,
    audited,
    foreign_bastion,
    foreign_ingress,
    foreign_name,
    lapsed,
    login,
)
from tests.demo.ssh.ending import Seen, show

NODE: Final = "worker-1"
REFUSED: Final = f'admission webhook "validating.access.cluster.x-k8s.io" denied the request: {FOREIGN_INGRESS}'
BANNER: Final = "SSH-2.0-OpenSSH_9.2"
DENIED: Final = "bastion@192.0.2.2: Permission denied (publickey)."
KEY_ID: Final = "grant/default/worker-1-abc123/0bc40713-71c4-4d85-bec8-517b85051c03/alice"
LOGGED: Final = (
    f"Accepted publickey for root from 192.0.2.2 port 59998 ssh2: ED25519-CERT SHA256:x ID {KEY_ID} (serial 7)"
)
LAPSE: Final = Lapse(Cause.HEARTBEAT_MISSING.value, 0.3)
GOOD: Final = (
    login(0, f"ready: certificates for 23s\n{NODE}", NODE),
    foreign_ingress(1, REFUSED, FOREIGN_INGRESS, changed=False),
    foreign_name("bob", "bob"),
    foreign_name("", "bob"),
    foreign_bastion(BANNER, DENIED),
    lapsed(LAPSE),
    audited("alice", "alice", KEY_ID, LOGGED),
)


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_all_is_as_expected(console: Console) -> None:
    assert show(GOOD, console, 32.0, MORAL) == 0
    assert "✘" not in printed(console)
    assert MORAL in printed(console)
    assert all(len(line) <= 80 for line in printed(console).splitlines())


@pytest.mark.parametrize(
    "wrong",
    [
        login(255, NODE, NODE),
        login(0, "another-host", NODE),
        login(0, f"The authenticity of host 'worker-1' can't be established.\n{NODE}", NODE),
        login(0, f"Change that? [y/N] y\n{NODE}", NODE),
        login(0, f"root@worker-1's password:\n{NODE}", NODE),
        foreign_ingress(0, "patched", FOREIGN_INGRESS, changed=True),
        foreign_ingress(1, REFUSED, FOREIGN_INGRESS, changed=True),
        foreign_ingress(1, "connection refused", FOREIGN_INGRESS, changed=False),
        foreign_ingress(0, REFUSED, FOREIGN_INGRESS, changed=False),
        foreign_name("alice", "bob"),
        foreign_bastion(BANNER, BANNER),
        foreign_bastion(DENIED, DENIED),
        foreign_bastion(BANNER, "Connection refused"),
        lapsed(replace(LAPSE, left=("the session",))),
        lapsed(replace(LAPSE, others=False)),
        lapsed(replace(LAPSE, cause="")),
        lapsed(replace(LAPSE, cause=Cause.DELETED.value)),
        lapsed(replace(LAPSE, late=LATEST_SECONDS + 1)),
        lapsed(replace(LAPSE, late=-1.0)),
        lapsed(replace(LAPSE, session_code=0)),
        audited("alice", "bob", KEY_ID, LOGGED),
        audited("bob", "bob", KEY_ID, LOGGED),
        audited("alice", "alice", KEY_ID, LOGGED.replace("0bc40713", "0bc40714")),
        audited("alice", "alice", KEY_ID, ""),
        audited("alice", "", "", ""),
    ],
)
def test_anything_that_is_wrong_shows(wrong: Seen, console: Console) -> None:
    assert show([*GOOD, wrong], console, 32.0, MORAL) == 1
    assert "✘" in printed(console)
    assert MORAL not in printed(console)
    assert "NOT as expected" in printed(console)


def test_nothing_seen_is_no_success(console: Console) -> None:
    assert show([], console, 1.0, MORAL) == 1


def test_without_real_parts_it_says_how_to_install_them(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert scene.main(console) == 2
    assert "needs root" in printed(console)
    assert "make provision" in printed(console)
