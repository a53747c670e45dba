"""The provider ``local``, and its settings."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Any, Final

from node_access.bastions.contract import InvalidSettings, Place, SettingsDocuments, Surroundings
from node_access.bastions.fields import mapping, networks, number, require_known, text, texts
from node_access.bastions.local.resources import LocalBastions, LocalSettings

_KNOWN: Final = frozenset({"folder", "address", "listen", "ports", "egress", "sshd"})
_PATH: Final = re.compile(r"/[A-Za-z0-9._/-]{1,200}", re.ASCII)
"""Without white space, which sshd_config would split."""
_ADDRESS: Final = re.compile(r"[0-9A-Fa-f:.]{2,45}", re.ASCII)


class LocalProvider:
    """The provider."""

    name: str = "local"

    def settings(self, documents: SettingsDocuments) -> LocalSettings:
        """See :class:`~node_access.bastions.contract.BastionProvider`."""
        operator = documents.operator
        require_known(operator, _KNOWN, "the operator's settings")
        require_known(documents.policy, frozenset(), "a policy's settings")
        ports = mapping(operator, "ports")
        require_known(ports, frozenset({"first", "last"}), "ports")
        first = number(ports, "first", 40022, 1024, 65535)
        try:
            address = ipaddress.ip_address(text(operator, "address", _ADDRESS))
            listen = tuple(map(ipaddress.ip_address, texts(operator, "listen", _ADDRESS))) or (address,)
        except InvalidSettings:
            raise
        except ValueError as error:
            raise InvalidSettings(f"address and listen must be IP addresses: {error}") from error
        return LocalSettings(
            folder=Path(text(operator, "folder", _PATH, "/var/lib/node-access-bastions")),
            address=address,
            listen=listen,
            ports=range(first, number(ports, "last", min(first + 99, 65535), first, 65535) + 1),
            egress=networks(operator, "egress"),
            sshd=text(operator, "sshd", _PATH, "/usr/sbin/sshd"),
        )

    def place(self, settings: Any) -> Place:
        """See :class:`~node_access.bastions.contract.BastionProvider`: the folder on this machine."""
        if not isinstance(settings, LocalSettings):
            raise TypeError("settings of another provider")
        return Place((("folder", str(settings.folder)),))

    def open(self, settings: Any, surroundings: Surroundings) -> LocalBastions:
        """See :class:`~node_access.bastions.contract.BastionProvider`."""
        if not isinstance(settings, LocalSettings):
            raise TypeError("settings of another provider")
        return LocalBastions(settings, surroundings)


provider: Final = LocalProvider()
