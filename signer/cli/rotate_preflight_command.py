"""``rotate CLUSTER preflight``: runs the checks, and prints their results."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from signer.cli.output import print_result
from signer.cli.rotate_action import EXIT_NEEDS_ATTENTION, EXIT_WAITS, run_action
from signer.cli.rotate_marks import NO, UNKNOWN, YES, paragraph
from signer.cli.rotate_preflight import WORDS, NotScanned, PreflightFound, Readiness, examine, explanation
from signer.rotation.leftovers import Holder, Scan
from signer.rotation.preflight import Check, Holds, Lacks

_EXIT_CODES: Final[Mapping[Readiness, int]] = {
    Readiness.READY: 0,
    Readiness.NOT_READY: EXIT_NEEDS_ATTENTION,
    Readiness.NOT_KNOWN: EXIT_WAITS,
}
_VERDICTS: Final[Mapping[Readiness, tuple[str, str]]] = {
    Readiness.READY: ("Every check holds: a rotation can be started.", "green"),
    Readiness.NOT_READY: ("A rotation cannot be started yet.", "bold red"),
    Readiness.NOT_KNOWN: ("Nothing is known to be missing, but not all could be read.", "yellow"),
}
_MOST_SHOWN: Final = 30
"""Objects of a list; ``--output json`` has all."""


def run_preflight(options: argparse.Namespace) -> int:
    """Run ``rotate preflight`` with its parsed arguments."""
    found = run_action(options, lambda management, key: examine(management, key, datetime.now(UTC)))
    print_result(options.output, lambda: preflight_as_json(found), lambda console: show_preflight(found, console))
    return _EXIT_CODES[found.readiness]


def show_preflight(found: PreflightFound, console: Console) -> None:
    """Print the checks as text. What does not hold comes whole, with the patch, below them."""
    console.print(Text.assemble("Cluster ", (str(found.cluster), "bold"), "\n"))
    for check in (*found.checks, found.operator):
        detail = explanation(check.result) if isinstance(check.result, Holds) else ""
        _show_line(console, _mark(check), Text.assemble(check.title, (f": {detail}" if detail else "", "dim")))
    for check in (*found.checks, found.operator):
        if not isinstance(check.result, Holds):
            _show_reason(check, console)
    console.print()
    _show_scan(found, console)
    verdict, style = _VERDICTS[found.readiness]
    console.print(Text(verdict, style=style))


def _show_line(console: Console, mark: Text, text: Text) -> None:
    """A mark with its text beside it; in one line where there is no terminal."""
    if not console.is_terminal:
        console.print(Text.assemble(" ", mark, " ", text), soft_wrap=True)
        return
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=2, justify="right")
    grid.add_column(overflow="fold")
    grid.add_row(mark, text)
    console.print(grid)


def _mark(check: Check) -> Text:
    match check.result:
        case Holds():
            return YES
        case Lacks():
            return NO
        case _:
            return UNKNOWN


def _show_reason(check: Check, console: Console) -> None:
    """A command in a reason is a line of its own, and stays one, so that it can be copied."""
    first, *others = explanation(check.result).split("\n")
    console.print()
    console.print(Text.assemble(_mark(check), (f" {check.title}", "bold")), soft_wrap=not console.is_terminal)
    console.print(Text(first), soft_wrap=not console.is_terminal)
    for line in others:
        console.print(Text(line), soft_wrap=True)


def _show_scan(found: PreflightFound, console: Console) -> None:
    if isinstance(found.scan, NotScanned):
        paragraph(console, "Note", f"the workload cluster was not searched for CAs: {found.scan.why}")
        return
    old = found.scan.leftovers
    own = tuple(one for one in found.scan.holders if not one.holds_old)
    _show_holders(console, "Hold the present CA, and must be given the new one before you complete", old)
    _show_holders(console, "Hold CAs of their own, which a rotation does not touch", own)
    if found.scan.more:
        paragraph(console, "Note", f"{found.scan.more} more objects hold CAs")
    for kind, why in found.scan.unread.items():
        paragraph(console, "Note", f"{kind}: not readable here: {why}")


def _show_holders(console: Console, heading: str, holders: tuple[Holder, ...]) -> None:
    if not holders:
        return
    console.print(Text(heading, style="bold"))
    for line in _lines(holders):
        console.print(Text(f"  {line}"), soft_wrap=not console.is_terminal)
    console.print()


def _lines(holders: tuple[Holder, ...]) -> Iterator[str]:
    yield from map(str, holders[:_MOST_SHOWN])
    if len(holders) > _MOST_SHOWN:
        yield f"and {len(holders) - _MOST_SHOWN} more"


def preflight_as_json(found: PreflightFound) -> dict[str, Any]:
    """The whole result as JSON. Fields are only ever added."""
    scan = found.scan
    searched: dict[str, Any] = {"holders": None, "moreHolders": 0, "unread": {}}
    if isinstance(scan, Scan):
        holders = [_holder(one) for one in scan.holders]
        searched = {"holders": holders, "moreHolders": scan.more, "unread": dict(scan.unread)}
    return {
        "cluster": str(found.cluster),
        "readiness": found.readiness.value,
        "checks": [_check(one) for one in found.checks],
        "operator": _check(found.operator),
        **searched,
        "notSearched": scan.why if isinstance(scan, NotScanned) else "",
    }


def _check(check: Check) -> dict[str, str]:
    return {"check": check.title, "result": WORDS[type(check.result)], "message": explanation(check.result)}


def _holder(one: Holder) -> dict[str, Any]:
    return {"kind": one.kind, "namespace": one.namespace, "name": one.name, "holdsPresentCA": one.holds_old}
