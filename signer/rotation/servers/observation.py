"""What one pass over the API servers of a workload cluster has shown. Immutable values, without I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from signer.authority.presented import Presented


@dataclass(frozen=True, slots=True)
class ExpectedServer:
    """An API server that must be seen: there is one on each control-plane Machine."""

    machine: str
    """Name of the Machine."""
    node_name: str
    """Empty until a Node has registered."""
    internal_names: tuple[str, ...]
    """The Machine's internal addresses, IP addresses and DNS names, in canonical form. They identify the server."""
    addresses: tuple[str, ...]
    """IP addresses at which the server is asked, internal ones first."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The API server accepts client certificates of the CA: it named the canary's user."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The API server does not accept client certificates of the CA: 401."""


@dataclass(frozen=True, slots=True)
class NotKnown:
    """No answer has shown it; ``message`` says why."""

    message: str


Acceptance: TypeAlias = Accepted | Refused | NotKnown


@dataclass(frozen=True, slots=True)
class Published:
    """The API server publishes the key, and so accepts tokens by it."""


@dataclass(frozen=True, slots=True)
class Missing:
    """It publishes keys, and not that one."""


@dataclass(frozen=True, slots=True)
class NotServed:
    """It publishes no keys: 404, as before Kubernetes 1.20, or with an issuer that is no URL."""


Publication: TypeAlias = Published | Missing | NotServed | NotKnown
Answer: TypeAlias = Acceptance | Publication


@dataclass(frozen=True, slots=True)
class ServerObservation:
    """One API server. Both answers came on connections where it had proven the key of the same certificate."""

    server: ExpectedServer
    asked_at: str
    """``https://host:port`` of the connection."""
    presented: Presented
    accepts_old: Acceptance
    accepts_new: Acceptance
    not_after: datetime
    """End of the server's certificate."""
    certificate_digest: str
    """SHA-256 of the server's certificate, in hexadecimal."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """An expected server that has not been seen in the pass; ``why`` says the reason."""

    server: ExpectedServer
    why: str


@dataclass(frozen=True, slots=True)
class ServersObserved:
    """One pass. Each expected server, of which there is at least one, is either in ``observations`` or ``unseen``."""

    observations: tuple[ServerObservation, ...]
    unseen: tuple[Unseen, ...]

    @classmethod
    def none(cls, expected: Iterable[ExpectedServer], why: str) -> ServersObserved:
        """No server was seen, for one reason."""
        return cls((), tuple(Unseen(server, why) for server in expected))
