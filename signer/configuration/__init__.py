"""The controller's configuration, which the operator sets and no tenant.

It comes from flags and, for structured settings, a YAML file: a module for each of its sections. A tenant's policy can
only choose among what the operator allows here.
"""

from signer.configuration.access import (
    DEFAULT_GATEWAY_NAMESPACE,
    AccessPermission,
    AccessSwitchedOff,
    ContainersSwitchedOff,
    ContainersSwitchedOn,
    CreatorVerification,
)
from signer.configuration.attestors import NOT_NAMED, OperatorAttestor, every_attestor, operator_settings
from signer.configuration.authorities import AllowedAuthorities
from signer.configuration.document import (
    ALL_NAMESPACES,
    MAXIMUM_DEPTH,
    InvalidConfiguration,
    read_document,
    read_namespaces,
    require_namespace,
)
from signer.configuration.file import ConfigurationFile, read_attestors, read_configuration_file
from signer.configuration.gateway import GatewayAddress, GatewayNotNamed, NamedGateway
from signer.configuration.replicas import LeaderElection, NoLeaderElection, Sharding
from signer.configuration.rotation import RotationOff, RotationSettings
from signer.configuration.run import Configuration
from signer.configuration.ssh import MasterSecrets, SSHPermission, SSHSwitchedOff

__all__ = [
    "ALL_NAMESPACES",
    "AccessPermission",
    "AccessSwitchedOff",
    "AllowedAuthorities",
    "Configuration",
    "ConfigurationFile",
    "ContainersSwitchedOff",
    "ContainersSwitchedOn",
    "CreatorVerification",
    "DEFAULT_GATEWAY_NAMESPACE",
    "GatewayAddress",
    "GatewayNotNamed",
    "InvalidConfiguration",
    "LeaderElection",
    "MAXIMUM_DEPTH",
    "MasterSecrets",
    "NOT_NAMED",
    "NamedGateway",
    "NoLeaderElection",
    "OperatorAttestor",
    "RotationOff",
    "RotationSettings",
    "SSHPermission",
    "SSHSwitchedOff",
    "Sharding",
    "every_attestor",
    "operator_settings",
    "read_attestors",
    "read_configuration_file",
    "read_document",
    "read_namespaces",
    "require_namespace",
]
