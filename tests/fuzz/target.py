"""What a target is, and what holds of every one of them."""

from __future__ import annotations

import atexit
import enum
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MAXIMUM_MESSAGE_CHARACTERS: Final = 1024
"""No refusal is longer: it goes into logs and conditions."""
_SMALL: Final = 64 * 1024
_CHARACTERS_FOR_EACH_BYTE: Final = 64
"""What is read may be larger than the input (names written out), and not by more than that."""


class NotAnInput(Exception):
    """The bytes are not of the kind that can reach the parser at all: an API server stores no such object."""


class BrokenContract(AssertionError):
    """The parser did what its documentation rules out."""


class Shape(enum.Enum):
    """How inputs are varied."""

    BYTES = "bytes"
    JSON = "json"
    """Values inside the document are changed as well; few changes of bytes leave a document."""


@dataclass(frozen=True, slots=True)
class Target:
    """One parser."""

    name: str
    read: Callable[[bytes], object]
    """Parses, and raises :class:`BrokenContract` where what was accepted is not as it should be."""
    refusals: tuple[type[Exception], ...] = ()
    """What may come out instead of a value; nothing else may."""
    shape: Shape = Shape.BYTES

    def run(self, data: bytes) -> None:
        """Hold the parser to its contract for this input.

        Raises:
            BrokenContract: it does not keep it; any other exception is one that the parser let out.
        """
        try:
            value = self.read(data)
        except NotAnInput:
            return
        except self.refusals as refusal:
            self._check_refusal(refusal)
            return
        shown = repr(value)
        if len(shown) > _SMALL + _CHARACTERS_FOR_EACH_BYTE * len(data):
            raise BrokenContract(f"{len(data)} bytes became a value of {len(shown)} characters")
        if repr(self.read(data)) != shown:
            raise BrokenContract("read twice, the same bytes give two values")

    def _check_refusal(self, refusal: Exception) -> None:
        message = str(refusal)
        if not message:
            raise BrokenContract("a refusal does not say why")
        if len(message) > MAXIMUM_MESSAGE_CHARACTERS:
            raise BrokenContract(f"a refusal of {len(message)} characters")


def require(holds: bool, what: str) -> None:
    """Raise ``BrokenContract`` unless it holds."""
    if not holds:
        raise BrokenContract(what)


def text_of(data: bytes) -> str:
    """Any text, lone surrogates among it: JSON can hold them."""
    return data.decode("utf-8", "surrogateescape")


def unicode_of(data: bytes) -> str:
    """Text as a file or a header brings it; raises ``NotAnInput`` for other bytes."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotAnInput from error


def object_of(data: bytes) -> dict[str, Any]:
    """An object as the JSON of an API server brings it; raises ``NotAnInput`` for other bytes."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotAnInput from error
    if not isinstance(document, dict):
        raise NotAnInput
    return document


_scratch: dict[int, Path] = {}


def scratch() -> Path:
    """A folder for parsers that read files, of this process alone: targets run in processes side by side."""
    found = _scratch.get(os.getpid())
    if found is None:
        found = _scratch[os.getpid()] = Path(tempfile.mkdtemp(prefix="capi-node-attestation-fuzz-"))
        atexit.register(shutil.rmtree, found, ignore_errors=True)
    return found
