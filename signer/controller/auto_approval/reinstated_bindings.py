"""Detects removed bindings that keep being reinstated by GitOps, an addon or another controller.

Each check removes them again, but auto-approval is possible in between, so the condition must not be True.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from signer.model.auto_approval import shown
from signer.model.condition import WAITING_FOR_ATTESTATION, PolicyCondition
from signer.model.decision import printable

REMOVED_GRANT_RETURNS: Final = "RemovedGrantReturns"
"""Reason of AutoApprovalRemoved."""
REMOVALS: Final = 3
"""Removals of one binding after which it counts as reinstated again and again. ``kubeadm upgrade`` does it once."""
QUIET: Final = timedelta(minutes=15)
"""Before the condition can be True again, a binding must have stayed away this long, or twice as long as it ever stayed
away before, whichever is longer.
"""
RESET_AFTER: Final = timedelta(hours=3)
"""If a binding stayed away this long, its count starts again."""
_MAXIMUM_NAMES: Final = 256
_NAMES_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class _Removals:
    """Removals of one binding."""

    uid: str
    """UID of the last removed object. While finalizers hold that object, removing it again does not count."""
    count: int
    first: datetime
    last: datetime
    longest_away: timedelta = timedelta(0)

    def removed_again(self, uid: str, now: datetime) -> _Removals:
        away = now - self.last
        if uid == self.uid:
            return self
        if away >= RESET_AFTER:
            return _Removals(uid, 1, now, now)
        return replace(self, uid=uid, count=self.count + 1, last=now, longest_away=max(self.longest_away, away))

    def returns(self, now: datetime) -> bool:
        return self.count >= REMOVALS and now < self.last + max(QUIET, 2 * self.longest_away)


class ReinstatedBindings:
    """Removals in one cluster since this controller has served it under Enforce."""

    def __init__(self) -> None:
        self._removals: OrderedDict[str, _Removals] = OrderedDict()

    def removed(self, bindings: Mapping[str, str], now: datetime) -> None:
        """A check has removed these bindings, given by name and UID."""
        for name, uid in bindings.items():
            before = self._removals.pop(name, None)
            self._removals[name] = _Removals(uid, 1, now, now) if before is None else before.removed_again(uid, now)
        while len(self._removals) > _MAXIMUM_NAMES:
            self._removals.popitem(last=False)

    def forget(self) -> None:
        """Forget all removals: the cluster is not under Enforce, and the controller restores bindings itself."""
        self._removals.clear()

    def adjusted(self, condition: PolicyCondition, now: datetime) -> PolicyCondition:
        """The condition; while bindings keep being reinstated, neither True nor ``WaitingForAttestation``."""
        reinstated = {name: removals for name, removals in self._removals.items() if removals.returns(now)}
        if not reinstated or condition.met is None:
            return condition
        names = [f"{shown(name)} (since {reinstated[name].first:%Y-%m-%d %H:%M} UTC)" for name in sorted(reinstated)]
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        cause = (
            f"removed bindings keep being reinstated, and auto-approval is possible in between: ClusterRoleBinding "
            f"{', '.join(names[:_NAMES_SHOWN])}{more}; remove it from the tool that applies it"
        )
        if condition.met or condition.reason == WAITING_FOR_ATTESTATION:
            message = printable(f"{cause}; at the last check: {condition.message}")
            return PolicyCondition(condition.type, False, REMOVED_GRANT_RETURNS, message)
        return replace(condition, message=printable(f"{condition.message}; {cause}"))
