"""State that must survive a crash: the pending request, and the pause after a refusal.

An :class:`Attempt` is one file, so that one write moves from one state to the next. A request's private key is in it
from before the request is sent until the certificate is stored.
"""

from __future__ import annotations

import enum
import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from attestors.wire.names import SignerName
from authenticator.model.failures import ExitCode

_FORMAT: Final = 1
_NAME_CONTEXT: Final = b"node-attestation CSR name v1"
_NAME_PREFIX: Final = "node-attestation-"
_NAME_CHARACTERS: Final = 40

FIRST_PAUSE_SECONDS: Final = {
    ExitCode.DENIED: 60,
    ExitCode.REFUSED: 10,
    ExitCode.NO_EVIDENCE: 10,
    ExitCode.UNAVAILABLE: 10,
    ExitCode.PENDING: 10,
}
LONGEST_PAUSE_SECONDS: Final = 3600

_LAST_TIME: Final = 253402300799
"""The end of the year 9999, the last time that can be shown."""


class UnreadableAttempt(ValueError):
    """The file holds no attempt in this program's format."""


class Step(enum.Enum):
    """The step of a request in the exchange."""

    FIRST = "first"
    ANSWER = "answer"
    """It answers the controller's challenge."""


class Sent(enum.Enum):
    """Whether the API server has the request."""

    NO = "no"
    MAYBE = "maybe"
    """The answer was never received: after a crash, or a broken connection."""
    YES = "yes"


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a request, for which one key is used. Another subject means another key."""

    provider: str
    node_name: str
    provider_id: str
    ca_cert_hash: str
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A CertificateSigningRequest that is pending."""

    subject: Subject
    key: str = field(repr=False)
    """PEM."""
    step: Step
    evidence_version: str
    tried_versions: tuple[str, ...]
    """Evidence versions with which this key was used, including this one."""
    name: str
    request: str = field(repr=False)
    """``spec.request`` as it was or will be sent: a retry sends the same bytes."""
    sent: Sent = Sent.NO
    uid: str = ""
    asker: str = ""
    """Digest of the configuration with which its evidence was gathered; empty if unknown."""
    trust_version: int = 0
    """Up to this version of the trust in SSH authorities, nodes need not attest anew once it is answered."""


@dataclass(frozen=True, slots=True)
class Pause:
    """After a refusal: its message, and the time (Unix time) until which no request is made."""

    until: int
    failures: int
    exit_code: ExitCode
    message: str
    credential: str
    """Digest of what the request was made with: the configuration, and for a bootstrap credential its digest, for a
    serving certificate the requested names. A request with another digest need not wait."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The content of the file."""

    pending: PendingRequest | None = None
    pause: Pause | None = None


def request_name(key_der: bytes, signer_name: SignerName, step: Step, evidence_version: str) -> str:
    """The CSR's name, which only the holder of the private key can predict.

    It is an HMAC-SHA256 under the private key (PKCS#8 DER). A bootstrap token may create CSRs of any name, so another
    client could take a predictable name first.
    """
    message = bytearray(_NAME_CONTEXT)
    for part in (str(signer_name), step.value, evidence_version):
        encoded = part.encode("utf-8")
        message += len(encoded).to_bytes(8, "big") + encoded
    return _NAME_PREFIX + hmac.digest(key_der, bytes(message), "sha256").hex()[:_NAME_CHARACTERS]


def pause_after(
    before: Pause | None, *, exit_code: ExitCode, message: str, credential: str, now: int, jitter: float
) -> Pause:
    """The pause after one more refusal: twice as long each time, up to an hour.

    ``jitter`` between 0 and 1 adds up to a quarter, which spreads the nodes of a fleet that were refused together.
    """
    failures = before.failures + 1 if before is not None and before.credential == credential else 1
    seconds = _pause_seconds(exit_code, failures)
    return Pause(now + seconds + int(seconds * jitter / 4), failures, exit_code, message, credential)


def _pause_seconds(exit_code: ExitCode, failures: int) -> int:
    return int(min(FIRST_PAUSE_SECONDS.get(exit_code, 60) * 2 ** min(failures - 1, 12), LONGEST_PAUSE_SECONDS))


def pause_in_force(pause: Pause | None, *, credential: str, now: int) -> bool:
    """Whether the pause applies: not for another credential, and not if the clock was ahead when it began."""
    if pause is None or pause.credential != credential:
        return False
    seconds = _pause_seconds(pause.exit_code, pause.failures)
    return now < pause.until <= now + seconds + seconds // 4


def times(count: int) -> str:
    """``once``, or how many times."""
    return "once" if count == 1 else f"{count} times"


def encode_attempt(attempt: Attempt) -> str:
    """The content of the file."""
    document: dict[str, Any] = {"format": _FORMAT}
    if attempt.pending is not None:
        document["pending"] = asdict(attempt.pending) | {
            "step": attempt.pending.step.value,
            "sent": attempt.pending.sent.value,
        }
    if attempt.pause is not None:
        document["pause"] = asdict(attempt.pause)
    return json.dumps(document, indent=1) + "\n"


def decode_attempt(text: str) -> Attempt:
    """Parse the content of the file.

    Raises:
        UnreadableAttempt: it does not have the format of :func:`encode_attempt`.
    """
    try:
        document = json.loads(text)
        if document.pop("format") != _FORMAT or not set(document) <= {"pending", "pause"}:
            raise ValueError("another format")
        return Attempt(
            pending=_pending(document["pending"]) if "pending" in document else None,
            pause=_pause(document["pause"]) if "pause" in document else None,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        # Without the cause, which may quote the key.
        raise UnreadableAttempt("it is not an attempt of this program's format") from None


def _pending(values: Mapping[str, Any]) -> PendingRequest:
    subject = _subject(values["subject"])
    others = ("subject", "step", "sent", "tried_versions", "trust_version")
    rest = {name: value for name, value in values.items() if name not in others}
    trust_version = values.get("trust_version", 0)
    if type(trust_version) is not int or trust_version < 0:
        raise ValueError("not a number")
    if not all(isinstance(value, str) for value in rest.values()):
        raise ValueError("not text")
    return PendingRequest(
        subject=subject,
        step=Step(values["step"]),
        sent=Sent(values["sent"]),
        tried_versions=_texts(values["tried_versions"]),
        trust_version=trust_version,
        **rest,
    )


def _pause(values: Mapping[str, Any]) -> Pause:
    if {field.name for field in fields(Pause)} != set(values):
        raise ValueError("other fields")
    until, failures = values["until"], values["failures"]
    if type(until) is not int or type(failures) is not int or failures < 1 or not 0 <= until <= _LAST_TIME:
        raise ValueError("no numbers")
    message, credential = _texts([values["message"], values["credential"]])
    return Pause(until, failures, ExitCode(values["exit_code"]), message, credential)


def _subject(values: Mapping[str, Any]) -> Subject:
    if {field.name for field in fields(Subject)} != set(values):
        raise ValueError("other fields")
    provider, node_name, provider_id, ca_cert_hash = _texts(
        [values[name] for name in ("provider", "node_name", "provider_id", "ca_cert_hash")]
    )
    names, addresses = _texts(values["dns_names"]), _texts(values["ip_addresses"])
    return Subject(provider, node_name, provider_id, ca_cert_hash, names, addresses)


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError("not a list of texts")
    return tuple(value)
