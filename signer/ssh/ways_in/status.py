"""The condition that names other ways in. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from signer.model.condition import ConditionType, PolicyCondition
from signer.model.decision import printable
from signer.ssh.ways_in.findings import WaysIn

NO_OTHER_WAYS_IN_DECLARED: Final = ConditionType("NoOtherWaysInDeclared", lambda policy: False)
"""There only while the policy turns SSH on. It never counts toward Ready."""
NONE_DECLARED: Final = "NoneDeclared"
DECLARED: Final = "Declared"
POSSIBLE: Final = "Possible"
NOT_KNOWN: Final = "NotKnown"
MAXIMUM_SHOWN: Final = 3
"""Of each sort; more are counted. ``node-access preflight`` lists them."""
STOCK_SSHD: Final = "a stock sshd on the nodes"


def condition_of(found: WaysIn) -> PolicyCondition:
    """The condition of the last pass."""
    declared, possible = _some("", found.declared), _some("possible: ", found.possible)
    unread = _some("not known: ", found.unread)
    message = ". ".join(filter(None, (declared, possible, unread)))
    if declared:
        return _condition(False, DECLARED, message)
    if possible:
        return _condition(None, POSSIBLE, message)
    if unread:
        return _condition(None, NOT_KNOWN, message)
    unseen = ", ".join((STOCK_SSHD, *found.unseen))
    return _condition(True, NONE_DECLARED, f"no object that was read declares one; not visible from here: {unseen}")


def not_known(why: str) -> PolicyCondition:
    """The condition while nothing could be read."""
    return _condition(None, NOT_KNOWN, why)


def _condition(met: bool | None, reason: str, message: str) -> PolicyCondition:
    return PolicyCondition(NO_OTHER_WAYS_IN_DECLARED, met, reason, printable(message))


def _some(introduction: str, found: Sequence[object]) -> str:
    """The first few, and how many more; empty without any."""
    named = "; ".join(str(one) for one in found[:MAXIMUM_SHOWN])
    more = f"; and {len(found) - MAXIMUM_SHOWN} more" if len(found) > MAXIMUM_SHOWN else ""
    return f"{introduction}{named}{more}" if found else ""
