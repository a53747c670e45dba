"""The scene of ``make demo-ssh``: what it says at its end, and its exit code."""

from __future__ import annotations

import io
import os

import pytest
from rich.console import Console

from tests.demo.ssh import __main__ as scene
from tests.demo.ssh.ending import LATEST_SECONDS, Seen, login, session, show, thief

VERIFIED = "Host key verification failed."


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_all_is_as_expected(console: Console) -> None:
    assert show([login(0, "worker-1"), thief(255, VERIFIED), session(255, 0.4, [])], console, 20.0) == 0
    assert "✘" not in printed(console)
    assert all(len(line) <= 80 for line in printed(console).splitlines())


@pytest.mark.parametrize(
    "wrong",
    [
        login(255, ""),
        login(0, "The authenticity of host 'worker-1' can't be established."),
        thief(0, ""),
        thief(255, "Permission denied (publickey)."),
        session(0, 0.4, []),
        session(255, LATEST_SECONDS + 1, []),
        session(255, -1.0, []),
        session(255, 0.4, [4711]),
    ],
)
def test_anything_that_is_wrong_shows(wrong: Seen, console: Console) -> None:
    assert show([login(0, ""), wrong], console, 20.0) == 1
    assert "✘" in printed(console)
    assert "NOT as expected" in printed(console)


def test_nothing_seen_is_no_success(console: Console) -> None:
    assert show([], console, 1.0) == 1


def test_the_end_of_a_certificate_is_read_from_the_program() -> None:
    said = "certificate 7, key id ssh-sign/root, for alice@worker-1, until 2026-11-27 11:59:28 UTC\n"
    assert scene._end_of_certificate(said) == 1795780768.0


def test_without_real_parts_it_says_how_to_install_them(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert scene.main(console) == 2
    assert "needs root" in printed(console)
    assert "make provision" in printed(console)
