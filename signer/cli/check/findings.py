"""What ``check`` found, and how it is printed."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from signer.model.decision import printable


class Result(enum.Enum):
    """The result of one check."""

    FINE = "fine"
    NOT_CHECKED = "not checked"
    """The check was not possible here; the message says why, and what is then not known."""
    NEEDS_ATTENTION = "needs attention"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, for a person."""

    check: str
    result: Result
    message: str
    remedy: str = ""


_STYLES = {Result.FINE: "green", Result.NOT_CHECKED: "yellow", Result.NEEDS_ATTENTION: "red"}


def fine(check: str, message: str) -> Finding:
    """A check that passed."""
    return Finding(check, Result.FINE, message)


def not_checked(check: str, message: str, remedy: str = "") -> Finding:
    """A check that was not possible here."""
    return Finding(check, Result.NOT_CHECKED, message, remedy)


def needs_attention(check: str, message: str, remedy: str) -> Finding:
    """A check that failed."""
    return Finding(check, Result.NEEDS_ATTENTION, message, remedy)


def any_needs_attention(found: Sequence[Finding]) -> bool:
    """Whether a check failed."""
    return any(one.result is Result.NEEDS_ATTENTION for one in found)


def as_json(found: Sequence[Finding]) -> dict[str, Any]:
    """The whole result. Fields are only ever added."""
    return {
        "needsAttention": any_needs_attention(found),
        "checks": [
            {"check": one.check, "result": one.result.value, "message": one.message, "remedy": one.remedy}
            for one in found
        ],
    }


def show(found: Sequence[Finding], console: Console) -> None:
    """Print the result as a table, and below it what to do: long cells are last, so that they widen no other line."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("Check", "Result", "Found"):
        table.add_column(heading, overflow="fold")
    for one in found:
        table.add_row(
            Text(printable(one.check)),
            Text(one.result.value, style=_STYLES[one.result]),
            Text(printable(one.message)),
        )
    console.print(table)
    _show_remedies([one for one in found if one.remedy], console)
    left = sum(one.result is Result.NOT_CHECKED for one in found)
    if any_needs_attention(found):
        return
    if left:
        console.print(Text(f"Nothing that was checked needs attention; not checked: {left}.", style="yellow"))
    else:
        console.print(Text("Nothing needs attention.", style="green"))


def _show_remedies(found: Sequence[Finding], console: Console) -> None:
    if not found:
        return
    console.print(Text("What to do:"))
    for one in found:
        console.print(Text.assemble((printable(one.check), "bold"), f": {printable(one.remedy)}"))
    console.print()
