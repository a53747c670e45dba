"""Checks that a line is consistent: its parts agree, and its decision has exactly the parts of its kind.

:mod:`signer.audit.replay` checks the facts. Without these checks, parts that no rule reads could be changed unseen.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from attestors.contract import Auditable
from attestors.registry import AttestorUnavailable
from signer.audit.decision_inputs import NotReached
from signer.audit.decision_line import WHOLE_REQUEST, DecisionLine, NoEntry
from signer.audit.errors import Inconsistent
from signer.audit.replay_attestors import ReplayAttestors
from signer.model.decision import Approve, ApproveOnly, Challenge, Defer, Deny, Fail, LeftAlone
from signer.model.signing_request import (
    BuiltinServingRequest,
    Malformed,
    MalformedBuiltinServingRequest,
    SigningRequest,
)

_KINDS: Final = frozenset(kind.__name__ for kind in (Approve, ApproveOnly, Challenge, Defer, Deny, Fail, LeftAlone))
_LONGEST: Final = timedelta(hours=1)
"""Maximum time between the snapshot and the line. A decision takes minutes at most, and clocks may be adjusted."""


def require_consistent(line: DecisionLine) -> None:
    """The decision has the parts of its kind, and Cluster and time match the decision inputs.

    Raises:
        Inconsistent: they do not.
    """
    decision, snapshot = line.decision, line.decision_inputs.snapshot
    if decision.kind not in _KINDS:
        raise Inconsistent("the decision is of an unknown kind")
    issued = decision.kind == Approve.__name__
    if issued is isinstance(decision.entry, NoEntry) or issued is not bool(decision.certificate):
        raise Inconsistent("an approval has a journal entry and a certificate, and no other decision has")
    if (decision.kind in (Approve.__name__, ApproveOnly.__name__)) is not bool(decision.node_name):
        raise Inconsistent("an approval names a node, and no other decision does")
    if (decision.kind == LeftAlone.__name__) is not bool(decision.instead_of):
        raise Inconsistent("an ignored request names the decision instead, and no other decision does")
    if isinstance(snapshot, NotReached):
        return
    if not line.cluster == str(snapshot.cluster.key) == str(snapshot.policy.cluster):
        raise Inconsistent(f"the line is about Cluster {line.cluster}, and its inputs are of another")
    if abs(line.time - snapshot.now) > _LONGEST:
        raise Inconsistent("the line's time is not that of the decision")


def require_about(line: DecisionLine, node_name: str) -> None:
    """The decision names no other node than the request.

    Raises:
        Inconsistent: it does.
    """
    if line.decision.node_name not in ("", node_name):
        raise Inconsistent(f"the decision is about node {line.decision.node_name}, the request about {node_name}")


def require_same_request(
    line: DecisionLine,
    parsed: SigningRequest | Malformed | BuiltinServingRequest | MalformedBuiltinServingRequest,
    plugins: ReplayAttestors,
) -> None:
    """The request matches the line's digest. A redacted request cannot match: it must be one that is always redacted.

    Raises:
        Inconsistent: it is not so.
    """
    logged = line.request
    if not logged.redacted:
        if parsed.header.spec_digest != logged.spec_digest:
            raise Inconsistent("the request is not the one whose digest the line has")
    elif isinstance(parsed, SigningRequest):
        if not set(logged.redacted) <= parsed.evidence.fields.keys() or _is_logged_whole(parsed, line, plugins):
            raise Inconsistent("such evidence is never redacted")
    elif logged.redacted != (WHOLE_REQUEST,) or isinstance(parsed, BuiltinServingRequest):
        raise Inconsistent("such a request is redacted as a whole, or not at all")


def _is_logged_whole(request: SigningRequest, line: DecisionLine, plugins: ReplayAttestors) -> bool:
    if not line.decision_inputs.is_for_an_allowed_attestor:
        return False  # the attestor was not called
    try:
        attestor: object = plugins.registry.load(request.header.signer.provider)
    except AttestorUnavailable:
        return False
    return isinstance(attestor, Auditable) and attestor.redacted_fields(request.evidence) is request.evidence.fields
