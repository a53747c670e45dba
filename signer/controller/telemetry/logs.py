"""Structured logs: one JSON object per line, or plain text for a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, TextIO

from signer.model.decision import printable

_OWN: Final = ("signer", "attestors")
"""Loggers to which a level below INFO applies."""
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


_CONTEXT: Final[ContextVar[Mapping[str, str]]] = ContextVar("log_context", default=MappingProxyType({}))


@contextlib.contextmanager
def log_context(**fields: str) -> Iterator[None]:
    """Add fields to every line logged within the context, including by attestors and by tasks created within.

    The values may be names that others chose: each line escapes them (:func:`~signer.model.decision.printable`).
    """
    token = _CONTEXT.set({**_CONTEXT.get(), **fields})
    try:
        yield
    finally:
        _CONTEXT.reset(token)


def configure_logging(*, as_json: bool, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Send all logs to ``stream`` (standard error by default).

    A level below INFO applies only to our own loggers: at such levels cloud libraries log whole requests and responses,
    including credentials.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JSONFormatter() if as_json else PlainFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.INFO))
    for name in _OWN:
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(True)


class JSONFormatter(logging.Formatter):
    """``{"time": …, "level": …, "message": …, field: …}``."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line, with its ``extra`` as fields."""
        document: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info is not None and record.exc_info[1] is not None:
            document["exception"] = describe_exception(record.exc_info[1])
        return _encode(document)


_encode: Final = json.JSONEncoder(default=str).encode
"""Like ``json.dumps``, which would create an encoder for each line."""


class PlainFormatter(logging.Formatter):
    """``12:00:00 INFO message key=value``."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line."""
        time = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        fields = " ".join(f"{key}={json.dumps(value, default=str)}" for key, value in _fields(record).items())
        text = f"{time} {record.levelname:7} {printable(record.getMessage())} {fields}".rstrip()
        if record.exc_info is not None and record.exc_info[1] is not None:
            text += f" exception={describe_exception(record.exc_info[1])}"
        return text


def describe_exception(error: BaseException) -> list[str]:
    """Exception type and stack frames, innermost last. The message is omitted: it may quote evidence or a secret."""
    frames = traceback.extract_tb(error.__traceback__)
    return [type(error).__name__, *(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames[-8:])]


def log_loop_fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handler for ``loop.set_exception_handler``; asyncio's own would log the exception's message."""
    error = context.get("exception")
    fault = describe_exception(error) if isinstance(error, BaseException) else []
    logging.getLogger("asyncio").error("a task or callback failed", extra={"exception": fault})


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    own = {key: value for key, value in vars(record).items() if key not in _STANDARD and not key.startswith("_")}
    return {**{key: printable(value) for key, value in _CONTEXT.get().items()}, **own}
