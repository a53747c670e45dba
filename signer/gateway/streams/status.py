"""How a command ended: the Status on channel 3, parsed strictly. Pure.

``cri-streaming`` ``pkg/streaming/remotecommand/exec.go`` writes it, client-go ``tools/remotecommand/v4.go`` reads it.
Exit code 0 has one form only, ``Success``. Whatever else is unexpected is a failure, never an exit code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from signer.model.decision import printable

MAXIMUM_STATUS_BYTES: Final = 64 * 1024
_EXIT_CODE: Final = re.compile(r"[1-9][0-9]{0,2}", re.ASCII)
_MAXIMUM_EXIT_CODE: Final = 255


@dataclass(frozen=True, slots=True)
class Exited:
    """The command ended with this exit code, 0 to 255. A signal shows as 128 and its number."""

    code: int


@dataclass(frozen=True, slots=True)
class Failed:
    """It is not known how the command ended, or it never ran. ``message``: printable ASCII, at most 1024 characters."""

    message: str


CommandResult: TypeAlias = Exited | Failed


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct):
    """The used fields of ``metav1.Status``; the writers leave ``kind`` out."""

    status: str
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_decode: Final = msgspec.json.Decoder(_Status).decode


def parse_status(document: bytes) -> CommandResult:
    """The result that this Status states. It never raises."""
    if len(document) > MAXIMUM_STATUS_BYTES:
        return Failed(f"the server's status of the command is larger than {MAXIMUM_STATUS_BYTES} bytes")
    try:
        status = _decode(document)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return Failed("the server's status of the command is no Kubernetes Status")
    if status.status == "Success":
        if status.reason or status.details is not None:
            return Failed("the server's status of the command contradicts itself")
        return Exited(0)
    if status.status != "Failure":
        return Failed("the server's status of the command is neither Success nor Failure")
    if status.reason == "NonZeroExitCode":
        return _exit_code(status)
    return Failed(printable(status.message or status.reason) or "the server does not say why the command failed")


def _exit_code(status: _Status) -> CommandResult:
    causes = status.details.causes if status.details is not None else None
    codes = [cause.message for cause in causes or () if cause.reason == "ExitCode"]
    if len(codes) != 1 or _EXIT_CODE.fullmatch(codes[0]) is None or int(codes[0]) > _MAXIMUM_EXIT_CODE:
        return Failed("the server's status of the command has no exit code from 1 to 255")
    return Exited(int(codes[0]))
