"""Reads the textual encoding (RFC 7468) of certificates and keys in a cluster's CA Secret, line by line.

Cluster API reads the first block of ``tls.crt`` and of ``tls.key`` and ignores the rest. A lenient loader might find
another certificate than Cluster API and the API server do. So this one is strict about boundaries: explanatory text may
precede a block (RFC 7468 section 2; ``openssl x509 -text`` and ``openssl pkcs12`` write it), only white space may
follow the last one, and nothing else may look like a boundary.
"""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass, field

__all__ = ["PemBlock", "PemError", "PemHeadersError", "encode_block", "read_blocks"]

_BOUNDARY = re.compile(rb"-----(BEGIN|END) ([A-Z0-9]+(?: [A-Z0-9]+)*)-----\Z")
_LINE_LENGTH = 64


class PemError(ValueError):
    """The text is not the expected encoding. The message quotes nothing of it."""


class PemHeadersError(PemError):
    """A block has RFC 1421 headers, as traditional encrypted private keys have."""


@dataclass(frozen=True, slots=True)
class PemBlock:
    """One block."""

    label: str
    """The label after BEGIN, such as ``CERTIFICATE``."""
    content: bytes = field(repr=False)
    """The decoded body, which may be a private key."""


def read_blocks(text: bytes, *, maximum_bytes: int, maximum_blocks: int) -> tuple[PemBlock, ...]:
    """All blocks of ``text``, in order; at least one.

    Raises:
        PemHeadersError: a block has headers.
        PemError: no block or too many, too large, a malformed boundary or body, or text after the last block.
    """
    if len(text) > maximum_bytes:
        raise PemError(f"is larger than {maximum_bytes} bytes")
    blocks: list[PemBlock] = []
    label: bytes | None = None
    body: list[bytes] = []
    text_since_last_block = False
    for raw_line in text.split(b"\n"):
        line = raw_line.rstrip(b" \t\r")  # Go finds no boundary in an indented line
        boundary = _BOUNDARY.match(line)
        if boundary is None:
            if b"-----" in line:
                raise PemError("has a malformed BEGIN or END line")
            if label is not None:
                body.append(line.lstrip(b" \t"))
            elif line:
                text_since_last_block = True
        elif boundary[1] == b"BEGIN":
            if label is not None:
                raise PemError("has a BEGIN line inside a block")
            label, body, text_since_last_block = boundary[2], [], False
        else:
            if label is None or label != boundary[2]:
                raise PemError("has an END line that closes no block of its name")
            if len(blocks) == maximum_blocks:
                raise PemError(f"has more than {maximum_blocks} PEM blocks")
            blocks.append(PemBlock(label=label.decode("ascii"), content=_decode_body(body)))
            label = None
    if label is not None:
        raise PemError("has a block without an END line")
    if not blocks:
        raise PemError("has no PEM block")
    if text_since_last_block:
        raise PemError("has text after the last PEM block")
    return tuple(blocks)


def _decode_body(lines: list[bytes]) -> bytes:
    if any(b":" in line for line in lines):
        raise PemHeadersError("has a PEM block with headers")
    try:
        content = binascii.a2b_base64(b"".join(lines), strict_mode=True)
    except binascii.Error:
        raise PemError("has a PEM block that is not base64") from None
    if not content:
        raise PemError("has an empty PEM block")
    return content


def encode_block(label: str, content: bytes) -> bytes:
    """One block in the layout of Go's ``pem.Encode`` and OpenSSL: 64 characters per line, a line feed at the end."""
    body = binascii.b2a_base64(content, newline=False).decode("ascii")
    lines = [body[start : start + _LINE_LENGTH] for start in range(0, len(body), _LINE_LENGTH)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""]).encode("ascii")
