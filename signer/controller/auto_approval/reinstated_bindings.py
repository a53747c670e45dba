"""Bindings that Enforce has removed and that somebody keeps putting back: GitOps, an addon, another controller.

At each look the door is shut again, and in between it is open: what such a look finds must not pass for shut.
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
"""Of one binding, from which on somebody is taken to keep putting it back. ``kubeadm upgrade`` does so once."""
QUIET: Final = timedelta(minutes=15)
"""For so long at least it must have stayed away before the condition says True again; else twice the longest time
that it ever stayed away.
"""
FORGOTTEN: Final = timedelta(hours=3)
"""A binding that stayed away for so long is counted anew."""
_MAXIMUM_NAMES: Final = 256
_NAMES_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class _Removals:
    """How often one binding was removed."""

    uid: str
    """Of the object that was removed last. Its finalizers may hold it: it is removed again, and has not returned."""
    count: int
    first: datetime
    last: datetime
    longest_away: timedelta = timedelta(0)

    def once_more(self, uid: str, now: datetime) -> _Removals:
        away = now - self.last
        if uid == self.uid:
            return self
        if away >= FORGOTTEN:
            return _Removals(uid, 1, now, now)
        return replace(self, uid=uid, count=self.count + 1, last=now, longest_away=max(self.longest_away, away))

    def returns(self, now: datetime) -> bool:
        return self.count >= REMOVALS and now < self.last + max(QUIET, 2 * self.longest_away)


class ReinstatedBindings:
    """What was removed of one cluster since it is under Enforce, and since this controller looks after it."""

    def __init__(self) -> None:
        self._removals: OrderedDict[str, _Removals] = OrderedDict()

    def removed(self, bindings: Mapping[str, str], now: datetime) -> None:
        """A look has removed these bindings: their names and UIDs."""
        for name, uid in bindings.items():
            before = self._removals.pop(name, None)
            self._removals[name] = _Removals(uid, 1, now, now) if before is None else before.once_more(uid, now)
        while len(self._removals) > _MAXIMUM_NAMES:
            self._removals.popitem(last=False)

    def forget(self) -> None:
        """The cluster is not under Enforce: what comes back was restored."""
        self._removals.clear()

    def judged(self, condition: PolicyCondition, now: datetime) -> PolicyCondition:
        """The condition of a look: not True, nor called shut but for renewal, while bindings keep coming back."""
        reinstated = {name: removals for name, removals in self._removals.items() if removals.returns(now)}
        if not reinstated or condition.met is None:
            return condition
        names = [f"{shown(name)} (since {reinstated[name].first:%Y-%m-%d %H:%M} UTC)" for name in sorted(reinstated)]
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        said = (
            f"somebody keeps putting back what is removed, and the door is open in between: ClusterRoleBinding "
            f"{', '.join(names[:_NAMES_SHOWN])}{more}; take it out of what applies it"
        )
        if condition.met or condition.reason == WAITING_FOR_ATTESTATION:
            message = printable(f"{said}; at the last look: {condition.message}")
            return PolicyCondition(condition.type, False, REMOVED_GRANT_RETURNS, message)
        return replace(condition, message=printable(f"{condition.message}; {said}"))
