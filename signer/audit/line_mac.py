"""The MAC of a line: a seal over the line without it, with a subkey of the controller key, as the line's last field.

A line names the line before it by its digest, so a MAC also vouches for every line before it in its chain. The lines
before the first MAC of a process, such as its start line, thus need none of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from signer.model.seal import Authentic, Seals, Unauthentic

_FIELD: Final = "mac"
_LAST_FIELD: Final = re.compile(rb',"mac":"(v2\.[0-9a-f]{16}\.[0-9a-f]{64})"\}')
_BYTES: Final = len(',"mac":"v2.."}') + 16 + 64


@dataclass(frozen=True, slots=True)
class NoKeyYet:
    """The controller key is not available: lines get no MAC, and the next line with one vouches for them."""


LineSeals: TypeAlias = Seals | NoKeyYet


@dataclass(frozen=True, slots=True)
class LineMac:
    """The MAC that a line has. It is not verified."""

    seal: str
    content: bytes
    """The line without the MAC."""

    def verify(self, seals: Seals) -> Authentic | Unauthentic:
        """Whether the controller wrote exactly that line."""
        return seals.verify(self.seal, lambda: self.content.decode("utf-8"))


@dataclass(frozen=True, slots=True)
class NoMac:
    """The line has no MAC."""


class MalformedMac(ValueError):
    """The line has a field for a MAC that is none, or that is not the last one."""


def with_mac(line: bytes, seals: LineSeals) -> bytes:
    """The line with its MAC. ``line`` is a JSON object that is not empty."""
    if isinstance(seals, NoKeyYet):
        return line
    seal = seals.seal(line.decode("utf-8"))
    return b'%b,"%b":"%b"}' % (line[:-1], _FIELD.encode(), seal.encode("ascii"))


def take_mac(line: bytes, content: dict[str, Any]) -> LineMac | NoMac:
    """The MAC of a line; removes it from ``content``, the parsed line.

    Raises:
        MalformedMac: it has another form or place than :func:`with_mac` gives it.
    """
    if _FIELD not in content:
        return NoMac()
    seal = content.pop(_FIELD)
    found = _LAST_FIELD.fullmatch(line, max(0, len(line) - _BYTES))
    if found is None or seal != found[1].decode("ascii"):
        raise MalformedMac
    return LineMac(seal, line[: found.start()] + b"}")
