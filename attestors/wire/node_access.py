"""What the controller tells a node about SSH, as text behind the certificate in ``status.certificate``.

::

    # node-access v1
    host-certificate <type> <base64>     one for each host key of the request
    user-ca <type> <base64>              one or more: in sshd's TrustedUserCAKeys
    break-glass-ca <type> <base64>       any number: there, too, and open plain logins
    host-ca <type> <base64>              one or more: what clients trust
    trust-version <number>

Each line ends with LF, and nothing follows the last one. API servers keep text behind the block byte for byte, and
refuse a second write of the field. PEM readers skip it (RFC 7468 section 5.2). A statement
(:mod:`attestors.wire.statement.explanatory_text`) may stand between the block and this text.

The text is not signed as a whole: the right to write ``status.certificate`` is the right to issue
the node's certificate. The node verifies each host certificate.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from attestors.wire.ssh.certificate import CertificateKind, SignedCertificate, parse_certificate_line
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.key_line import key_line, parse_key_line
from attestors.wire.ssh.keys import HostKey, PublicKey, host_key
from attestors.wire.ssh_host_keys import LARGEST_TRUST_VERSION, MAXIMUM_HOST_KEYS

MAXIMUM_TEXT_BYTES: Final = 16 * 1024
MAXIMUM_USER_AUTHORITIES: Final = 12
"""Both kinds: two online ones during a rotation; eight of a policy, and two generations of a master secret."""
MAXIMUM_HOST_AUTHORITIES: Final = 4
_MARK: Final = b"# node-access "
_FIRST_LINE: Final = b"# node-access v1"
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)

_Value = TypeVar("_Value")


class NodeAccessReason(enum.StrEnum):
    """Why the text is refused. A key or certificate in it may also be refused with an :class:`SSHReason`."""

    TEXT_TOO_LARGE = "TextTooLarge"
    VERSION_UNKNOWN = "VersionUnknown"
    TEXT_MALFORMED = "TextMalformed"
    """Characters other than printable ASCII, or a last line without its end."""
    LINE_UNEXPECTED = "LineUnexpected"
    """An unknown line, or one out of order; also one after the last."""
    LINE_MISSING = "LineMissing"
    LINE_REPEATED = "LineRepeated"
    TOO_MANY_LINES = "TooManyLines"
    TRUST_VERSION_INVALID = "TrustVersionInvalid"
    NOT_A_HOST_CERTIFICATE = "NotAHostCertificate"
    AUTHORITY_FOR_USERS_AND_HOSTS = "AuthorityForUsersAndHosts"
    ONLINE_BREAK_GLASS_AUTHORITY = "OnlineBreakGlassAuthority"


class NodeAccessRefused(ValueError):
    """The text, or what it says, is refused; the message says why and names the line."""

    def __init__(self, reason: NodeAccessReason | SSHReason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class _Keyword(enum.Enum):
    HOST_CERTIFICATE = "host-certificate"
    USER_AUTHORITY = "user-ca"
    BREAK_GLASS_AUTHORITY = "break-glass-ca"
    HOST_AUTHORITY = "host-ca"
    TRUST_VERSION = "trust-version"


@dataclass(frozen=True)  # without slots: it keeps its lines
class Trust:
    """Which authorities count, and the version of that.

    Raises:
        NodeAccessRefused: ``LineMissing``, ``TooManyLines``, ``LineRepeated``, ``AuthorityForUsersAndHosts``,
            ``OnlineBreakGlassAuthority`` or ``TrustVersionInvalid``.
    """

    user_authorities: tuple[PublicKey, ...]
    """The online ones. Their certificates must name the node."""
    break_glass_authorities: tuple[PublicKey, ...]
    """Those for emergencies, whose private keys may be on FIDO tokens. Their certificates open plain logins, too."""
    host_authorities: tuple[HostKey, ...]
    version: int
    """Increases with each change."""

    def __post_init__(self) -> None:
        online = tuple(key.blob for key in self.user_authorities)
        break_glass = tuple(key.blob for key in self.break_glass_authorities)
        hosts = tuple(key.blob for key in self.host_authorities)
        _require_count(_Keyword.USER_AUTHORITY, online, MAXIMUM_USER_AUTHORITIES)
        _require_count(_Keyword.BREAK_GLASS_AUTHORITY, break_glass, MAXIMUM_USER_AUTHORITIES - len(online), minimum=0)
        _require_count(_Keyword.HOST_AUTHORITY, hosts, MAXIMUM_HOST_AUTHORITIES)
        if set(online) & set(break_glass):
            raise NodeAccessRefused(
                NodeAccessReason.ONLINE_BREAK_GLASS_AUTHORITY,
                "one key is there as online CA and as break-glass CA: a thief of the former would open every node",
            )
        if {*online, *break_glass} & set(hosts):
            raise NodeAccessRefused(
                NodeAccessReason.AUTHORITY_FOR_USERS_AND_HOSTS,
                "one key is there as CA of users and as CA of hosts: a thief of either would have both",
            )
        if not 1 <= self.version <= LARGEST_TRUST_VERSION:
            raise _version_invalid()

    @functools.cached_property
    def lines(self) -> tuple[str, ...]:
        """Its part of the text: all nodes of a cluster get the same."""
        return _trust_lines(self)

    @property
    def all_user_authorities(self) -> tuple[PublicKey, ...]:
        """What sshd's TrustedUserCAKeys has."""
        return (*self.user_authorities, *self.break_glass_authorities)


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """The text's content. No signature is verified yet.

    Raises:
        NodeAccessRefused: ``LineMissing``, ``TooManyLines``, ``LineRepeated`` (also: two for one key) or
            ``NotAHostCertificate``.
    """

    host_certificates: tuple[SignedCertificate, ...]
    trust: Trust

    def __post_init__(self) -> None:
        certified = tuple(one.certificate.public_key.blob for one in self.host_certificates)
        _require_count(_Keyword.HOST_CERTIFICATE, certified, MAXIMUM_HOST_KEYS)
        if any(one.certificate.kind is not CertificateKind.HOST for one in self.host_certificates):
            raise NodeAccessRefused(NodeAccessReason.NOT_A_HOST_CERTIFICATE, "a certificate is for a user")


@dataclass(frozen=True, slots=True)
class NoNodeAccess:
    """There is no such text: the controller is older, or SSH is off."""


@dataclass(frozen=True, slots=True)
class NodeAccessText:
    """The text as it came, not parsed."""

    content: bytes = field(repr=False)


Found: TypeAlias = NodeAccessText | NoNodeAccess


def render(access: NodeAccess) -> bytes:
    """The text, to be appended to PEM, or to a statement behind it, that ends with a line end.

    Raises:
        NodeAccessRefused: ``TextTooLarge``.
    """
    text = "".join(f"{line}\n" for line in _lines(access)).encode("ascii")
    if len(text) > MAXIMUM_TEXT_BYTES:
        raise _too_large(len(text))
    return text


def find(certificate: bytes) -> Found:
    """The text in ``status.certificate``: from its first line, of any version, to the end."""
    if certificate.startswith(_MARK):
        return NodeAccessText(certificate)
    start = certificate.find(b"\n" + _MARK)
    return NoNodeAccess() if start < 0 else NodeAccessText(certificate[start + 1 :])


def parse(text: bytes) -> NodeAccess:
    """Parse exactly what :func:`render` writes. No signature is verified.

    Raises:
        NodeAccessRefused: anything else.
    """
    if len(text) > MAXIMUM_TEXT_BYTES:
        raise _too_large(len(text))
    first, _, rest = text.partition(b"\n")
    if first != _FIRST_LINE:
        raise NodeAccessRefused(NodeAccessReason.VERSION_UNKNOWN, f"the first line is not {_FIRST_LINE.decode()!r}")
    if not text.endswith(b"\n") or any(byte != 0x0A and not 0x20 <= byte < 0x7F for byte in text):
        raise NodeAccessRefused(NodeAccessReason.TEXT_MALFORMED, "the text is not lines of printable ASCII with LF")
    lines = _Lines(rest.decode("ascii").split("\n")[:-1])
    certificates = lines.take(_Keyword.HOST_CERTIFICATE, MAXIMUM_HOST_KEYS, parse_certificate_line)
    users = lines.take(_Keyword.USER_AUTHORITY, MAXIMUM_USER_AUTHORITIES, parse_key_line)
    break_glass = lines.take(
        _Keyword.BREAK_GLASS_AUTHORITY, MAXIMUM_USER_AUTHORITIES - len(users), parse_key_line, minimum=0
    )
    hosts = lines.take(_Keyword.HOST_AUTHORITY, MAXIMUM_HOST_AUTHORITIES, lambda line: host_key(parse_key_line(line)))
    (version,) = lines.take(_Keyword.TRUST_VERSION, 1, _version)
    lines.end()
    return NodeAccess(certificates, Trust(users, break_glass, hosts, version))


def _lines(access: NodeAccess) -> Iterator[str]:
    yield _FIRST_LINE.decode("ascii")
    for certificate in access.host_certificates:
        yield f"{_Keyword.HOST_CERTIFICATE.value} {certificate.line}"
    yield from access.trust.lines


def _trust_lines(trust: Trust) -> tuple[str, ...]:
    return (
        *(f"{_Keyword.USER_AUTHORITY.value} {key_line(key)}" for key in trust.user_authorities),
        *(f"{_Keyword.BREAK_GLASS_AUTHORITY.value} {key_line(key)}" for key in trust.break_glass_authorities),
        *(f"{_Keyword.HOST_AUTHORITY.value} {key_line(key)}" for key in trust.host_authorities),
        f"{_Keyword.TRUST_VERSION.value} {trust.version}",
    )


class _Lines:
    """The lines after the first, read in order."""

    __slots__ = ("_lines", "_position")

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._position = 0

    def take(
        self, keyword: _Keyword, maximum: int, read: Callable[[str], _Value], *, minimum: int = 1
    ) -> tuple[_Value, ...]:
        """The values of the next lines with that keyword, between so few and so many."""
        prefix = f"{keyword.value} "
        found: list[_Value] = []
        while self._position < len(self._lines) and self._lines[self._position].startswith(prefix):
            if len(found) == maximum:
                raise _too_many(keyword, maximum)
            try:
                found.append(read(self._lines[self._position].removeprefix(prefix)))
            except SSHRefused as refused:
                raise NodeAccessRefused(refused.reason, f"{self._where}, {keyword.value}: {refused.message}") from None
            self._position += 1
        if len(found) < minimum:
            self._require_end_or(keyword)
        return tuple(found)

    def end(self) -> None:
        """Require that no line is left."""
        if self._position < len(self._lines):
            raise NodeAccessRefused(NodeAccessReason.LINE_UNEXPECTED, f"{self._where} follows the last one")

    def _require_end_or(self, keyword: _Keyword) -> None:
        if self._position == len(self._lines):
            raise _missing(keyword)
        raise NodeAccessRefused(NodeAccessReason.LINE_UNEXPECTED, f"{self._where} does not begin with {keyword.value}")

    @property
    def _where(self) -> str:
        return f"line {self._position + 2}"


def _version(text: str) -> int:
    if _NUMBER.fullmatch(text) is None or int(text) > LARGEST_TRUST_VERSION:
        raise _version_invalid()
    return int(text)


def _require_count(keyword: _Keyword, blobs: tuple[bytes, ...], maximum: int, *, minimum: int = 1) -> None:
    if len(blobs) < minimum:
        raise _missing(keyword)
    if len(blobs) > maximum:
        raise _too_many(keyword, maximum)
    if len(set(blobs)) < len(blobs):
        raise NodeAccessRefused(NodeAccessReason.LINE_REPEATED, f"two lines {keyword.value} are for the same key")


def _missing(keyword: _Keyword) -> NodeAccessRefused:
    return NodeAccessRefused(NodeAccessReason.LINE_MISSING, f"there is no line {keyword.value}")


def _too_many(keyword: _Keyword, maximum: int) -> NodeAccessRefused:
    return NodeAccessRefused(NodeAccessReason.TOO_MANY_LINES, f"more than {maximum} lines {keyword.value}")


def _too_large(length: int) -> NodeAccessRefused:
    return NodeAccessRefused(
        NodeAccessReason.TEXT_TOO_LARGE, f"the text has {length} bytes, more than {MAXIMUM_TEXT_BYTES}"
    )


def _version_invalid() -> NodeAccessRefused:
    return NodeAccessRefused(
        NodeAccessReason.TRUST_VERSION_INVALID, f"a trust version is a number from 1 to {LARGEST_TRUST_VERSION}"
    )
