"""The scene of ``make demo-containers``: what it says at its end, and its exit code."""

from __future__ import annotations

import io
import os
from typing import Any, Final

import pytest
from rich.console import Console

from tests.demo.containers import __main__ as scene
from tests.demo.containers.ending import (
    ENDED,
    MORAL,
    PERSON,
    copied,
    forwarded,
    login,
    named,
    other_container,
    revoked,
)
from tests.demo.ssh.ending import Seen, show

POD: Final = "web-664865cc45-gc7mx"
LOGGED_IN: Final = f"uid=1000(app) gid=1000 groups=1000\n{POD}"
REFUSED: Final = "Received disconnect from 127.0.0.1 port 22405:11: no access grant for your key opens this container"
PAGE: Final = b"hello\n"
SECRET: Final = "the vault"


def event(subresource: str, person: str = PERSON) -> dict[str, Any]:
    return {"impersonatedUser": {"username": person}, "objectRef": {"subresource": subresource}}


EVENTS: Final = (event("exec"), event("portforward"))
GOOD: Final = (
    login(0, LOGGED_IN, POD, "1000"),
    copied(0, b"patch", b"patch"),
    forwarded(PAGE, PAGE),
    other_container(255, REFUSED, SECRET),
    named(EVENTS),
    revoked(255, f"node-access-gateway: {ENDED}", left=False),
)


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_all_is_as_expected(console: Console) -> None:
    assert show(GOOD, console, 45.0, MORAL) == 0
    assert "✘" not in printed(console)
    assert MORAL in printed(console)
    assert all(len(line) <= 80 for line in printed(console).splitlines())


@pytest.mark.parametrize(
    "wrong",
    [
        login(255, LOGGED_IN, POD, "1000"),
        login(0, LOGGED_IN, "another-pod", "1000"),
        login(0, LOGGED_IN, POD, "0"),
        copied(1, b"patch", b"patch"),
        copied(0, b"patch", b"pat"),
        forwarded(b"", PAGE),
        other_container(0, SECRET, SECRET),
        other_container(255, f"{SECRET}\n{REFUSED}", SECRET),
        other_container(255, "Connection refused", SECRET),
        other_container(1, REFUSED, SECRET),
        named(()),
        named(EVENTS[:1]),
        named((*EVENTS, event("exec", "kubernetes-admin"))),
        named((*EVENTS, {"objectRef": {"subresource": "exec"}})),
        revoked(255, f"node-access-gateway: {ENDED}", left=True),
        revoked(0, f"node-access-gateway: {ENDED}", left=False),
        revoked(255, "Connection closed", left=False),
    ],
)
def test_anything_that_is_wrong_shows(wrong: Seen, console: Console) -> None:
    assert show([*GOOD, wrong], console, 45.0, MORAL) == 1
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
    assert all(len(line) <= 80 for line in printed(console).splitlines())
