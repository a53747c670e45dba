"""What this node keeps about its trust: the controller's pinned keys, and the state of the last change of CAs.

The state is written before each step that it announces, so that a crash leaves enough to finish or to undo the step.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar

from attestors.wire.names import Purpose
from attestors.wire.statement import (
    ClusterIdentity,
    ControllerPublicKeys,
    MalformedStatement,
    NotPinned,
    PinnedController,
)
from authenticator.model.pair import Pair

_FORMAT: Final = 1
MAXIMUM_LINEAGE: Final = 64

Pin: TypeAlias = PinnedController | NotPinned
_Read = TypeVar("_Read")


class UnreadableTrust(ValueError):
    """The file does not have this program's format."""


class Direction(enum.Enum):
    """Where a change that has begun is to end."""

    FORWARD = "forward"
    """With the new CAs."""
    BACK = "back"
    """With the former ones."""


class Phase(enum.Enum):
    """How far a change is in its direction."""

    WRITING = "writing"
    """The files may have either content."""
    RESTARTING = "restarting"
    """The files are written. The kubelet is to be restarted, or is being restarted."""


@dataclass(frozen=True, slots=True)
class FormerFile:
    """The content of a CA file before the change."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class Change:
    """A change of CAs that has begun and not ended."""

    bundle: str
    """The new content of the files."""
    sequence: int
    former: tuple[FormerFile, ...]
    wait: int
    """Seconds that the kubelet may take in each direction."""
    direction: Direction = Direction.FORWARD
    phase: Phase = Phase.WRITING
    kubelet: str = ""
    """The kubelet's process before the restart."""
    until: int = 0
    """Unix time at which the restart counts as failed."""
    attempts: int = 0
    """How many restarts failed on the way back."""
    reason: str = ""
    """Why it goes back."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Rejection:
    """``TrustRejected``: the published statement is not in force on this node."""

    reason: str
    """A word: of :class:`~attestors.wire.statement.StatementReason`, or of :mod:`authenticator.flow.trust`."""
    message: str
    sequence: int
    at: int
    """Unix time of the first time in a row."""
    failures: int
    until: int
    """Unix time of the next attempt."""


@dataclass(frozen=True, slots=True)
class TrustState:
    """The state of this node's trust."""

    sequence: int = 0
    """Of the last statement in force; 0 for none."""
    highest: int = 0
    """The highest sequence that ever verified. A lower one is never begun."""
    lineage: tuple[str, ...] = ()
    """Hashes of the CAs that this node has trusted: a kubeconfig that names one belongs to the same cluster."""
    superseded: tuple[tuple[Purpose, str], ...] = ()
    """Digests of the pairs that were stored when the CAs changed: they are due for renewal."""
    change: Change | None = None
    rejection: Rejection | None = None

    @property
    def is_managed(self) -> bool:
        """Whether statements determine this node's CAs, and no longer a bootstrap kubeconfig."""
        return self.sequence > 0 or self.change is not None

    def covers(self, hashes: Iterable[str]) -> bool:
        """Whether this node has ever trusted one of those CAs by a statement, or before its first one."""
        return not frozenset(self.lineage).isdisjoint(hashes)

    def is_superseded(self, purpose: Purpose, pair: Pair | None) -> bool:
        """Whether that pair was stored before the CAs changed: its evidence names a former CA."""
        return pair is not None and (purpose, pair_digest(pair)) in self.superseded

    def with_lineage(self, hashes: tuple[str, ...]) -> TrustState:
        """The state with more CAs; the oldest are forgotten."""
        lineage = dict.fromkeys((*self.lineage, *hashes))
        return replace(self, lineage=tuple(lineage)[-MAXIMUM_LINEAGE:])


def pair_digest(pair: Pair) -> str:
    """Identifies a pair by its certificate: SHA-256, in hexadecimal."""
    return hashlib.sha256(pair.certificate.encode("ascii")).hexdigest()


def encode_pin(pin: PinnedController) -> str:
    """The content of the pin's file."""
    document = {
        "format": _FORMAT,
        "cluster": pin.cluster.document(),
        "keys": [base64.b64encode(key).decode("ascii") for key in pin.keys.keys],
        "sequence": pin.sequence,
    }
    return json.dumps(document, indent=1) + "\n"


def decode_pin(text: str) -> PinnedController:
    """Parse the content of the pin's file.

    Raises:
        UnreadableTrust: it does not have the format of :func:`encode_pin`.
    """

    def parse(document: dict[str, Any]) -> PinnedController:
        keys = tuple(base64.b64decode(key, validate=True) for key in document["keys"])
        cluster = ClusterIdentity.parse(document["cluster"])
        return PinnedController(cluster, ControllerPublicKeys(keys), _number(document["sequence"]))

    return _decoded(text, {"cluster", "keys", "sequence"}, parse)


def encode_state(state: TrustState) -> str:
    """The content of the state's file."""
    document: dict[str, Any] = {
        "format": _FORMAT,
        "sequence": state.sequence,
        "highest": state.highest,
        "lineage": list(state.lineage),
        "superseded": {purpose.value: digest for purpose, digest in state.superseded},
        "change": None,
        "rejection": None,
    }
    change, rejection = state.change, state.rejection
    if change is not None:
        document["change"] = {
            "bundle": change.bundle,
            "sequence": change.sequence,
            "former": {former.path: former.content for former in change.former},
            "wait": change.wait,
            "direction": change.direction.value,
            "phase": change.phase.value,
            "kubelet": change.kubelet,
            "until": change.until,
            "attempts": change.attempts,
            "reason": change.reason,
            "message": change.message,
        }
    if rejection is not None:
        document["rejection"] = {
            "reason": rejection.reason,
            "message": rejection.message,
            "sequence": rejection.sequence,
            "at": rejection.at,
            "failures": rejection.failures,
            "until": rejection.until,
        }
    return json.dumps(document, indent=1) + "\n"


def decode_state(text: str) -> TrustState:
    """Parse the content of the state's file.

    Raises:
        UnreadableTrust: it does not have the format of :func:`encode_state`.
    """
    keys = {"sequence", "highest", "lineage", "superseded", "change", "rejection"}
    return _decoded(text, keys, _state)


def _state(document: dict[str, Any]) -> TrustState:
    return TrustState(
        sequence=_number(document["sequence"]),
        highest=_number(document["highest"]),
        lineage=tuple(map(_text, document["lineage"])),
        superseded=tuple((Purpose(name), _text(digest)) for name, digest in document["superseded"].items()),
        change=None if document["change"] is None else _change(document["change"]),
        rejection=None if document["rejection"] is None else _rejection(document["rejection"]),
    )


def _change(values: dict[str, Any]) -> Change:
    return Change(
        bundle=_text(values["bundle"]),
        sequence=_number(values["sequence"]),
        former=tuple(FormerFile(path, _text(content)) for path, content in values["former"].items()),
        wait=_number(values["wait"]),
        direction=Direction(values["direction"]),
        phase=Phase(values["phase"]),
        kubelet=_text(values["kubelet"]),
        until=_number(values["until"]),
        attempts=_number(values["attempts"]),
        reason=_text(values["reason"]),
        message=_text(values["message"]),
    )


def _rejection(values: dict[str, Any]) -> Rejection:
    reason, message = _text(values["reason"]), _text(values["message"])
    sequence, at, failures, until = (_number(values[name]) for name in ("sequence", "at", "failures", "until"))
    return Rejection(reason, message, sequence, at, failures, until)


def _decoded(text: str, keys: set[str], parse: Callable[[dict[str, Any]], _Read]) -> _Read:
    try:
        document = json.loads(text)
        if document.pop("format") != _FORMAT or set(document) != keys:
            raise UnreadableTrust("another format")
        return parse(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error, MalformedStatement):
        raise UnreadableTrust("it does not have this program's format") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError("no number")
    return value
