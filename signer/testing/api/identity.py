"""The user of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"
NODES = "system:nodes"
NODE_PREFIX = "system:node:"


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated (or impersonated) user, as k8s.io/apiserver ``user.Info``."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def node_name(self) -> str:
        """The user's node name; empty unless the user has both the name prefix and the group of nodes."""
        if self.name.startswith(NODE_PREFIX) and NODES in self.groups:
            return self.name.removeprefix(NODE_PREFIX)
        return ""


ADMINISTRATOR = User("system:admin", (MASTERS, AUTHENTICATED))
"""The caller of the synchronous store access that tests use."""
