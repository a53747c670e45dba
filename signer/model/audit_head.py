"""The published head of an audit log: how far a chain has come, under a seal, in the controller's own namespace.

One ConfigMap holds one head for each chain. A head vouches for its line, and through the chain for every line before
it, also for those whose MAC no key at hand verifies any more. A change of it needs the controller key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from signer.model.fields import format_time, mapping_of, parse_time
from signer.model.seal import Authentic, Fault, Generation, Seals, Unauthentic, joined, key_identifier_of

HEADS_NAME: Final = "node-attestation-audit-heads"
"""Name of the ConfigMap."""
MAXIMUM_HEADS: Final = 1000
"""A log on standard output begins a chain with each process. The oldest heads beyond this number are removed."""
_MAXIMUM_CHARACTERS: Final = 512
_MAXIMUM_SEQUENCE: Final = 2**53
_CHAIN: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_KEYS: Final = frozenset({"sequence", "digest", "time", "seal"})


@dataclass(frozen=True, slots=True)
class Head:
    """The last line of a chain at one moment."""

    chain: str
    sequence: int
    digest: str
    """Of the line, as the next line repeats it."""
    published: datetime
    """Whole seconds."""

    def sealed(self) -> str:
        """The content of its seal."""
        return joined("audit head", self.chain, str(self.sequence), self.digest, format_time(self.published))

    def encode(self, seals: Seals) -> str:
        """The value in the ConfigMap, sealed with the current key."""
        content = {"sequence": self.sequence, "digest": self.digest, "time": format_time(self.published)}
        return json.dumps({**content, "seal": seals.seal(self.sealed())}, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class AuthenticHead:
    """A head that the controller sealed."""

    head: Head
    generation: Generation


@dataclass(frozen=True, slots=True)
class BadHead:
    """A value that the controller did not write so, or sealed with a key that is not in use, or not read yet."""

    why: str
    unknown_key: str = ""
    """The identifier of the key that its seal names, if no key at hand has it."""


KnownHead: TypeAlias = AuthenticHead | BadHead


def read_heads(manifest: Mapping[str, Any], seals: Seals) -> Mapping[str, KnownHead]:
    """The heads in the ConfigMap by chain. Each value counts by itself."""
    data = mapping_of(manifest, "data")
    return {str(chain): _read(str(chain), value, seals) for chain, value in data.items()}


def _read(chain: str, value: Any, seals: Seals) -> KnownHead:
    try:
        head, seal = _parsed(chain, value)
    except (ValueError, RecursionError):
        return BadHead("it is malformed")
    verified = seals.verify(seal, head.sealed)
    match verified:
        case Unauthentic(Fault.UNKNOWN_KEY as fault):
            return BadHead(fault.value, key_identifier_of(seal))
        case Unauthentic(fault):
            return BadHead(fault.value)
        case Authentic(generation):
            return AuthenticHead(head, generation)


def _parsed(chain: str, value: Any) -> tuple[Head, str]:
    if not isinstance(value, str) or len(value) > _MAXIMUM_CHARACTERS or _CHAIN.fullmatch(chain) is None:
        raise ValueError("not the form of a head")
    found = json.loads(value)
    if not isinstance(found, dict) or found.keys() != _KEYS:
        raise ValueError("not the fields of a head")
    sequence, digest, time, seal = (found[key] for key in ("sequence", "digest", "time", "seal"))
    if type(sequence) is not int or not 0 <= sequence <= _MAXIMUM_SEQUENCE:
        raise ValueError("no number of a line")
    if not all(isinstance(text, str) for text in (digest, time, seal)) or _DIGEST.fullmatch(digest) is None:
        raise ValueError("no digest of a line")
    return Head(chain, sequence, digest, parse_time(time)), seal


__all__ = ["HEADS_NAME", "MAXIMUM_HEADS", "AuthenticHead", "BadHead", "Head", "KnownHead", "read_heads"]
