"""What the scene says at its end, and its exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.markup import escape

from tests.demo.printing import print_indented
from tests.demo.rotation.steps import Requests

_MOST_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Server:
    """What one API server answers afterwards, at its own address."""

    name: str
    old_is_refused: bool
    """Clients with certificates of the old CA get 401, and clients that trust the old CA alone refuse the server."""
    new_is_accepted: bool


@dataclass(frozen=True, slots=True)
class Ending:
    """The result of the whole scene."""

    phase: str
    requests: Requests
    servers: Sequence[Server]
    old_key: str
    """``deleted``, or what is there instead."""
    unexpected: Sequence[str] = ()
    """Commands that ended with another exit code than they should."""

    @property
    def exit_code(self) -> int:
        """0 only if all is as it should be."""
        return 0 if all(is_good for is_good, _, _ in self.lines()) else 1

    def lines(self) -> Sequence[tuple[bool, str, str]]:
        """Whether it is as it should be, the name, and what was found."""
        requests, servers = self.requests, self.servers
        refused = [server.name for server in servers if server.old_is_refused]
        accepted = [server.name for server in servers if server.new_is_accepted]
        return (
            (self.phase == "Completed", "Rotation", self.phase),
            (requests.made > 0, "Requests made", str(requests.made)),
            (not requests.failures, "Requests failed", str(len(requests.failures))),
            (bool(servers) and len(refused) == len(servers), "Old CA refused", _of(refused, servers)),
            (bool(servers) and len(accepted) == len(servers), "New CA accepted", _of(accepted, servers)),
            (self.old_key == "deleted", "Old CA's key", self.old_key),
            *((False, "Command", what) for what in self.unexpected),
        )


def _of(names: Sequence[str], servers: Sequence[Server]) -> str:
    return f"at {len(names)} of {len(servers)} API servers"


def show(ending: Ending, console: Console, seconds: float) -> int:
    """Print it; returns the exit code."""
    for is_good, name, found in ending.lines():
        mark = "[green]✔[/green]" if is_good else "[bold red]✘[/bold red]"
        print_indented(console, f"{mark} {name:<16} {escape(found)}")
    if ending.requests.unavailable:
        print_indented(
            console,
            f"[dim]{ending.requests.unavailable} of them met an API server that was just being replaced: it closed the "
            "connection, and refused neither a certificate nor a credential.[/dim]",
            4,
        )
    for failure in ending.requests.failures[:_MOST_SHOWN]:
        print_indented(console, f"[red]{escape(failure)}[/red]", 4)
    if (more := len(ending.requests.failures) - _MOST_SHOWN) > 0:
        print_indented(console, f"[red]and {more} more[/red]", 4)
    good = ending.exit_code == 0
    colour = "green" if good else "red"
    text = "The CA is replaced, and no client noticed." if good else "NOT as expected."
    print_indented(console, f"\n[bold {colour}]{text}[/bold {colour}] ({seconds:.0f} s)", 0)
    return ending.exit_code
