"""What happened in a soak, and what should not have."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

_FINDINGS: Final = 50
"""So many are told; the first ones say most."""


@dataclass(slots=True)
class Ledger:
    """Counted by nodes and by whoever breaks things, in one event loop."""

    joins: int = 0
    renewals: int = 0
    serving: int = 0
    challenged: int = 0
    started_again: int = 0
    """Challenges that ran out, because a clock was moved, before they were answered."""
    not_yet_valid: int = 0
    """Certificates that a controller whose clock was ahead has issued, and that the node asked for again."""
    copies: int = 0
    impostors_denied: int = 0
    disruptions: Counter[str] = field(default_factory=Counter)
    slowest_seconds: float = 0.0
    """From a node's first attempt to post a request to its certificate, faults included."""
    slowest: str = ""
    waiting: dict[str, float] = field(default_factory=dict)
    """Requests that are not decided, and since when."""
    findings: list[str] = field(default_factory=list)
    _joined: defaultdict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    """Whether somebody has, by cluster."""

    def join(self, cluster: str) -> None:
        """A node has joined that cluster."""
        self.joins += 1
        self._joined[cluster].set()

    async def all_join(self, clusters: Iterable[str]) -> None:
        """Return when a node has joined each of those clusters from now on."""
        joined = [self._joined[cluster] for cluster in clusters]
        for one in joined:
            one.clear()
        await asyncio.gather(*(one.wait() for one in joined))

    def found(self, text: str) -> None:
        """Something that must not be."""
        if len(self.findings) < _FINDINGS:
            self.findings.append(text)

    @contextlib.contextmanager
    def waits(self, request: str) -> Iterator[None]:
        """The request waits until the end of the block."""
        self.waiting[request] = time.monotonic()
        yield
        del self.waiting[request]  # not where the wait was cancelled: it is left waiting

    def took(self, request: str, seconds: float) -> None:
        """An honest request got its certificate."""
        if seconds > self.slowest_seconds:
            self.slowest_seconds, self.slowest = seconds, request

    @property
    def progress(self) -> str:
        """One line."""
        return (
            f"{self.joins} joins, {self.renewals} renewals, {self.serving} serving, {self.impostors_denied} impostors "
            f"denied, {self.disruptions.total()} disruptions, {len(self.waiting)} waiting, {len(self.findings)} found"
        )
