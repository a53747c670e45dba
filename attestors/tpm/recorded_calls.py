"""The TPM attestor's recorded calls in the audit log (:class:`attestors.contract.Auditable`).

They contain no secrets: no challenge key, and of a challenge's secret only what a quote has already shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from attestors.contract import AnswerForm, AnswerNotRecorded
from attestors.tpm.reader import MalformedStructure
from attestors.tpm.statement import decode_quote
from attestors.tpm.trust import NoAuthorities, Trust

TRUST_QUESTION: Final = "endorsement authorities and deny list"
KEY_QUESTION: Final = "endorsement key is denied"
CHIP_QUESTION: Final = "chip is denied"
CHALLENGE_QUESTION: Final = "challenge"
KEYS_QUESTION: Final = "number of challenge keys"
QUOTE_QUESTION: Final = "quote's challenge"
KEY_IS_KNOWN_QUESTION: Final = "challenge key is known"
_NO_AUTHORITIES: Final = "none"
_NO_MATCH: Final = b""
"""A value that no evidence commits to (:meth:`attestors.wire.binding.Binding.prove`); other bytes may be in a quote."""


def trust_form(fingerprint: Callable[[], str], current: Callable[[], Trust]) -> AnswerForm[Trust]:
    """The authorities' digest, and whether this key is denied. A replay needs the same authorities."""

    def write(trust: Trust) -> Mapping[str, Any]:
        return {"authorities": _digest(trust), "denied": fingerprint() in trust.denied}

    def read(written: Any) -> Trust:
        denied = frozenset({fingerprint()}) if written["denied"] is True else frozenset()
        if written["authorities"] == _NO_AUTHORITIES:
            return Trust(NoAuthorities(), denied)
        configured = current()
        if _digest(configured) != written["authorities"]:
            raise AnswerNotRecorded("the endorsement authorities were others than those of --config")
        return Trust(configured.authorities, denied)

    return AnswerForm(write, read)


def _digest(trust: Trust) -> str:
    return _NO_AUTHORITIES if isinstance(trust.authorities, NoAuthorities) else trust.authorities.digest


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value


CHALLENGE: Final[AnswerForm[str]] = AnswerForm(str, _text)
"""Recorded in clear: the challenge is in a public annotation of the request."""


def _keys(number: Any) -> tuple[bytes, ...]:
    if type(number) is not int or not 0 <= number <= 2:
        raise ValueError("not a number of keys")
    return (b"",) * number


CHALLENGE_KEYS: Final[AnswerForm[tuple[bytes, ...]]] = AnswerForm(len, _keys)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("not true or false")
    return value


FLAG: Final[AnswerForm[bool]] = AnswerForm(bool, _flag)


def secret_form(quote: bytes) -> AnswerForm[bytes]:
    """Whether the quote covers the secret of a challenge: the expected value is recorded only if the quote holds it.

    The expected value of a wrong quote is not recorded: a key outside any TPM could answer the challenge with it.
    """

    def shown() -> bytes:
        try:
            return decode_quote(quote).extra_data
        except MalformedStructure:
            return b""

    def write(expected: bytes) -> bool:
        return expected == shown()

    def read(matches: Any) -> bytes:
        return shown() if matches is True else _NO_MATCH

    return AnswerForm(write, read)
