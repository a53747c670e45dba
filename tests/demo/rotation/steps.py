"""Prints the steps of a rotation as they are proven, from the lines of ``rotate … status --watch --output json``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape

from tests.demo.printing import print_indented


@dataclass(frozen=True, slots=True)
class Requests:
    """What the clients have met so far."""

    answered: int
    unavailable: int
    """Met an API server that was just being replaced."""
    failures: tuple[str, ...]
    """Refused certificates and refused credentials."""

    @property
    def made(self) -> int:
        """All of them."""
        return self.answered + self.unavailable + len(self.failures)

    def __str__(self) -> str:
        return f"{self.made} requests so far, {len(self.failures)} failed"


class Steps:
    """Prints each step once it is proven, and what is waited for in between, once for each step."""

    def __init__(self, console: Console, requests: Callable[[], Requests], seconds: Callable[[], float]) -> None:
        """``seconds`` counts from the start of the scene."""
        self._console = console
        self._requests = requests
        self._seconds = seconds
        self._proven: set[str] = set()
        self._waited: set[str] = set()
        self.current = ""
        """What it waits for now, in one line; empty before the first line."""

    def take(self, line: str) -> None:
        """The next line. Raises ValueError if it is no JSON object."""
        view: dict[str, Any] = json.loads(line)
        rotation = view.get("rotation")
        if rotation is None:
            return
        for step in rotation["steps"]:
            if step["state"] == "Proven" and step["step"] not in self._proven:
                self._proven.add(step["step"])
                self._print(f"[green]✓[/green] {escape(step['title'])}", self._counted())
        titles = {step["step"]: step["title"] for step in rotation["steps"]}
        step = rotation["step"]
        # The policy's status is written every few seconds, and may be of an earlier step.
        waits = rotation["waitsFor"] if rotation["reason"] == step else ""
        self.current = waits or titles.get(step, step)
        if waits and step not in self._waited and step not in self._proven:
            self._waited.add(step)
            self._print(f"[yellow]→[/yellow] {escape(titles.get(step, step))}", f"waits: {escape(waits)}")

    def _counted(self) -> str:
        return f"after {self._seconds():.0f} s; {self._requests()}"

    def _print(self, line: str, detail: str) -> None:
        print_indented(self._console, line)
        for one in detail.splitlines():
            print_indented(self._console, f"[dim]{one}[/dim]", 4)
