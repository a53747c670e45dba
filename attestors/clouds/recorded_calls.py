"""Recorded calls of cloud attestors in the audit log (:class:`attestors.contract.Auditable`)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from attestors.contract import AnswerForm, Denied, NotProvableYet, RecordedCalls, digest_of
from attestors.verdict import Ended

T = TypeVar("T")


def without_signature(token: str, *, maximum_characters: int) -> str:
    """A token in JWS Compact Serialization with a digest in place of its signature, which makes it useless.

    It keeps the token's form and length, so a parser rejects it exactly if it rejected the token. A text without three
    parts, or with more than ``maximum_characters``, is replaced as a whole.
    """
    header, *others = token.split(".")
    if len(others) != 2 or len(token) > maximum_characters:
        return digest_of(token)
    return f"{header}.{others[0]}.{_signature_digest(others[1])}"


def _signature_digest(signature: str) -> str:
    """The digest, as canonical base64url exactly if the signature is."""
    digest = hashlib.sha256(signature.encode("utf-8", "surrogatepass"))
    try:
        octets = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    except ValueError:
        octets = b""
    if _base64url(octets) == signature:
        return _base64url(digest.digest()[: len(octets)])
    return f":{digest.hexdigest()}"[: len(signature)]


def _base64url(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode("ascii")


async def ask_recorded(
    recorded_calls: RecordedCalls, question: str, answer: Callable[[], Awaitable[T]], form: AnswerForm[T]
) -> T:
    """Make a recorded call that may also end the verification.

    Raises:
        Ended: the call ended the verification.
    """
    result = await recorded_calls.ask(question, lambda: _or_ended(answer), _form(form))
    if isinstance(result, Ended):
        raise result
    return result


async def _or_ended(answer: Callable[[], Awaitable[T]]) -> T | Ended:
    try:
        return await answer()
    except Ended as ended:
        return ended


def _form(form: AnswerForm[T]) -> AnswerForm[T | Ended]:
    def write(result: T | Ended) -> Any:
        if isinstance(result, Ended):
            return {"ended": write_outcome(result.outcome)}
        return {"said": form.write(result)}

    def read(written: Any) -> T | Ended:
        return Ended(read_outcome(written["ended"])) if "ended" in written else form.read(written["said"])

    return AnswerForm(write, read)


def write_outcome(outcome: Denied | NotProvableYet) -> Mapping[str, Any]:
    """Serialise an outcome that ended the verification."""
    written: dict[str, Any] = {"reason": outcome.reason, "message": outcome.message}
    if isinstance(outcome, NotProvableYet):
        written["retryAfterSeconds"] = int(outcome.retry_after.total_seconds())
    return written


def read_outcome(written: Any) -> Denied | NotProvableYet:
    """Parse a serialised outcome.

    Raises:
        KeyError, TypeError, ValueError: it is malformed.
    """
    reason, message = text_of(written["reason"]), text_of(written["message"])
    if "retryAfterSeconds" not in written:
        return Denied(reason, message)
    return NotProvableYet(reason, message, timedelta(seconds=int(written["retryAfterSeconds"])))


def text_of(value: Any) -> str:
    """Return ``value`` if it is a text.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(value, str):
        raise TypeError("not text")
    return value
