"""Section ``ssh``: which policies may turn SSH on."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final

from signer.configuration.document import (
    ALL_NAMESPACES,
    InvalidConfiguration,
    object_of,
    read_namespaces,
    unknown_fields,
)

_SSH_FIELDS: Final = frozenset({"namespaces", "masterSecrets"})


class MasterSecrets(enum.Enum):
    """Whether policies may name a Secret with the master secret of a break-glass authority. That puts the key of the
    last resort online.
    """

    NOT_ALLOWED = "NotAllowed"
    ALLOWED = "Allowed"


@dataclass(frozen=True, slots=True)
class SSHPermission:
    """The controller makes SSH authorities for policies that turn SSH on."""

    namespaces: frozenset[str] = frozenset()
    """Namespaces whose policies may turn SSH on; ``*`` for all. None unless the operator names them."""
    master_secrets: MasterSecrets = MasterSecrets.NOT_ALLOWED

    def allows(self, namespace: str) -> bool:
        """Whether policies in that namespace may turn SSH on."""
        return ALL_NAMESPACES in self.namespaces or namespace in self.namespaces


@dataclass(frozen=True, slots=True)
class SSHSwitchedOff:
    """The controller has no part in SSH."""


def read_ssh(path: str, entry: Any) -> SSHPermission:
    """Which policies may turn SSH on, none unless their namespaces are named, and whether they may name secrets.

    Raises:
        InvalidConfiguration: a field is invalid.
    """
    stated = object_of(path, entry)
    for unknown in unknown_fields(stated, _SSH_FIELDS):
        raise InvalidConfiguration(f"--config: {path} has the fields masterSecrets and namespaces, and not {unknown}")
    try:
        master_secrets = MasterSecrets(stated.get("masterSecrets", MasterSecrets.NOT_ALLOWED.value))
    except ValueError:
        raise InvalidConfiguration(f"--config: {path}.masterSecrets must be Allowed or NotAllowed") from None
    return SSHPermission(read_namespaces(f"{path}.namespaces", stated.get("namespaces") or []), master_secrets)
