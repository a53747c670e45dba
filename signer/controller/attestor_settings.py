"""Checks the operator's settings of all attestors at the start, and again while one is broken.

A replica with a broken setting serves all the same, because other attestors and other Clusters do not need it. It is
not ready, so that a rolling update keeps the replicas that work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, NoReturn

from attestors.registry import Registry
from signer.configuration import OperatorAttestor
from signer.decision.operator_attestors import BrokenSettings, broken_attestors

_LOG = logging.getLogger(__name__)
RECHECK_SECONDS: Final = 30.0
"""Files that a setting names may come later, such as those of a mounted ConfigMap."""


class AttestorSettingsCheck:
    """The check of one replica. Once it has passed, it is not repeated: conditions of policies show later faults."""

    def __init__(
        self,
        attestors: Mapping[str, OperatorAttestor],
        registry: Registry,
        *,
        now: Callable[[], datetime],
        found: Callable[[tuple[BrokenSettings, ...]], None],
    ) -> None:
        """``found`` gets what is broken after each check."""
        self._attestors = attestors
        self._registry = registry
        self._now = now
        self._found = found
        self._broken: tuple[BrokenSettings, ...] = ()

    def check(self) -> None:
        """Check all of them once. What is newly broken, and what works again, is logged."""
        before, self._broken = self._broken, broken_attestors(self._attestors, self._registry, self._now())
        for one in self._broken:
            if one not in before:
                _LOG.error(
                    "a setting of an attestor is broken: its requests wait, and this replica is not ready",
                    extra={"provider": one.provider, "flag": "--config", "detail": str(one)},
                )
        if before and not self._broken:
            _LOG.info("the settings of all attestors work", extra={"flag": "--config"})
        self._found(self._broken)

    async def run(self) -> NoReturn:
        """Check again while a setting is broken."""
        while True:
            await asyncio.sleep(RECHECK_SECONDS)
            if self._broken:
                self.check()
