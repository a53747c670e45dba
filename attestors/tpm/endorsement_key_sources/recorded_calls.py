"""The form in which the audit log records a source's answer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from attestors.contract import AnswerForm
from attestors.tpm.endorsement_key_sources.answer import (
    KeyConfirmed,
    KeyContradicted,
    KeySourceAnswer,
    NoInformation,
    SourceName,
    Unclear,
)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value


def _write_answer(answer: KeySourceAnswer) -> Mapping[str, Any]:
    match answer:
        case KeyConfirmed(source):
            return {"said": "Owned", "source": source.value}
        case KeyContradicted(message):
            return {"said": "OwnedByOthers", "message": message}
        case NoInformation(message):
            return {"said": "NotSaid", "message": message}
        case Unclear(message, retry_after):
            return {"said": "Unclear", "message": message, "retryAfterSeconds": int(retry_after.total_seconds())}


def _read_answer(written: Any) -> KeySourceAnswer:
    match written["said"]:
        case "Owned":
            return KeyConfirmed(SourceName(written["source"]))
        case "OwnedByOthers":
            return KeyContradicted(_text(written["message"]))
        case "NotSaid":
            return NoInformation(_text(written["message"]))
        case "Unclear":
            return Unclear(_text(written["message"]), timedelta(seconds=int(written["retryAfterSeconds"])))
    raise ValueError("not an answer of a source")


KEY_SOURCE_ANSWER: Final[AnswerForm[KeySourceAnswer]] = AnswerForm(_write_answer, _read_answer)
