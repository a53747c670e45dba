"""``none``: no bastion is made. Nodes are reached directly, or through a jump host that exists already.

With the setting ``jumpHost`` (operator's: ``hostname`` or ``ip``, ``port``, ``hostKeys``), clients go through it. Its
administrators configure it: this provider changes nothing there, and owns nothing.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Any, Final

from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import parse_key_line
from attestors.wire.ssh.keys import PublicKey
from node_access.bastions.contract import (
    Bastion,
    BastionReference,
    Broken,
    Deadline,
    Deleted,
    Endpoint,
    Ensured,
    Gone,
    InvalidBastion,
    InvalidSettings,
    Network,
    OwnedResources,
    Place,
    Ready,
    Scope,
    SettingsDocuments,
    Surroundings,
)
from node_access.bastions.fields import mapping, networks, number, require_known, texts

_ANY_LINE: Final = re.compile(r"[!-~ ]{1,4096}", re.ASCII)


@dataclass(frozen=True, slots=True)
class JumpHost:
    """A host that exists already."""

    endpoint: Endpoint
    host_keys: tuple[PublicKey, ...]
    egress: tuple[Network, ...]


@dataclass(frozen=True, slots=True)
class Direct:
    """No host: clients connect to nodes themselves."""


@dataclass(frozen=True, slots=True)
class NoneSettings:
    """Parsed settings."""

    way: JumpHost | Direct


class NoBastions:
    """Makes nothing."""

    def __init__(self, settings: NoneSettings) -> None:
        self._way = settings.way

    def ensure(self, bastion: Bastion, deadline: Deadline) -> Ensured:
        """Ready with the jump host; without one, a Bastion object is a mistake."""
        if isinstance(self._way, Direct):
            return Broken("the operator set no jumpHost: nodes are reached directly, and need no Bastion", final=True)
        return Ready(self._way.endpoint, self._way.host_keys, self._way.egress)

    def delete(self, reference: BastionReference, deadline: Deadline) -> Deleted:
        """Nothing exists."""
        return Gone()

    def list(self, scope: Scope, deadline: Deadline) -> tuple[OwnedResources, ...]:
        """Nothing exists."""
        return ()


class NoneProvider:
    """The provider."""

    name: str = "none"

    def settings(self, documents: SettingsDocuments) -> NoneSettings:
        """See :class:`~node_access.bastions.contract.BastionProvider`."""
        require_known(documents.operator, frozenset({"jumpHost"}), "the operator's settings")
        require_known(documents.policy, frozenset(), "a policy's settings")
        if "jumpHost" not in documents.operator:
            return NoneSettings(Direct())
        stated = mapping(documents.operator, "jumpHost")
        require_known(stated, frozenset({"ip", "hostname", "port", "hostKeys", "egress"}), "jumpHost")
        try:
            endpoint = Endpoint(
                number(stated, "port", 22, 1, 65535),
                ipaddress.ip_address(stated["ip"]) if "ip" in stated else None,
                stated.get("hostname", ""),
            )
            keys = tuple(map(parse_key_line, texts(stated, "hostKeys", _ANY_LINE, least=1)))
            egress = networks(stated, "egress")
        except (InvalidBastion, SSHRefused, TypeError, ValueError) as error:
            raise InvalidSettings(f"jumpHost: {error}") from error
        return NoneSettings(JumpHost(endpoint, keys, egress))

    def place(self, settings: Any) -> Place:
        """Nothing is made, so no setting says where."""
        return Place()

    def open(self, settings: Any, surroundings: Surroundings) -> NoBastions:
        """See :class:`~node_access.bastions.contract.BastionProvider`."""
        if not isinstance(settings, NoneSettings):
            raise TypeError("settings of another provider")
        return NoBastions(settings)


provider: Final = NoneProvider()
