"""Values in a kubeconfig, read as client-go reads them.

Other tools write kubeconfigs in forms that nothing but client-go defines. Whatever has one harmless reading is read;
anything else is refused, and the message says what is wrong with it. Messages quote nothing: a value may be a secret.
Which fields count is decided by the readers, on the node and in the controller.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import ipaddress
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

_LINE_ENDS: Final = str.maketrans("", "", "\r\n")
_BASE64_GROUP: Final = 4
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}", re.ASCII)
_BLOCK: Final = re.compile(
    rb"^-----BEGIN ([A-Z0-9 ]+)-----[ \t\r]*\n([A-Za-z0-9+/=\s]+?)-----END \1-----", re.MULTILINE
)
"""A PEM block without headers; what stands around it does not count (Go's ``encoding/pem``, Decode)."""
_CERTIFICATE: Final = b"CERTIFICATE"
_PRIVATE_KEY: Final = b"PRIVATE KEY"
_LINE_CHARACTERS: Final = 64

_MAXIMUM_SERVER_CHARACTERS: Final = 1024
_VISIBLE: Final = re.compile(r"[!-~]+", re.ASCII)
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\.?", re.ASCII)
_MAXIMUM_LABEL_BYTES: Final = 63
"""RFC 1035 section 2.3.4; TLS can neither name nor verify a server with a longer label."""
_PATH_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*/*", re.ASCII)


class UnusableValue(ValueError):
    """A value cannot be used; the message says why and quotes nothing of it. The caller names the field."""


def decode_base64(text: str) -> bytes:
    """The bytes of a field that ends in ``-data``: base64 in one line or several (Go's ``base64.StdEncoding``).

    Raises:
        UnusableValue: it is not base64.
    """
    joined = text.translate(_LINE_ENDS)
    if any(character in " \t" for character in joined):
        raise UnusableValue("has spaces in its base64; a YAML scalar in several lines must begin with |")
    if _BASE64.fullmatch(joined) is None:
        raise UnusableValue("must be base64 (RFC 4648 section 4)")
    if len(joined) % _BASE64_GROUP:
        raise UnusableValue("is base64 that is cut off: its length is wrong")
    return binascii.a2b_base64(joined)


def certificates_in(pem: bytes) -> tuple[bytes, ...]:
    """The DER of each certificate in ``pem``: comments, other blocks, and blocks that are not base64 do not count.

    Whether the DER is a certificate is for the library to say that uses it (Go's ``CertPool.AppendCertsFromPEM``).

    Raises:
        UnusableValue: there is none.
    """
    found = tuple(content for label, content in _blocks(pem) if label == _CERTIFICATE)
    if not found:
        raise UnusableValue("holds no PEM certificate (-----BEGIN CERTIFICATE----- at the beginning of a line)")
    return found


def private_key_in(pem: bytes) -> str:
    """The first private key in ``pem``, as PEM without anything else (Go's ``tls.X509KeyPair``).

    Raises:
        UnusableValue: there is none.
    """
    for label, content in _blocks(pem):
        if label.endswith(_PRIVATE_KEY):
            return pem_text(label.decode("ascii"), content)
    raise UnusableValue("holds no PEM private key")


def pem_text(label: str, content: bytes) -> str:
    """One PEM block, as Go writes it."""
    text = base64.b64encode(content).decode("ascii")
    lines = [text[start : start + _LINE_CHARACTERS] for start in range(0, len(text), _LINE_CHARACTERS)]
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))


def _blocks(pem: bytes) -> Iterator[tuple[bytes, bytes]]:
    for found in _BLOCK.finditer(pem):
        with contextlib.suppress(UnusableValue):
            yield found[1], decode_base64(b"".join(found[2].split()).decode("ascii"))


def server_address(text: str) -> str:
    """The API server's address: ``https://host[:port][/prefix]``, without a trailing slash.

    Raises:
        UnusableValue: it is another address. client-go reads an address without scheme as ``http://``.
    """
    if len(text) > _MAXIMUM_SERVER_CHARACTERS:
        raise UnusableValue(f"is longer than {_MAXIMUM_SERVER_CHARACTERS} characters")
    if _VISIBLE.fullmatch(text) is None:
        raise UnusableValue("must be https://host[:port][/prefix], without white space and in ASCII")
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise UnusableValue("has no scheme, which client-go reads as http://; begin it with https://")
    if scheme.lower() != "https":
        raise UnusableValue("must begin with https://, because the server must prove its identity")
    for character, what in (
        ("@", "a user"),
        ("?", "a query"),
        ("#", "a fragment"),
        ("%", "an escape"),
        ("\\", "a backslash"),
    ):
        if character in rest:
            raise UnusableValue(f"must be https://host[:port][/prefix], and has {what} ({character})")
    try:
        parts = urlsplit(f"https://{rest}")
        port, host = parts.port, parts.hostname
    except ValueError:
        raise UnusableValue("has a malformed host or port; the port is a number up to 65535") from None
    if not host or not is_host(host) or ("[" in parts.netloc) != (":" in host):
        raise UnusableValue("has a malformed host: it must be a name, an IPv4 address, or an IPv6 address in brackets")
    if port == 0 or parts.netloc.endswith(":"):
        raise UnusableValue("has a colon without a port, or port 0")
    if _PATH_PREFIX.fullmatch(parts.path) is None or {".", ".."} & {*parts.path.split("/")}:
        raise UnusableValue("has a malformed path: no part of it may be empty, . or .., or have special characters")
    authority = f"[{host}]" if ":" in host else host
    return f"https://{authority}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"


def is_host(host: str) -> bool:
    """Whether it is a host name, perhaps with the root's dot, or an IP address without a zone."""
    if ":" in host:
        try:
            return ipaddress.IPv6Address(host).scope_id is None
        except ValueError:
            return False
    if _HOST_NAME.fullmatch(host) is None:
        return False
    return all(0 < len(label) <= _MAXIMUM_LABEL_BYTES for label in host.removesuffix(".").split("."))
