"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from attestors.wire.names import PROVIDER_ID_OID, SSH_HOST_KEYS_OID
from signer.model.cluster import WATCH_FILTER_LABEL
from signer.model.decision import printable
from signer.model.object_names import NAMESPACE, NAMESPACE_FORM

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]

CONFIG_VARIABLE: Final = "NODE_ATTESTATION_CONFIG"
"""Environment variable with the path of the configuration file."""
DEFAULT_NAMESPACE: Final = "node-attestation-system"
FORMATS: Final = ("table", "wide", "json", "yaml")
"""Values of ``--output``, as kubectl has them; the first is the default."""


def namespace(text: str) -> str:
    """The argparse type of a namespace argument."""
    if NAMESPACE.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{printable(text)!r} is not a namespace: {NAMESPACE_FORM}")
    return text


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the Cluster and its namespace; :func:`signer.cli.arguments.cluster_key` parses both."""
    parser.add_argument("cluster", metavar="CLUSTER", help="name of the Cluster, or NAMESPACE/NAME")
    add_cluster_namespace(parser)


def add_cluster_namespace(parser: argparse.ArgumentParser) -> None:
    """Add the namespace alone, for actions on a Cluster that was named before."""
    parser.add_argument(
        "-n", "--namespace", type=namespace, default="default", help="namespace of the Cluster (default: default)"
    )


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


def add_output(parser: argparse.ArgumentParser, **others: str) -> None:
    """Add ``--output``; :func:`signer.cli.output.print_result` takes its value. The command itself prints the
    ``others``, which are formats and what they are.
    """
    described = "".join(f"; {name}: {text}" for name, text in others.items())
    parser.add_argument(
        "-o",
        "--output",
        choices=(*FORMATS, *others),
        default=FORMATS[0],
        help=f"wide: with long lines unwrapped, and with all columns{described} (default: %(default)s)",
    )
