"""What clouds are told and say, as the audit log notes it (:class:`attestors.contract.Auditable`)."""

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
    """A token in JWS Compact Serialization with a digest in place of its signature: nobody accepts it any more.

    It is of the token's own form and no longer: whoever takes it apart refuses it where the token was refused. What has
    not three parts, or more than ``maximum_characters``, is replaced as a whole.
    """
    header, *others = token.split(".")
    if len(others) != 2 or len(token) > maximum_characters:
        return digest_of(token)
    return f"{header}.{others[0]}.{_in_place_of(others[1])}"


def _in_place_of(signature: str) -> str:
    """Canonical base64url for such, and no base64url for what is none."""
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


async def asked(
    recorded_calls: RecordedCalls, question: str, answer: Callable[[], Awaitable[T]], form: AnswerForm[T]
) -> T:
    """Ask, where the answer may also end the judgement.

    Raises:
        Ended: it does.
    """
    said = await recorded_calls.ask(question, lambda: _or_ended(answer), _form(form))
    if isinstance(said, Ended):
        raise said
    return said


async def _or_ended(answer: Callable[[], Awaitable[T]]) -> T | Ended:
    try:
        return await answer()
    except Ended as ended:
        return ended


def _form(form: AnswerForm[T]) -> AnswerForm[T | Ended]:
    def write(said: T | Ended) -> Any:
        if isinstance(said, Ended):
            return {"ended": ending_written(said.outcome)}
        return {"said": form.write(said)}

    def read(written: Any) -> T | Ended:
        return Ended(ending_read(written["ended"])) if "ended" in written else form.read(written["said"])

    return AnswerForm(write, read)


def ending_written(outcome: Denied | NotProvableYet) -> Mapping[str, Any]:
    """An answer that ends the judgement."""
    written: dict[str, Any] = {"reason": outcome.reason, "message": outcome.message}
    if isinstance(outcome, NotProvableYet):
        written["retryAfterSeconds"] = int(outcome.retry_after.total_seconds())
    return written


def ending_read(written: Any) -> Denied | NotProvableYet:
    """Read it back.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    reason, message = text_of(written["reason"]), text_of(written["message"])
    if "retryAfterSeconds" not in written:
        return Denied(reason, message)
    return NotProvableYet(reason, message, timedelta(seconds=int(written["retryAfterSeconds"])))


def text_of(value: Any) -> str:
    """The text.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, str):
        raise TypeError("not text")
    return value
