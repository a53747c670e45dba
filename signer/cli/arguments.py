"""Arguments that several commands share, under the same names."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from attestors.registry import Registry
from attestors.wire.names import PROVIDER_ID_OID
from attestors.wire.provider_id import InvalidOID, read_oids
from signer.configuration import (
    NAMESPACE,
    NAMESPACE_FORM,
    Configuration,
    InvalidConfiguration,
    OperatorAttestor,
    read_attestors,
)
from signer.model.cluster import WATCH_FILTER_LABEL, ClusterKey, WatchFilter
from signer.model.decision import printable

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]

DEFAULT_NAMESPACE: Final = "node-attestation-system"
# apimachinery ``validation.IsValidLabelValue``.
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
# apimachinery ``validation.IsDNS1123Subdomain``.
_CLUSTER: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", re.ASCII)


class WrongUse(ValueError):
    """The arguments cannot be followed; the message says which."""


def namespace(text: str) -> str:
    """The type of arguments that name a namespace."""
    if NAMESPACE.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{printable(text)!r} is no namespace: {NAMESPACE_FORM}")
    return text


def cluster_key(text: str, *, default_namespace: str) -> ClusterKey:
    """NAME or NAMESPACE/NAME.

    Raises:
        WrongUse: it is neither.
    """
    of, _, name = text.rpartition("/")
    of = of or default_namespace
    if NAMESPACE.fullmatch(of) is None or _CLUSTER.fullmatch(name) is None:
        raise WrongUse(f"{printable(text)!r} names no Cluster: write NAMESPACE/NAME")
    return ClusterKey(of, name)


def add_kubeconfig(parser: argparse.ArgumentParser) -> None:
    """Which management cluster."""
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="management cluster (default: KUBECONFIG, else the Pod's service account, else ~/.kube/config)",
    )


def add_controller_namespace(parser: argparse.ArgumentParser) -> None:
    """Where the controller keeps what is its own."""
    parser.add_argument(
        "--controller-namespace",
        type=namespace,
        metavar="NAMESPACE",
        default=os.environ.get("POD_NAMESPACE", DEFAULT_NAMESPACE),
        help="the controller's own namespace, where IdentityReservations live (default: POD_NAMESPACE, "
        f"or {DEFAULT_NAMESPACE})",
    )


def add_config(parser: argparse.ArgumentParser) -> None:
    """The controller's configuration file."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="YAML file with what the operator allows and sets for each attestor"
    )


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """What the operator decides: the same arguments for the controller, and for what says how it would decide."""
    parser.add_argument("--namespace", type=namespace, help="serve Clusters of this namespace only (default: all)")
    parser.add_argument(
        "--watch-filter",
        default="",
        metavar="VALUE",
        help=f"serve Clusters with label {WATCH_FILTER_LABEL}: VALUE only (default: all)",
    )
    add_controller_namespace(parser)
    add_config(parser)
    parser.add_argument(
        "--provider-id-oids",
        default=None,
        metavar="OID,...",
        help="of the extensions in one of which a request holds its provider ID; that of nodes that do not say "
        f"otherwise is {PROVIDER_ID_OID} (default: it alone)",
    )
    parser.add_argument(
        "--enable-insecure-attestor",
        action="store_true",
        help="allow the attestor that proves nothing, in --insecure-attestor-namespaces, for policies that name it",
    )
    parser.add_argument(
        "--insecure-attestor-namespaces",
        default="",
        metavar="NAMESPACE,...",
        help="namespaces whose policies may name the insecure attestor",
    )


def configuration_of(options: argparse.Namespace) -> Configuration:
    """The configuration that these arguments give.

    Raises:
        InvalidConfiguration: they contradict each other, or the file cannot be followed.
    """
    insecure_namespaces = frozenset(map(_listed, filter(None, options.insecure_attestor_namespaces.split(","))))
    if options.enable_insecure_attestor != bool(insecure_namespaces):
        raise InvalidConfiguration(
            "--enable-insecure-attestor and --insecure-attestor-namespaces are given together, or neither"
        )
    return Configuration(
        namespace=options.controller_namespace,
        watch_namespace=options.namespace,
        watch_filter=_watch_filter(options.watch_filter),
        insecure_enabled=options.enable_insecure_attestor,
        insecure_namespaces=insecure_namespaces,
        attestors=read_attestors(options.config) if options.config is not None else {},
        provider_id_oids=_provider_id_oids(options.provider_id_oids),
    )


def require_installed(attestors: Mapping[str, OperatorAttestor]) -> None:
    """A name that is misspelt would leave the attestor that was meant allowed everywhere, without its settings.

    Raises:
        InvalidConfiguration: it is no installed attestor's.
    """
    for said in not_installed(attestors):
        raise InvalidConfiguration(said)


def not_installed(attestors: Mapping[str, OperatorAttestor]) -> list[str]:
    """What to say of the names that are no installed attestor's."""
    installed = Registry().providers
    return [
        f"--config: attestors.{provider}: no attestor of that name is installed; installed are: "
        f"{', '.join(sorted(installed)) or 'none'}"
        for provider in sorted(attestors.keys() - installed)
    ]


def _listed(text: str) -> str:
    try:
        return namespace(text)
    except argparse.ArgumentTypeError as error:
        raise InvalidConfiguration(f"--insecure-attestor-namespaces: {error}") from None


def _provider_id_oids(text: str | None) -> tuple[str, ...]:
    if text is None:
        return (PROVIDER_ID_OID,)
    try:
        return read_oids(text)
    except InvalidOID as error:
        raise InvalidConfiguration(f"--provider-id-oids: {error}") from None


def _watch_filter(value: str) -> WatchFilter:
    if value and _LABEL_VALUE.fullmatch(value) is None:
        raise InvalidConfiguration("--watch-filter is a label's value: letters, digits, '-', '_' and '.', up to 63")
    return WatchFilter(value)
