"""An audit log in memory whose lines are replayed, with the scenarios of other tests as examples."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from attestors.registry import Registry
from signer.audit.access_line import EndLine, GrantsSoFar, IssuanceLine, read_end_line, read_issuance_line
from signer.audit.canary_line import CanaryLine, read_canary_line
from signer.audit.comparison import Comparison, Differs, ReproducedInPart, compare
from signer.audit.decision_line import DecisionLine, read_decision_line
from signer.audit.lines import AccessEndedContent, AccessIssuedContent, CanaryContent, Content
from signer.audit.replay_attestors import OperatorSettingsOf, ReplayAttestors


class RememberedAudit:
    """Implements :class:`signer.audit.log.AuditLog`."""

    def __init__(self) -> None:
        self.contents: list[bytes] = []
        self.canaries: list[CanaryLine] = []
        self.access: list[IssuanceLine | EndLine] = []
        """Lines of access grants. Each was verified when it came."""
        self._grants = GrantsSoFar.none()

    async def append(self, content: Content) -> None:
        match content:
            case CanaryContent(encoded):
                self.canaries.append(read_canary_line(json.loads(encoded)))
            case AccessIssuedContent(encoded):
                issued = read_issuance_line(json.loads(encoded))
                self._grants.issued(issued)
                self.access.append(issued)
            case AccessEndedContent(encoded):
                ended = read_end_line(json.loads(encoded))
                self._grants.end(ended)
                self.access.append(ended)
            case _:
                self.contents.append(content)

    @property
    def lines(self) -> list[DecisionLine]:
        return [read_decision_line(json.loads(content)) for content in list(self.contents)]


def replayed(lines: list[DecisionLine], registry: Registry, settings_of: OperatorSettingsOf) -> list[Comparison]:
    """Replay each line with that controller's settings."""
    plugins = ReplayAttestors(registry, settings_of)

    async def compare_all() -> list[Comparison]:
        return [await compare(line, plugins) for line in lines]

    return asyncio.run(compare_all())


def assert_all_replayed(lines: list[DecisionLine], registry: Registry, settings_of: OperatorSettingsOf) -> Counter[str]:
    """Assert that every line replays to its decision; returns the parts taken from the log."""
    taken: Counter[str] = Counter()
    for line, comparison in zip(lines, replayed(lines, registry, settings_of), strict=True):
        assert not isinstance(comparison, Differs), (line.request.name, line.decision, comparison.why)
        if isinstance(comparison, ReproducedInPart):
            taken.update(comparison.taken)
    return taken
