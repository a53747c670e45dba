"""Counts the events of a soak test and collects its problems."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

_FINDINGS: Final = 50
"""The number of findings to keep; the first ones are the most useful."""


@dataclass(slots=True)
class Ledger:
    """Counters for nodes and disruptions, used in one event loop."""

    joins: int = 0
    renewals: int = 0
    serving: int = 0
    challenged: int = 0
    started_again: int = 0
    """Challenges that expired before they were answered, because a clock was stepped."""
    not_yet_valid: int = 0
    """Certificates issued by a controller whose clock was ahead; the node requests another one."""
    copies: int = 0
    impostors_denied: int = 0
    disruptions: Counter[str] = field(default_factory=Counter)
    slowest_seconds: float = 0.0
    """From a node's first attempt to post a request to its certificate, faults included."""
    slowest: str = ""
    waiting: dict[str, float] = field(default_factory=dict)
    """Undecided requests, with the monotonic time of their post."""
    findings: list[str] = field(default_factory=list)
    _joined: defaultdict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    """Set when a node joins, by cluster."""

    def join(self, cluster: str) -> None:
        """Count a join of that cluster."""
        self.joins += 1
        self._joined[cluster].set()

    async def all_join(self, clusters: Iterable[str]) -> None:
        """Wait until a node has joined each of the clusters, counted from now."""
        joined = [self._joined[cluster] for cluster in clusters]
        for one in joined:
            one.clear()
        await asyncio.gather(*(one.wait() for one in joined))

    def found(self, text: str) -> None:
        """Report a problem."""
        if len(self.findings) < _FINDINGS:
            self.findings.append(text)

    @contextlib.contextmanager
    def waits(self, request: str) -> Iterator[None]:
        """Mark the request as undecided until the end of the block."""
        self.waiting[request] = time.monotonic()
        yield
        del self.waiting[request]  # a cancelled wait leaves it marked

    def took(self, request: str, seconds: float) -> None:
        """Record how long an honest request took to its certificate."""
        if seconds > self.slowest_seconds:
            self.slowest_seconds, self.slowest = seconds, request

    @property
    def progress(self) -> str:
        """The counters in one line."""
        return (
            f"{self.joins} joins, {self.renewals} renewals, {self.serving} serving, {self.impostors_denied} impostors "
            f"denied, {self.disruptions.total()} disruptions, {len(self.waiting)} waiting, "
            f"{len(self.findings)} findings"
        )
