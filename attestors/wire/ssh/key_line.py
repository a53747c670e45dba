"""Public keys as text: the strict line ``type base64``, and the files that ``ssh-keygen`` writes."""

from __future__ import annotations

import contextlib
import re
from typing import Final

from attestors.wire.ssh.encoding import from_base64, to_base64
from attestors.wire.ssh.errors import SSHReason, SSHRefused, malformed
from attestors.wire.ssh.keys import MAXIMUM_KEY_BYTES, KeyType, PublicKey, key_type_named, parse_public_key

MAXIMUM_LINE_CHARACTERS: Final = 64 + MAXIMUM_KEY_BYTES * 4 // 3 + 4
MAXIMUM_FILE_BYTES: Final = 16 * 1024
_KEY_TYPES: Final = frozenset(one.value for one in KeyType)
_TYPES: Final = frozenset(name for one in KeyType for name in (one.value, one.certificate_type))
_ADVICE: Final = "write the key as `type base64` and nothing else"
_COMMENT: Final = re.compile(r"[^\x00-\x1f\x7f]{0,1024}")
_LINE_ENDS: Final = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")


def key_line(key: PublicKey) -> str:
    """``type base64``, without a line end."""
    return f"{key.key_type.value} {to_base64(key.blob)}"


def parse_key_line(text: str) -> PublicKey:
    """Parse exactly what :func:`key_line` writes.

    Raises:
        SSHRefused: ``KeyLineHasSeveralLines`` (also for a line end at its end), ``KeyLineHasComment``,
            ``KeyLineHasOptions``, ``KeyLineTypeMismatch``, ``KeyLineMalformed``, ``TooLarge``, or as
            :func:`~attestors.wire.ssh.keys.parse_public_key`.
    """
    if _LINE_ENDS.search(text):
        raise SSHRefused(SSHReason.KEY_LINE_HAS_SEVERAL_LINES, f"the key line holds a line end; {_ADVICE}")
    if len(text) > MAXIMUM_LINE_CHARACTERS:
        raise SSHRefused(SSHReason.TOO_LARGE, f"a key line has at most {MAXIMUM_LINE_CHARACTERS} characters")
    words = text.split(" ")
    if len(words) < 2 or "" in words:
        raise SSHRefused(SSHReason.KEY_LINE_MALFORMED, f"the key line is not two words with one space; {_ADVICE}")
    if words[0] not in _KEY_TYPES and not _KEY_TYPES.isdisjoint(words[1:]):
        raise SSHRefused(SSHReason.KEY_LINE_HAS_OPTIONS, f"options stand before the key; {_ADVICE}")
    stated = key_type_named(words[0].encode("utf-8", "surrogatepass"))
    if len(words) > 2:
        raise SSHRefused(SSHReason.KEY_LINE_HAS_COMMENT, f"a comment stands behind the key; {_ADVICE}")
    key = parse_public_key(from_base64(words[1], "the key line"))
    if key.key_type is not stated:
        raise SSHRefused(
            SSHReason.KEY_LINE_TYPE_MISMATCH,
            f"the line says {stated.value}, and the key inside is of type {key.key_type.value}; copy the whole line",
        )
    return key


def parse_key_file(data: bytes) -> PublicKey:
    """Parse a public key file of ``ssh-keygen``: one key line, perhaps with a comment and a line end.

    Raises:
        SSHRefused: see :func:`parse_key_line`.
    """
    return parse_key_line(" ".join(words_of_file(data, maximum_bytes=MAXIMUM_FILE_BYTES)))


def readable_authorities(data: bytes) -> tuple[PublicKey, ...]:
    """The keys in a file like ``TrustedUserCAKeys`` of sshd, whose lines may end with comments.

    A line that cannot be read opens nothing, and closes nothing: so does sshd read its own file.
    """
    found: list[PublicKey] = []
    for line in data.decode("utf-8", "replace").split("\n"):
        if line.strip() and not line.startswith("#"):
            with contextlib.suppress(SSHRefused):
                found.append(parse_key_line(" ".join(line.split()[:2])))
    return tuple(found)


def words_of_file(data: bytes, *, maximum_bytes: int) -> list[str]:
    """Type and Base64 of a file with one line; a third word and what follows is a comment, and is dropped.

    Raises:
        SSHRefused: ``TooLarge``, ``KeyLineHasSeveralLines``, ``KeyLineMalformed`` or ``Malformed``.
    """
    if len(data) > maximum_bytes:
        raise SSHRefused(SSHReason.TOO_LARGE, f"the file has more than {maximum_bytes} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise malformed("not a public key file: it is not UTF-8") from None
    line = text.removesuffix("\n").removesuffix("\r")
    if "-----BEGIN" in line:
        raise SSHRefused(
            SSHReason.KEY_LINE_MALFORMED, "this is a PEM file, perhaps a private key; give the file that ends in .pub"
        )
    if _LINE_ENDS.search(line):
        raise SSHRefused(SSHReason.KEY_LINE_HAS_SEVERAL_LINES, "the file holds more than one line; give one key")
    words = line.split(" ", 2)
    if words[0] not in _TYPES or len(words) < 3:
        return line.split(" ")
    if _COMMENT.fullmatch(words[2]) is None:
        raise SSHRefused(SSHReason.KEY_LINE_MALFORMED, "the key's comment holds control characters or is too long")
    return words[:2]
