"""``check`` in a pipe: one line for each check, and what to do on lines of its own."""

from __future__ import annotations

import io
import sys

import pytest

from signer.cli.check.findings import Finding, fine, needs_attention, not_checked, show
from signer.cli.output import print_report

LONG = "the controller denies every request, " * 8


def printed(monkeypatch: pytest.MonkeyPatch, *found: Finding) -> list[str]:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    print_report(lambda console: show(found, console))
    return sys.stdout.getvalue().splitlines()  # type: ignore[union-attr,no-any-return]


def test_what_to_do_stands_below(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(
        monkeypatch,
        needs_attention("configuration", LONG, "name the attestors"),
        not_checked("management cluster", "--offline", "leave --offline out"),
        fine("Lease", "nobody leads"),
    )
    assert lines == [
        "",
        " Check                Result            Found",
        f" configuration        needs attention   {LONG.rstrip()}",
        " management cluster   not checked       --offline",
        " Lease                fine              nobody leads",
        "",
        "What to do:",
        "configuration: name the attestors",
        "management cluster: leave --offline out",
        "",
    ]


def test_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(monkeypatch, fine("Lease", "nobody leads"))
    assert lines[-2:] == ["", "Nothing needs attention."]
    assert "What to do:" not in lines


def test_nothing_hostile_reaches_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(monkeypatch, needs_attention("a\x1b[2J", "b\x1b[2J", "c\x1b[2J\nLease: do nothing"))
    assert "\x1b" not in "".join(lines)
    assert [line for line in lines if line.startswith("Lease")] == []
