"""Critical options and extensions of user certificates (OpenSSH's PROTOCOL.certkeys): closed sets, sorted by name.

sshd refuses a certificate with an unknown critical option, and ignores unknown extensions. Here both are refused.
"""

from __future__ import annotations

import enum
import ipaddress
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from attestors.wire.ssh.encoding import Reader, string
from attestors.wire.ssh.errors import SSHReason, SSHRefused

MAXIMUM_OPTIONS_BYTES: Final = 8 * 1024
MAXIMUM_NETWORKS: Final = 16
MAXIMUM_COMMAND_CHARACTERS: Final = 1024
_MAXIMUM_NAME_BYTES: Final = 64
_COMMAND: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?", re.ASCII)

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Named = TypeVar("Named")


class OptionName(enum.Enum):
    """The names of critical options."""

    FORCE_COMMAND = "force-command"
    SOURCE_ADDRESS = "source-address"
    VERIFY_REQUIRED = "verify-required"


class Extension(enum.Enum):
    """What a certificate permits. Each extension has an empty value."""

    NO_TOUCH_REQUIRED = "no-touch-required"
    PERMIT_X11_FORWARDING = "permit-X11-forwarding"
    PERMIT_AGENT_FORWARDING = "permit-agent-forwarding"
    PERMIT_PORT_FORWARDING = "permit-port-forwarding"
    PERMIT_PTY = "permit-pty"
    PERMIT_USER_RC = "permit-user-rc"


@dataclass(frozen=True, slots=True)
class ForceCommand:
    """sshd runs this command, whatever the client asks for.

    Raises:
        SSHRefused: ``OptionInvalid``: not 1 to 1024 printable ASCII characters, or white space around it.
    """

    command: str

    def __post_init__(self) -> None:
        if len(self.command) > MAXIMUM_COMMAND_CHARACTERS or _COMMAND.fullmatch(self.command) is None:
            raise SSHRefused(
                SSHReason.OPTION_INVALID,
                f"a forced command is 1 to {MAXIMUM_COMMAND_CHARACTERS} printable ASCII characters, no space around it",
            )

    @property
    def name(self) -> OptionName:
        """The option's name."""
        return OptionName.FORCE_COMMAND

    @property
    def value(self) -> bytes:
        """The option's encoded value."""
        return string(self.command.encode("ascii"))


@dataclass(frozen=True, slots=True)
class SourceAddress:
    """The networks from which the certificate counts, as the host sees the connection.

    Raises:
        SSHRefused: ``OptionInvalid``: none, too many, one twice, or one that matches no connection.
    """

    networks: tuple[Network, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.networks) <= MAXIMUM_NETWORKS or len(set(self.networks)) != len(self.networks):
            raise SSHRefused(
                SSHReason.OPTION_INVALID, f"source-address needs 1 to {MAXIMUM_NETWORKS} networks, each once"
            )
        for network in self.networks:
            first = network.network_address
            mapped = isinstance(first, ipaddress.IPv6Address) and first.ipv4_mapped is not None
            if mapped or "%" in str(first):
                raise SSHRefused(
                    SSHReason.OPTION_INVALID, "source-address takes no zones, and IPv4 networks only as IPv4"
                )

    @property
    def name(self) -> OptionName:
        """The option's name."""
        return OptionName.SOURCE_ADDRESS

    @property
    def value(self) -> bytes:
        """The option's encoded value."""
        return string(",".join(map(str, self.networks)).encode("ascii"))


@dataclass(frozen=True, slots=True)
class VerifyRequired:
    """A FIDO key counts only where its token asked for a PIN or a fingerprint."""

    @property
    def name(self) -> OptionName:
        """The option's name."""
        return OptionName.VERIFY_REQUIRED

    @property
    def value(self) -> bytes:
        """The option's encoded value."""
        return b""


CriticalOption: TypeAlias = ForceCommand | SourceAddress | VerifyRequired


def parse_network(text: str) -> Network:
    """Parse ``ADDRESS/PREFIX``, in its usual form, with zeros behind the prefix.

    Raises:
        SSHRefused: ``OptionInvalid``.
    """
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        network = None
    if network is None or str(network) != text:
        raise SSHRefused(
            SSHReason.OPTION_INVALID,
            f"{text[:64]!a} is not a network: write it such as 192.0.2.0/24, with zeros behind the prefix",
        )
    return network


def require_sorted_options(options: Sequence[CriticalOption]) -> None:
    """Raises SSHRefused: ``OptionsNotSorted``: two of one name, or out of order."""
    _require_sorted([option.name.value for option in options], "critical options")


def require_sorted_extensions(extensions: Sequence[Extension]) -> None:
    """Raises SSHRefused: ``OptionsNotSorted``: one twice, or out of order."""
    _require_sorted([extension.value for extension in extensions], "extensions")


def encode_options(options: Sequence[CriticalOption]) -> bytes:
    """Names and values."""
    return b"".join(string(option.name.value.encode("ascii")) + string(option.value) for option in options)


def encode_extensions(extensions: Sequence[Extension]) -> bytes:
    """Names and empty values."""
    return b"".join(string(extension.value.encode("ascii")) + string(b"") for extension in extensions)


def parse_options(data: bytes) -> tuple[CriticalOption, ...]:
    """Parse what :func:`encode_options` writes.

    Raises:
        SSHRefused: ``OptionUnknown``, ``OptionInvalid``, ``OptionsNotSorted``, ``TrailingBytes`` or ``Malformed``.
    """
    return tuple(_PARSERS[name](value) for name, value in _entries(data, OptionName, "critical option"))


def parse_extensions(data: bytes) -> tuple[Extension, ...]:
    """Parse what :func:`encode_extensions` writes.

    Raises:
        SSHRefused: ``OptionUnknown``, ``OptionInvalid`` (a value that is not empty), ``OptionsNotSorted`` or
            ``Malformed``.
    """
    found = _entries(data, Extension, "extension")
    for extension, value in found:
        if value:
            raise SSHRefused(SSHReason.OPTION_INVALID, f"{extension.value} has a value, which sshd refuses")
    return tuple(extension for extension, _ in found)


def _entries(data: bytes, names: Callable[[str], Named], what: str) -> list[tuple[Named, bytes]]:
    reader = Reader(data)
    found: list[tuple[Named, bytes]] = []
    order: list[str] = []
    while not reader.is_at_end:
        name = reader.string(f"the name of a {what}", maximum=_MAXIMUM_NAME_BYTES).decode("ascii", "backslashreplace")
        value = reader.string(f"the value of a {what}", maximum=MAXIMUM_OPTIONS_BYTES)
        order.append(name)
        try:
            found.append((names(name), value))
        except ValueError:
            raise SSHRefused(SSHReason.OPTION_UNKNOWN, f"{what} {name!a} is not known here") from None
    _require_sorted(order, f"{what}s")
    return found


def _require_sorted(names: Sequence[str], what: str) -> None:
    if any(one >= other for one, other in itertools.pairwise(names)):
        raise SSHRefused(SSHReason.OPTIONS_NOT_SORTED, f"{what} are not sorted by name, or one is there twice")


def _text(value: bytes, name: OptionName) -> str:
    reader = Reader(value)
    text = reader.text(name.value, maximum=MAXIMUM_OPTIONS_BYTES)
    reader.end(name.value)
    return text


def _force_command(value: bytes) -> ForceCommand:
    return ForceCommand(_text(value, OptionName.FORCE_COMMAND))


def _source_address(value: bytes) -> SourceAddress:
    return SourceAddress(tuple(map(parse_network, _text(value, OptionName.SOURCE_ADDRESS).split(","))))


def _verify_required(value: bytes) -> VerifyRequired:
    if value:
        raise SSHRefused(SSHReason.OPTION_INVALID, "verify-required has a value, which sshd refuses")
    return VerifyRequired()


_PARSERS: Final[Mapping[OptionName, Callable[[bytes], CriticalOption]]] = {
    OptionName.FORCE_COMMAND: _force_command,
    OptionName.SOURCE_ADDRESS: _source_address,
    OptionName.VERIFY_REQUIRED: _verify_required,
}
