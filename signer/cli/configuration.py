"""The controller's configuration, from the arguments of several commands."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from attestors.registry import Registry
from attestors.wire.names import PROVIDER_ID_OID, SSH_HOST_KEYS_OID
from attestors.wire.provider_id import InvalidOID, read_oids
from signer.cli.parsers.arguments import namespace
from signer.configuration import (
    ALL_NAMESPACES,
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
from signer.model.cluster import WatchFilter
from signer.model.decision import printable
from signer.model.explain_command import ControllerDeployment, NoControllerDeployment, RunsIn
from signer.model.object_names import OBJECT_NAME
from signer.model.rotation_waits import Waits

DEPLOYMENT_VARIABLE: Final = "NODE_ATTESTATION_DEPLOYMENT"
"""Environment variable with the name of the Deployment whose Pod this is."""
# apimachinery ``validation.IsValidLabelValue``.
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)


def configuration_of(options: argparse.Namespace) -> Configuration:
    """The configuration from the arguments of :func:`signer.cli.parsers.arguments.add_configuration`.

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
    if OBJECT_NAME.fullmatch(deployment) is None:
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
