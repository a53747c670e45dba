"""Publishes the head of the audit log in the management cluster: each minute, when a file is full, and at the end."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from signer.audit.chain import Link
from signer.audit.kept_lines import LinesRemoved
from signer.audit.log import AuditLog, GroupedAuditLog
from signer.kube.calls import GetCreatePatch
from signer.model.audit_head import AuthenticHead, BadHead, Head, KnownHead
from signer.model.seal import ControllerKeys
from signer.store.audit_heads import AuditHeads, HeadDiffers, HeadNotPublished, RequireLookedFor

_LOG = logging.getLogger(__name__)
INTERVAL_SECONDS: Final = 60.0


class HeadResult(enum.Enum):
    """The result of one attempt to publish the head."""

    CURRENT = "current"
    """The head is published, or there is none yet."""
    DIFFERS = "differs"
    """The log is not the one whose head is published; a new chain begins."""
    FAILED = "failed"
    """It is not known whether the head is published."""


class AuditHeadPublisher:
    """Publishes how far the log has come.

    A chain from an earlier process is continued only if the log still has the line that was published, and the lines
    after it lead to the end that is continued. Otherwise a new chain begins, and the published head stays: it shows
    what is missing.
    """

    def __init__(
        self,
        log: GroupedAuditLog,
        heads: AuditHeads,
        *,
        now: Callable[[], datetime],
        count: Callable[[HeadResult], None],
    ) -> None:
        """``count`` gets the result of each attempt."""
        self._log = log
        self._count = count
        self._heads = heads
        self._now = now
        self._is_compared = not log.continues_earlier_chain
        """Whether a chain of an earlier process was compared with its published head."""
        self._last: tuple[Link, str] | None = None
        """What was published last, and under which key."""
        self._failing = False
        self._publishing = asyncio.Lock()

    async def run(self) -> None:
        """Publish for ever."""
        while True:
            self._log.file_filled.clear()
            await self.publish()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_SECONDS):
                    await self._log.file_filled.wait()

    async def publish(self) -> None:
        """Publish the head now, if it changed. A failure is logged and counted, and the next call tries again."""
        try:
            async with self._publishing:
                result = await self._publish()
        except (HeadNotPublished, OSError) as error:
            if not self._failing:
                _LOG.warning(
                    "the head of the audit log cannot be published: a cut of the log's end would not be found",
                    extra={"error": str(error)},
                )
            self._failing, result = True, HeadResult.FAILED
        else:
            self._failing = False
        self._count(result)

    async def _publish(self) -> HeadResult:
        compared = HeadResult.CURRENT
        if not self._is_compared:
            compared = await self._compare(self._log.end)
            self._is_compared = True
        end, key = self._log.end, self._heads.key_identifier
        if end.sequence < 0 or (end, key) == self._last or self._log.begins_new_chain:
            return compared
        try:
            await self._heads.publish(Head(end.chain, end.sequence, end.digest, self._now().replace(microsecond=0)))
        except HeadDiffers as error:
            self._begin_new_chain(end, error.published)
            return HeadResult.DIFFERS
        self._last = end, key
        return compared

    async def _compare(self, opened: Link) -> HeadResult:
        """Continue the chain that was found, or begin another.

        Raises:
            HeadNotPublished: its head cannot be read.
            OSError: the log cannot be read.
        """
        published = await self._heads.published(opened.chain)
        if published is None:
            # Lines from before MACs, or another program's. Ours must not vouch for them.
            self._log.begin_new_chain()
            return HeadResult.CURRENT
        if isinstance(published, BadHead):
            return HeadResult.CURRENT  # publishing finds that too, and begins a new chain
        head = published.head
        try:
            await self._log.require_lines(Link(head.chain, head.sequence, head.digest), opened)
        except LinesRemoved:
            self._begin_new_chain(opened, published)
            return HeadResult.DIFFERS
        self._heads.accept(head)
        return HeadResult.CURRENT

    def _begin_new_chain(self, end: Link, published: KnownHead) -> None:
        self._log.begin_new_chain()
        known = f"line {published.head.sequence}" if isinstance(published, AuthenticHead) else published.why
        _LOG.error(
            "the audit log is not the one whose head is published: lines were removed or written anew, or another "
            "program writes it; a new chain begins",
            extra={"chain": end.chain, "sequence": end.sequence, "published": known},
        )


class NoAuditHeads:
    """There is no audit log."""

    async def run(self) -> None:
        """Do nothing for ever."""
        await asyncio.Event().wait()

    async def publish(self) -> None:
        """Do nothing."""


def audit_heads(
    log: AuditLog,
    management: GetCreatePatch,
    namespace: str,
    keys: Callable[[], ControllerKeys],
    require_looked_for: RequireLookedFor,
    now: Callable[[], datetime],
    count: Callable[[HeadResult], None],
) -> AuditHeadPublisher | NoAuditHeads:
    """The publisher of that log's heads. The log's lines get MACs from now on.

    ``keys`` raises Deferred while there are none. ``count`` gets the result of each attempt.
    """
    if not isinstance(log, GroupedAuditLog):
        return NoAuditHeads()
    log.use_keys(keys)
    heads = AuditHeads(management, namespace, keys, require_looked_for)
    return AuditHeadPublisher(log, heads, now=now, count=count)
