"""What the scene says at its end, and its exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.markup import escape

from tests.demo.printing import print_indented

LATEST_SECONDS: Final = 5.0
"""A session may outlive its certificate by so much on a busy machine. Without load it is less than two seconds."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing that the scene was to show."""

    name: str
    is_expected: bool
    found: str


def login(code: int, output: str) -> Seen:
    """A person with a certificate logs in; ssh has no question about the host's key."""
    accepted = code == 0 and "authenticity of host" not in output
    return Seen("Login", accepted, "accepted, and ssh asked nothing" if accepted else f"exit code {code}")


def thief(code: int, output: str) -> Seen:
    """A machine has the node's host certificate, and not the node's host key."""
    refused = code == 255 and "Host key verification failed" in output
    return Seen("Stolen certificate", refused, "refused by ssh" if refused else f"exit code {code}")


def session(code: int, late: float, left: Sequence[int]) -> Seen:
    """A session whose certificate has run out ``late`` seconds before it ended; ``left`` are its processes."""
    if left:
        return Seen("Session", False, f"{len(left)} processes go on")
    found = f"ended {late:.1f} s after its certificate, with everything in it"
    return Seen("Session", code != 0 and 0 <= late <= LATEST_SECONDS, found)


def show(
    seen: Sequence[Seen],
    console: Console,
    seconds: float,
    moral: str = "The node proves itself, and access ends in time.",
) -> int:
    """Print it, and ``moral`` if all is as expected; returns the exit code: 0 only then."""
    for one in seen:
        mark = "[green]✔[/green]" if one.is_expected else "[bold red]✘[/bold red]"
        print_indented(console, f"{mark} {one.name:<19} {escape(one.found)}")
    good = bool(seen) and all(one.is_expected for one in seen)
    colour = "green" if good else "red"
    text = moral if good else "NOT as expected."
    print_indented(console, f"\n[bold {colour}]{text}[/bold {colour}] ({seconds:.0f} s)", 0)
    return 0 if good else 1
