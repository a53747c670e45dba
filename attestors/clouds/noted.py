"""What clouds are told and say, as the audit log notes it (:class:`attestors.contract.Auditable`)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from attestors.contract import Denied, NotProvableYet, digest_of


def without_signature(token: str) -> str:
    """A token in JWS Compact Serialization whose signature is replaced by its SHA-256: nobody accepts it any more.

    Replaced as a whole where it has not three parts.
    """
    parts = token.split(".")
    if len(parts) != 3 or not all(parts) or not token.isascii():
        return digest_of(token)
    digest = base64.urlsafe_b64encode(hashlib.sha256(parts[2].encode("ascii")).digest()).rstrip(b"=")
    return f"{parts[0]}.{parts[1]}.{digest.decode('ascii')}"


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
