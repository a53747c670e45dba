"""Options that several commands share."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from node_access.client.access import Choices, Client
from node_access.client.addresses import COMMAND_VARIABLE, URL_VARIABLE, AddressSources
from node_access.client.container_ways import Via
from node_access.client.errors import WrongUse
from node_access.client.folders import DEFAULT_FOLDER, GrantFolders
from node_access.client.grants import ContainerTarget, Target
from node_access.client.kubectl import Kubectl, KubectlSettings
from node_access.client.manifests import GrantRequest
from node_access.client.terminal import is_terminal, say
from node_access.client.words import duration, login_name, network, object_name

_LONGEST_SECONDS: Final = 86_400


def seconds(text: str) -> float:
    """The value of a flag that is a time in seconds.

    Raises:
        argparse.ArgumentTypeError: it is none, or longer than a day.
    """
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found <= _LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text[:64]!a} is not a number of seconds from 0 to {_LONGEST_SECONDS}")
    return found


def add_management(parser: argparse.ArgumentParser) -> None:
    """Which management cluster, and where this machine's files are."""
    group = parser.add_argument_group("management cluster")
    group.add_argument("-n", "--namespace", default="", help="namespace of the Cluster (default: the context's)")
    group.add_argument(
        "--context", default="", metavar="NAME", help="context of the kubeconfig (default: the current one)"
    )
    group.add_argument(
        "--kubeconfig", default="", metavar="FILE", help="of the management cluster (default: kubectl's)"
    )
    group.add_argument(
        "--kubectl", default="kubectl", metavar="PROGRAM", help="name or path of kubectl (default: the one in PATH)"
    )
    add_folder(group)


def add_folder(parser: argparse._ActionsContainer) -> None:
    """Where this machine's files are."""
    parser.add_argument(
        "--folder",
        default=DEFAULT_FOLDER,
        metavar="FOLDER",
        help="for this machine's keys and files (default: %(default)s)",
    )


def add_request(parser: argparse.ArgumentParser) -> None:
    """What is asked for."""
    group = parser.add_argument_group("grant")
    group.add_argument("--cluster", default="", metavar="CLUSTER", help="name of the Cluster, where NODE has none")
    group.add_argument(
        "-l", "--login", action="append", metavar="LOGIN", help="login on the node; may be repeated (default: root)"
    )
    group.add_argument(
        "--duration", default="", help="how long the grant lives, such as 8h (default: the policy's longest)"
    )
    group.add_argument("--reason", default="", metavar="TEXT", help="why you need it; for the audit log")
    group.add_argument("--ticket", default="", metavar="TEXT", help="the ticket; for the audit log")
    group.add_argument(
        "--bastion", default="", metavar="PROVIDER", help="provider of the bastion, or None (default: the policy's)"
    )
    group.add_argument("--user", default="", metavar="NAME", help="your name, for API servers before 1.28")
    group.add_argument("--identity", default="", metavar="FILE", help="an existing key, which may be on a FIDO token")
    group.add_argument(
        "--timeout",
        type=seconds,
        default=300.0,
        metavar="SECONDS",
        help="how long to wait until the grant is ready (default: 300)",
    )
    group.add_argument("--no-keepalive", action="store_true", help="start no background process that sends heartbeats")
    add_address(parser)


def add_way(parser: argparse.ArgumentParser) -> None:
    """Which way to a container."""
    group = parser.add_argument_group("container")
    group.add_argument(
        "--via",
        default="",
        choices=[one.value for one in Via],
        help="the way to the container (default: the gateway, if there is one)",
    )
    group.add_argument("--node", default="", dest="on_node", metavar="NODE", help="the node on which its Pod runs")


def add_address(parser: argparse.ArgumentParser) -> None:
    """From where a bastion is reached."""
    group = parser.add_argument_group("this machine's address, as a bastion sees it")
    group.add_argument("--cidr", action="append", metavar="CIDR", help="address or network; repeat it for several")
    group.add_argument(
        "--public-ip-command",
        default=os.environ.get(COMMAND_VARIABLE, ""),
        metavar="PROGRAM",
        help=f"program that prints one address on each line (default: ${COMMAND_VARIABLE})",
    )
    group.add_argument(
        "--public-ip-url",
        default=os.environ.get(URL_VARIABLE, ""),
        metavar="URL",
        help=f"URL that answers with one address on each line (default: ${URL_VARIABLE})",
    )


def kubectl_of(options: argparse.Namespace) -> Kubectl:
    """kubectl for the management cluster that the options name.

    Raises:
        WrongUse: the namespace is none, or the kubeconfig is no file.
    """
    if options.kubeconfig:
        _require_file("--kubeconfig", options.kubeconfig)
    settings = KubectlSettings(
        program=options.kubectl,
        kubeconfig=os.path.abspath(options.kubeconfig) if options.kubeconfig else "",
        context=options.context,
        namespace=object_name(options.namespace, "a namespace") if options.namespace else "",
        environment="" if options.kubeconfig else os.environ.get("KUBECONFIG", ""),
    )
    return Kubectl(settings, terminal=is_terminal(), on_login=say).pinned()


def _require_file(flag: str, path: str) -> None:
    """Of the errors of kubectl, not each names the file.

    Raises:
        WrongUse: there is no such file.
    """
    if not os.path.exists(path):
        raise WrongUse(f"{flag}: {path[:253]!a}: there is no such file")
    if os.path.isdir(path):
        raise WrongUse(f"{flag}: {path[:253]!a} is a folder: name a file in it")


def folders_of(options: argparse.Namespace) -> GrantFolders:
    """The folders of this machine."""
    return GrantFolders(Path(os.path.abspath(os.path.expanduser(options.folder))))


def client_of(options: argparse.Namespace) -> Client:
    """Both."""
    return Client(kubectl_of(options), folders_of(options))


def sources_of(options: argparse.Namespace) -> AddressSources:
    """How this machine's address is found."""
    networks = tuple(map(network, options.cidr or ()))
    return AddressSources(networks, options.public_ip_command, options.public_ip_url)


def _logins(given: Sequence[str], target: Target) -> tuple[str, ...]:
    if not isinstance(target, ContainerTarget):
        return tuple(map(login_name, dict.fromkeys(given or ["root"])))
    if given:
        raise WrongUse("--login is for nodes: a container is entered as the user that runs it")
    return ()


def choices_of(options: argparse.Namespace, cluster: str, target: Target) -> Choices:
    """What is asked for."""
    if options.duration:
        duration(options.duration)
    request = GrantRequest(
        cluster=cluster,
        target=target,
        logins=_logins(options.login or (), target),
        bastion=options.bastion,
        duration=options.duration,
        port_forwarding=getattr(options, "port_forwarding", False),
        command=getattr(options, "force_command", ""),
        reason=options.reason,
        ticket=options.ticket,
    )
    return Choices(
        request,
        sources_of(options),
        name=object_name(options.name, "a name") if getattr(options, "name", "") else "",
        user=options.user,
        identity=options.identity,
        keep=getattr(options, "keep", True),
        keepalive=not options.no_keepalive,
        seconds=options.timeout,
    )
