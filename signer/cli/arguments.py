"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from attestors.registry import Registry
from attestors.wire.names import PROVIDER_ID_OID, SSH_HOST_KEYS_OID
from attestors.wire.provider_id import InvalidOID, read_oids
from signer.configuration import (
    ALL_NAMESPACES,
    NAMESPACE,
    NAMESPACE_FORM,
    AccessPermission,
    AccessSwitchedOff,
    Configuration,
    ConfigurationFile,
    ContainersSwitchedOn,
    InvalidConfiguration,
    OperatorAttestor,
    RotationOff,
    RotationSettings,
    SSHSwitchedOff,
    read_configuration_file,
)
from signer.model.cluster import WATCH_FILTER_LABEL, ClusterKey, WatchFilter
from signer.model.command_failures import InputRefused
from signer.model.decision import printable
from signer.model.explain_command import ControllerDeployment, NoControllerDeployment, RunsIn
from signer.model.rotation_waits import Waits

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]

CONFIG_VARIABLE: Final = "NODE_ATTESTATION_CONFIG"
"""Environment variable with the path of the configuration file."""
DEPLOYMENT_VARIABLE: Final = "NODE_ATTESTATION_DEPLOYMENT"
"""Environment variable with the name of the Deployment whose Pod this is."""
DEFAULT_NAMESPACE: Final = "node-attestation-system"
# apimachinery ``validation.IsValidLabelValue``.
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
# apimachinery ``validation.IsDNS1123Subdomain``.
_OBJECT_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", re.ASCII)


class WrongUse(InputRefused, ValueError):
    """The arguments are invalid; the message says which."""


def namespace(text: str) -> str:
    """The argparse type of a namespace argument."""
    if NAMESPACE.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{printable(text)!r} is not a namespace: {NAMESPACE_FORM}")
    return text


def cluster_key(text: str, *, default_namespace: str) -> ClusterKey:
    """Parse NAME or NAMESPACE/NAME.

    Raises:
        WrongUse: ``text`` is neither.
    """
    of, _, name = text.rpartition("/")
    of = of or default_namespace
    if NAMESPACE.fullmatch(of) is None or _OBJECT_NAME.fullmatch(name) is None:
        raise WrongUse(f"{printable(text)!r} is not a Cluster name: write NAMESPACE/NAME")
    return ClusterKey(of, name)


def add_management_cluster(parser: argparse.ArgumentParser) -> None:
    """Add ``--kubeconfig`` and ``--context``; :func:`signer.cli.management.management_access` takes them."""
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="management cluster (default: KUBECONFIG, else the Pod's service account, else ~/.kube/config)",
    )
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current context)")


def add_controller_namespace(parser: argparse.ArgumentParser) -> None:
    """Add ``--controller-namespace``, the namespace of the controller's own objects."""
    parser.add_argument(
        "--controller-namespace",
        type=namespace,
        metavar="NAMESPACE",
        default=os.environ.get("POD_NAMESPACE", DEFAULT_NAMESPACE),
        help="namespace of the controller and its IdentityReservations (default: POD_NAMESPACE, "
        f"or {DEFAULT_NAMESPACE})",
    )


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add ``--config``, the controller's configuration file."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        default=Path(os.environ[CONFIG_VARIABLE]) if os.environ.get(CONFIG_VARIABLE) else None,
        help="YAML file with the allowed attestors and their settings, and the floors of policies (default: "
        f"{CONFIG_VARIABLE}, which the controller's Pod has)",
    )


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """Add the operator's configuration; ``run`` and ``explain`` share it, so that both decide alike."""
    parser.add_argument(
        "-n", "--namespace", type=namespace, help="serve only Clusters of this namespace (default: all)"
    )
    parser.add_argument(
        "--watch-filter",
        default="",
        metavar="VALUE",
        help=f"serve only Clusters with label {WATCH_FILTER_LABEL}: VALUE (default: all); a tenant that may label its "
        "Cluster chooses the controller by that, and its configuration: tell tenants apart by --namespace",
    )
    add_controller_namespace(parser)
    add_config(parser)
    parser.add_argument(
        "--provider-id-oids",
        default=None,
        metavar="OID,...",
        help="accepted OIDs of the extension that holds the provider ID in a request; nodes use "
        f"{PROVIDER_ID_OID} unless configured otherwise (default: that OID only)",
    )
    parser.add_argument(
        "--ssh-host-keys-oids",
        default=None,
        metavar="OID,...",
        help="accepted OIDs of the extension that holds the host keys of sshd in a request, the first one that it has "
        f"counts; nodes use {SSH_HOST_KEYS_OID} unless configured otherwise (default: that OID only)",
    )
    parser.add_argument(
        "--enable-insecure-attestor",
        action="store_true",
        help="allow the insecure attestor, which proves nothing, for policies in --insecure-attestor-namespaces that "
        "name it",
    )
    parser.add_argument(
        "--insecure-attestor-namespaces",
        default="",
        metavar="NAMESPACE,...",
        help="namespaces whose policies may name the insecure attestor",
    )
    parser.set_defaults(
        rotate_authorities=False, rotate_authorities_namespaces="", ssh=False, access=False, containers=False
    )


def add_rotation(parser: argparse.ArgumentParser) -> None:
    """Add the switch for the rotation of CAs. A command without it has no rotation in its configuration."""
    parser.add_argument(
        "--rotate-authorities",
        action="store_true",
        help="rotate the CAs of a Cluster when its policy orders that; needs roles of its own (default: off)",
    )
    parser.add_argument(
        "--rotate-authorities-namespaces",
        metavar="NAMESPACE,...",
        help="namespaces whose policies may order rotations (default: all)",
    )


def add_ssh(parser: argparse.ArgumentParser) -> None:
    """Add the switch for SSH authorities. A command without it has none in its configuration."""
    parser.add_argument(
        "--ssh",
        action="store_true",
        help="make SSH authorities for Clusters whose policy turns SSH on, in the namespaces that the configuration "
        "file names; needs a role of its own (default: off)",
    )


def add_access(parser: argparse.ArgumentParser) -> None:
    """Add the switch for AccessGrants. A command without it has none in its configuration."""
    parser.add_argument(
        "--access",
        action="store_true",
        help="serve AccessGrants of Clusters whose policy allows them, in the namespaces that the configuration file "
        "names; needs --ssh and a role of its own (default: off)",
    )
    parser.add_argument(
        "--containers",
        action="store_true",
        help="give the gateway to containers a way into each workload cluster whose policy allows AccessGrants; needs "
        "--access and a role of its own (default: off)",
    )
    parser.add_argument(
        "--access-webhook-address",
        default="",
        metavar="HOST:PORT",
        help="serve the webhook that proves who made an AccessGrant, for Kubernetes before 1.30; needs --access "
        "(default: off)",
    )
    parser.add_argument(
        "--access-webhook-service",
        default="node-attestation-access-webhook",
        metavar="NAME",
        help="the webhook's Service, in the controller's namespace (default: %(default)s)",
    )
    parser.add_argument(
        "--access-webhook-client-ca",
        type=Path,
        default=None,
        metavar="FILE",
        help="authorities in PEM of the client certificate that the API server presents to webhooks; no other client "
        "is answered (default: any is)",
    )
    parser.add_argument(
        "--access-webhook-client-names",
        default="",
        metavar="NAMES",
        help="common names of that certificate, one of which it must have; comma-separated (default: any)",
    )
    parser.add_argument(
        "--access-service-account",
        default="node-attestation-controller",
        metavar="NAME",
        help="the controller's own ServiceAccount, which alone writes status of AccessGrants (default: %(default)s)",
    )
    parser.add_argument(
        "--access-bastion-service-account",
        default="node-access-bastions",
        metavar="NAME",
        help="the bastion controller's ServiceAccount, in the controller's namespace (default: %(default)s)",
    )


def configuration_of(options: argparse.Namespace) -> Configuration:
    """The configuration from the arguments of :func:`add_configuration`.

    Raises:
        InvalidConfiguration: the arguments contradict each other, or the file is invalid.
    """
    insecure_namespaces = _namespaces("--insecure-attestor-namespaces", options.insecure_attestor_namespaces)
    if options.enable_insecure_attestor != bool(insecure_namespaces):
        raise InvalidConfiguration(
            "give --enable-insecure-attestor and --insecure-attestor-namespaces together, or neither"
        )
    file = read_configuration_file(options.config) if options.config is not None else ConfigurationFile()
    provider_id_oids = _oids("--provider-id-oids", options.provider_id_oids, PROVIDER_ID_OID)
    host_keys_oids = _oids("--ssh-host-keys-oids", options.ssh_host_keys_oids, SSH_HOST_KEYS_OID)
    if both := set(provider_id_oids) & set(host_keys_oids):
        raise InvalidConfiguration(
            f"{min(both)} is in --provider-id-oids and in --ssh-host-keys-oids: an extension holds one of the two"
        )
    return Configuration(
        namespace=options.controller_namespace,
        watch_namespace=options.namespace,
        watch_filter=_watch_filter(options.watch_filter),
        insecure_enabled=options.enable_insecure_attestor,
        insecure_namespaces=insecure_namespaces,
        attestors=file.attestors,
        serving_networks=file.serving_networks,
        reserved_names=file.reserved_names,
        provider_id_oids=provider_id_oids,
        host_keys_oids=host_keys_oids,
        authorities=file.authorities,
        rotation=_rotation(options, file.rotation_waits, file.node_client_namespaces),
        ssh=file.ssh if options.ssh else SSHSwitchedOff(),
        access=_access(options, file.access),
        floors=file.floors,
        namespace_limits=file.namespace_limits,
        runs_in=_runs_in(options.controller_namespace, os.environ.get(DEPLOYMENT_VARIABLE, "")),
    )


def _runs_in(controller_namespace: str, deployment: str) -> RunsIn:
    if not deployment:
        return NoControllerDeployment()
    if _OBJECT_NAME.fullmatch(deployment) is None:
        raise InvalidConfiguration(f"{DEPLOYMENT_VARIABLE}: {printable(deployment)!r} is not the name of a Deployment")
    return ControllerDeployment(controller_namespace, deployment)


def _access(options: argparse.Namespace, permission: AccessPermission) -> AccessPermission | AccessSwitchedOff:
    if not options.access:
        if options.containers:
            raise InvalidConfiguration("--containers needs --access: give both")
        return AccessSwitchedOff()
    if not options.ssh:
        raise InvalidConfiguration("--access needs --ssh: give both")
    if not options.containers:
        return permission
    gateways = permission.gateway_namespace
    if gateways in {options.controller_namespace, options.namespace, *permission.namespaces}:
        raise InvalidConfiguration(
            f"--config: access.gatewayNamespace: the gateway can read every Secret in {gateways}, so it needs a "
            "namespace of its own"
        )
    return replace(permission, containers=ContainersSwitchedOn())


def _rotation(
    options: argparse.Namespace, waits: Waits, node_client_namespaces: frozenset[str]
) -> RotationSettings | RotationOff:
    flag = "--rotate-authorities-namespaces"
    namespaces = _namespaces(flag, options.rotate_authorities_namespaces)
    if not options.rotate_authorities:
        if namespaces:
            raise InvalidConfiguration(f"{flag} needs --rotate-authorities: give both")
        return RotationOff()
    return RotationSettings(namespaces or frozenset({ALL_NAMESPACES}), waits, node_client_namespaces)


def require_installed(attestors: Mapping[str, OperatorAttestor]) -> None:
    """Refuse names of attestors that are not installed.

    A misspelt name would leave the intended attestor allowed nowhere.

    Raises:
        InvalidConfiguration: a name is not that of an installed attestor.
    """
    for message in not_installed(attestors):
        raise InvalidConfiguration(message)


def not_installed(attestors: Mapping[str, OperatorAttestor]) -> list[str]:
    """A message for each name that is not that of an installed attestor."""
    installed = Registry().providers
    return [
        f"--config: attestors.{provider}: no attestor of that name is installed; installed are: "
        f"{', '.join(sorted(installed)) or 'none'}"
        for provider in sorted(attestors.keys() - installed)
    ]


def _namespaces(flag: str, text: str) -> frozenset[str]:
    """The namespaces that a flag lists."""
    try:
        return frozenset(map(namespace, filter(None, text.split(","))))
    except argparse.ArgumentTypeError as error:
        raise InvalidConfiguration(f"{flag}: {error}") from None


def _oids(flag: str, text: str | None, default: str) -> tuple[str, ...]:
    if text is None:
        return (default,)
    try:
        return read_oids(text)
    except InvalidOID as error:
        raise InvalidConfiguration(f"{flag}: {error}") from None


def _watch_filter(value: str) -> WatchFilter:
    if value and _LABEL_VALUE.fullmatch(value) is None:
        raise InvalidConfiguration("--watch-filter must be a label value: up to 63 letters, digits, '-', '_' and '.'")
    return WatchFilter(value)
