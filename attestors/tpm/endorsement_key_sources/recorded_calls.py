"""What a source said, as the audit log notes it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from attestors.contract import AnswerForm
from attestors.tpm.endorsement_key_sources.answer import (
    KeySourceAnswer,
    NotSaid,
    Owned,
    OwnedByOthers,
    SourceName,
    Unclear,
)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value


def _ownership_written(said: KeySourceAnswer) -> Mapping[str, Any]:
    match said:
        case Owned(source):
            return {"said": "Owned", "source": source.value}
        case OwnedByOthers(message) | NotSaid(message):
            return {"said": type(said).__name__, "message": message}
        case Unclear(message, retry_after):
            return {"said": "Unclear", "message": message, "retryAfterSeconds": int(retry_after.total_seconds())}


def _ownership_read(written: Any) -> KeySourceAnswer:
    match written["said"]:
        case "Owned":
            return Owned(SourceName(written["source"]))
        case "OwnedByOthers":
            return OwnedByOthers(_text(written["message"]))
        case "NotSaid":
            return NotSaid(_text(written["message"]))
        case "Unclear":
            return Unclear(_text(written["message"]), timedelta(seconds=int(written["retryAfterSeconds"])))
    raise ValueError("no answer of a source")


OWNERSHIP: Final[AnswerForm[KeySourceAnswer]] = AnswerForm(_ownership_written, _ownership_read)
