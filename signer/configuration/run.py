"""The configuration of ``run``: flags and file together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from attestors.contract import INSECURE_PROVIDER
from attestors.wire.names import PROVIDER_ID_OID, SSH_HOST_KEYS_OID
from signer.configuration.access import AccessPermission, AccessSwitchedOff
from signer.configuration.attestors import NOT_NAMED, OperatorAttestor
from signer.configuration.authorities import AllowedAuthorities
from signer.configuration.replicas import LeaderElection, NoLeaderElection, Sharding
from signer.configuration.rotation import RotationOff, RotationSettings
from signer.configuration.ssh import SSHPermission, SSHSwitchedOff
from signer.model.cluster import EVERY_CLUSTER, WatchFilter
from signer.model.control_plane_names import DEFAULT_RESERVED_NAMES, ReservedNames
from signer.model.explain_command import NoControllerDeployment, RunsIn
from signer.model.floors import NO_FLOORS, Floors
from signer.model.flow import DEFAULT_WORKERS
from signer.model.namespace_limits import DEFAULT_NAMESPACE_LIMITS, NamespaceLimits
from signer.model.serving_networks import NO_NETWORKS, OperatorNetworks


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of ``run``."""

    namespace: str
    """The controller's own namespace, which holds the IdentityReservations."""
    watch_namespace: str | None = None
    """Serve only this namespace's Clusters; None means all."""
    watch_filter: WatchFilter = EVERY_CLUSTER
    """Serve only Clusters with this label."""
    leader_election: LeaderElection | Sharding | NoLeaderElection = field(default_factory=NoLeaderElection)
    """How several replicas share the work."""
    insecure_enabled: bool = False
    insecure_namespaces: frozenset[str] = frozenset()
    attestors: Mapping[str, OperatorAttestor] = field(default_factory=dict)
    """By provider name. An attestor that is not listed is allowed nowhere. The flags name ``insecure``."""
    serving_networks: OperatorNetworks = NO_NETWORKS
    """The networks that policies may name for serving certificates."""
    reserved_names: ReservedNames = DEFAULT_RESERVED_NAMES
    """Host labels that no serving certificate holds."""
    workers_per_cluster: int = DEFAULT_WORKERS
    provider_id_oids: tuple[str, ...] = (PROVIDER_ID_OID,)
    """OIDs of the extension in which a request carries its provider ID."""
    host_keys_oids: tuple[str, ...] = (SSH_HOST_KEYS_OID,)
    """OIDs of the extension in which a request carries its host keys of sshd. The first one that it has counts."""
    authorities: AllowedAuthorities = field(default_factory=AllowedAuthorities)
    """The Secrets that policies may name as their cluster's CAs."""
    rotation: RotationSettings | RotationOff = field(default_factory=RotationOff)
    """Whether the controller rotates CAs, and where."""
    ssh: SSHPermission | SSHSwitchedOff = field(default_factory=SSHSwitchedOff)
    """Whether the controller makes SSH authorities, and where."""
    access: AccessPermission | AccessSwitchedOff = field(default_factory=AccessSwitchedOff)
    """Whether the controller serves AccessGrants, and where. Only with ``ssh``."""

    floors: Floors = NO_FLOORS
    """What no policy falls below, by namespace."""
    namespace_limits: NamespaceLimits = DEFAULT_NAMESPACE_LIMITS
    """How many objects of each kind one namespace may have."""
    runs_in: RunsIn = field(default_factory=NoControllerDeployment)
    """For commands in messages."""

    def attestor(self, provider: str) -> OperatorAttestor:
        """The operator's permissions and settings for an attestor."""
        return self.attestors.get(provider, self._insecure() if provider == INSECURE_PROVIDER else NOT_NAMED)

    def _insecure(self) -> OperatorAttestor:
        """The insecure attestor as its flags name it."""
        return OperatorAttestor(self.insecure_namespaces) if self.insecure_enabled else NOT_NAMED

    def insecure_allowed(self, namespace: str) -> bool:
        """Whether the operator allows the insecure attestor: two of its three opt-ins; the policy is the third."""
        return self.insecure_enabled and namespace in self.insecure_namespaces
