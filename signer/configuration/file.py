"""The configuration file, all sections together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from signer.configuration.access import AccessPermission, read_access
from signer.configuration.attestors import OperatorAttestor, read_attestor
from signer.configuration.authorities import AllowedAuthorities, read_authorities
from signer.configuration.document import InvalidConfiguration, read_document, unknown_fields
from signer.configuration.floors import read_floors
from signer.configuration.namespace_limits import read_namespace_limits
from signer.configuration.rotation import read_node_client_namespaces, read_rotation_waits
from signer.configuration.serving import read_reserved_names, read_serving_networks
from signer.configuration.ssh import SSHPermission, read_ssh
from signer.model.control_plane_names import DEFAULT_RESERVED_NAMES, ReservedNames
from signer.model.floors import NO_FLOORS, Floors
from signer.model.namespace_limits import DEFAULT_NAMESPACE_LIMITS, NamespaceLimits
from signer.model.rotation_waits import Waits
from signer.model.serving_networks import NO_NETWORKS, OperatorNetworks

_TOP_LEVEL: Final = (
    "access, attestors, certificateAuthorities, floors, namespaceLimits, rotation, servingAddresses and ssh"
)
_TOP_LEVEL_FIELDS: Final = frozenset(
    {
        "access",
        "attestors",
        "certificateAuthorities",
        "floors",
        "namespaceLimits",
        "rotation",
        "servingAddresses",
        "ssh",
    }
)


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """The content of the configuration file."""

    attestors: Mapping[str, OperatorAttestor] = field(default_factory=dict)
    serving_networks: OperatorNetworks = NO_NETWORKS
    authorities: AllowedAuthorities = field(default_factory=AllowedAuthorities)
    rotation_waits: Waits = field(default_factory=Waits)
    node_client_namespaces: frozenset[str] = frozenset()
    ssh: SSHPermission = field(default_factory=SSHPermission)
    access: AccessPermission = field(default_factory=AccessPermission)
    reserved_names: ReservedNames = DEFAULT_RESERVED_NAMES
    floors: Floors = NO_FLOORS
    namespace_limits: NamespaceLimits = DEFAULT_NAMESPACE_LIMITS


def read_configuration_file(path: Path) -> ConfigurationFile:
    """Read the configuration file::

        attestors:
          tpm:
            namespaces: [team-a, team-b]
            settings: {endorsementRootsFolder: /etc/node-attestation/endorsement}
            settingsByNamespace:
              team-a: {allowTrustOnFirstUse: true}
        certificateAuthorities:
          suffixes: [ca, cca]
          suffixesByNamespace:
            team-a: [ca, kubelet-client-ca]
          sharedBy: [[team-a, team-b/one]]
        floors:
          - namespaces: ["*"]
            mode: Enforce
            maximumDurations: {client: 168h, serving: 168h, insecure: 720h, deleting: 24h, sshHost: 168h}
            nodeNameReuse: AfterExpiry
            approvalByOthers: Refuse
            untraceableTokens: Refuse
            requiredAttestors:
              controlPlane: {allOf: [tpm]}
              workers: {anyOf: [tpm]}
        namespaceLimits: {machines: 50000, machinePools: 2000}
        rotation:
          waits: {trustAge: 10m, overlap: 24h, openWatches: 1h}
          nodeClientAuthority: {namespaces: [team-a]}
        servingAddresses:
          networks: [2001:db8:7::/48]
          networksByNamespace:
            team-a: [10.0.1.0/24]
          reservedNames: [konnectivity-server, etcd, etcd-*]
        ssh:
          namespaces: [team-a]
          masterSecrets: NotAllowed
        access:
          namespaces: [team-a]
          creatorVerification: Required
          minimumApprovals: 0
          minimumApprovalsByNamespace: {team-a: 1}
          maximumLifetime: 168h
          bastions: [aws]
          bastionsByNamespace:
            team-a: [pod]
          gatewayNamespace: node-access-gateway
          gateway: {host: gateway.example.com, port: 22, hostKeys: [ssh-ed25519 AAAA…]}
          toolsImage: registry.example.com/tools:1

    Raises:
        InvalidConfiguration: the file cannot be read, or a field is invalid.
    """
    document = _top_level(path)
    entries = document.get("attestors")
    if entries is not None and not isinstance(entries, Mapping):
        raise InvalidConfiguration(f"--config: {path}: attestors must map provider names to their settings")
    attestors = {
        str(provider): read_attestor(f"{path}: attestors.{provider}", provider, entry)
        for provider, entry in (entries or {}).items()
    }
    return ConfigurationFile(
        attestors,
        read_serving_networks(f"{path}: servingAddresses", document.get("servingAddresses")),
        read_authorities(f"{path}: certificateAuthorities", document.get("certificateAuthorities")),
        read_rotation_waits(f"{path}: rotation", document.get("rotation")),
        read_node_client_namespaces(f"{path}: rotation", document.get("rotation")),
        read_ssh(f"{path}: ssh", document.get("ssh")),
        read_access(f"{path}: access", document.get("access")),
        read_reserved_names(f"{path}: servingAddresses", document.get("servingAddresses")),
        read_floors(f"{path}: floors", document.get("floors"), attestors),
        read_namespace_limits(f"{path}: namespaceLimits", document.get("namespaceLimits")),
    )


def read_attestors(path: Path) -> Mapping[str, OperatorAttestor]:
    """The attestors in the configuration file.

    Raises:
        InvalidConfiguration: the file cannot be read, or a field is invalid.
    """
    return read_configuration_file(path).attestors


def _top_level(path: Path) -> Mapping[str, Any]:
    document = read_document(path)
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise InvalidConfiguration(f"--config: {path} must be an object, whose top-level fields are {_TOP_LEVEL}")
    for unknown in unknown_fields(document, _TOP_LEVEL_FIELDS):
        raise InvalidConfiguration(f"--config: {path}: the top-level fields are {_TOP_LEVEL}, and not {unknown}")
    return document
