"""The chain: each line has the digest of the line before it, across files too.

The chain reveals a line that was changed, removed, inserted or moved, unless all later lines were rewritten too. A
writer of the file could do that; the MACs of the lines (:mod:`signer.audit.line_mac`) reveal it. A truncated end is
revealed by the published head (:mod:`signer.model.audit_head`).
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

from signer.audit.line_mac import LineMac, MalformedMac, NoMac, take_mac
from signer.model.program_version import program_version

VERSION: Final = "audit.attestation.cluster.x-k8s.io/v1"
START: Final = "Start"
DECISION: Final = "Decision"
CANARY: Final = "Canary"
ACCESS_ISSUED: Final = "AccessIssued"
ACCESS_ENDED: Final = "AccessEnded"
_KINDS: Final = (START, DECISION, CANARY, ACCESS_ISSUED, ACCESS_ENDED)
NOTHING_BEFORE: Final = "sha256:" + "0" * 64
MAXIMUM_LINE_BYTES: Final = 1024 * 1024

_HEADER: Final = ("version", "kind", "chain", "sequence", "previous")
_CHAIN: Final = re.compile(r"[0-9a-f]{32}")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_MAXIMUM_SEQUENCE: Final = 2**53
"""The largest integer that every JSON reader represents exactly. A forged file must not stop the controller."""


@dataclass(frozen=True, slots=True)
class Link:
    """The end of a chain, to which the next line refers."""

    chain: str
    """Random identifier, the same in all lines of a chain."""
    sequence: int
    """Number of the last line; -1 before the first."""
    digest: str
    """Digest of the last line."""

    def next_line(self, kind: str, content: bytes) -> bytes:
        """The next line. ``content`` is a JSON object that is not empty."""
        header = json.dumps(
            {
                "version": VERSION,
                "kind": kind,
                "chain": self.chain,
                "sequence": self.sequence + 1,
                "previous": self.digest,
            },
            separators=(",", ":"),
        )
        return header.encode("ascii")[:-1] + b"," + content[1:]

    def after(self, line: bytes) -> Link:
        """The end of the chain after ``line`` is written."""
        return Link(self.chain, self.sequence + 1, digest_of_line(line))


def new_chain() -> Link:
    """The end of a chain without lines."""
    return Link(secrets.token_hex(16), -1, NOTHING_BEFORE)


@dataclass(frozen=True, slots=True)
class ChainedLine:
    """A well-formed line. Its place in the chain is not verified."""

    kind: str
    chain: str
    sequence: int
    previous: str
    content: Mapping[str, Any]
    digest: str
    mac: LineMac | NoMac = field(default_factory=NoMac)

    @property
    def link(self) -> Link:
        """The end of the chain after this line."""
        return Link(self.chain, self.sequence, self.digest)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A malformed line."""

    why: str
    digest: str
    ended: bool
    """Whether it ends with a line feed. A line that a crash truncated does not."""


AnyLine: TypeAlias = ChainedLine | Unreadable


def digest_of_line(line: bytes) -> str:
    """Digest of a line without its line feed."""
    return "sha256:" + hashlib.sha256(line).hexdigest()


def start_content(previous_torn: str) -> bytes:
    """The content of a start line. ``previous_torn`` is the digest of a truncated line before it, or empty.

    Each file begins with a start line, and each process writes one before its lines. ``program`` is the version that
    writes the following lines.
    """
    content = {"time": datetime.now(UTC).isoformat(), "torn": previous_torn, "program": program_version()}
    return json.dumps(content, separators=(",", ":")).encode()


def read_lines(path: Path) -> Iterator[AnyLine]:
    """The lines of a file. Longer lines than :data:`MAXIMUM_LINE_BYTES` count as unreadable.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        yield from lines_of(file)


def lines_of(file: BinaryIO) -> Iterator[AnyLine]:
    """The lines of an open file from its present position on, as :func:`read_lines`."""
    while line := file.readline(MAXIMUM_LINE_BYTES + 1):
        if line.endswith(b"\n"):
            yield read_line(line[:-1])
        elif len(line) <= MAXIMUM_LINE_BYTES:
            found = read_line(line)
            yield Unreadable("is cut off", found.digest, ended=False) if isinstance(found, Unreadable) else found
        else:
            yield _too_long(line, file)


def _too_long(begun: bytes, file: BinaryIO) -> Unreadable:
    hashed = hashlib.sha256(begun)
    rest = begun
    while (rest := file.readline(MAXIMUM_LINE_BYTES)) and not rest.endswith(b"\n"):
        hashed.update(rest)
    hashed.update(rest.removesuffix(b"\n"))
    return Unreadable("is too long", "sha256:" + hashed.hexdigest(), ended=rest.endswith(b"\n"))


def read_line(line: bytes) -> AnyLine:
    """Parse a line without its line feed."""
    digest = digest_of_line(line)
    try:
        text = line.decode("utf-8")
        content = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
        if _SURROGATE.search(text):  # it may be of a pair; a lone surrogate can neither be written nor shown
            json.dumps(content, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        return Unreadable("is not JSON", digest, ended=True)
    if not isinstance(content, dict) or tuple(content)[: len(_HEADER)] != _HEADER:
        return Unreadable(f"does not begin with {', '.join(_HEADER)}", digest, ended=True)
    version, kind, chain, sequence, previous = (content.pop(name) for name in _HEADER)
    if version != VERSION:
        return Unreadable("is of an unknown version", digest, ended=True)
    if kind not in _KINDS or not all(isinstance(text, str) for text in (chain, previous)):
        return Unreadable("is of an unknown kind", digest, ended=True)
    if type(sequence) is not int or not 0 <= sequence <= _MAXIMUM_SEQUENCE or _CHAIN.fullmatch(chain) is None:
        return Unreadable("has no valid place in a chain", digest, ended=True)
    try:
        mac = take_mac(line, content)
    except MalformedMac:
        return Unreadable("has a malformed MAC", digest, ended=True)
    if kind == START and not _is_start(content):
        return Unreadable("is not a valid start line", digest, ended=True)
    return ChainedLine(kind, chain, sequence, previous, content, digest, mac)


def _is_start(content: Mapping[str, Any]) -> bool:
    return content.keys() == {"time", "torn", "program"} and all(isinstance(text, str) for text in content.values())


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is repeated")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
