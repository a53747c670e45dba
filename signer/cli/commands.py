"""The commands by name. The module of a command is imported when the command is named, so that all start quickly."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from signer import offline


@dataclass(frozen=True, slots=True)
class Command:
    """One command of ``node-attestation-controller``."""

    name: str
    summary: str
    """Its line in the list of commands."""
    add_arguments: Callable[[argparse.ArgumentParser], None]
    """Imports the command's module, and completes the command's parser."""


def _run(parser: argparse.ArgumentParser) -> None:
    from signer.cli.run import add_run

    add_run(parser)


def _check(parser: argparse.ArgumentParser) -> None:
    from signer.cli.check.command import add_check

    add_check(parser)


def _preflight(parser: argparse.ArgumentParser) -> None:
    from signer.cli.preflight import add_preflight

    add_preflight(parser)


def _workload_kubeconfig(parser: argparse.ArgumentParser) -> None:
    from signer.cli.workload_kubeconfig.command import add_workload_kubeconfig

    add_workload_kubeconfig(parser)


def _explain(parser: argparse.ArgumentParser) -> None:
    from signer.cli.explain import add_explain

    add_explain(parser)


def _audit(parser: argparse.ArgumentParser) -> None:
    from signer.cli.audit import add_audit

    add_audit(parser)


def _status(parser: argparse.ArgumentParser) -> None:
    from signer.cli.status import add_status

    add_status(parser)


def _rotate(parser: argparse.ArgumentParser) -> None:
    from signer.cli.rotate import add_rotate

    add_rotate(parser)


def _node_access(parser: argparse.ArgumentParser) -> None:
    from signer.cli.node_access import add_node_access

    add_node_access(parser)


def _ssh_sign(parser: argparse.ArgumentParser) -> None:
    from signer.offline.ssh_sign import add_ssh_sign

    add_ssh_sign(parser)


def _krl(parser: argparse.ArgumentParser) -> None:
    from signer.offline.krl import add_krl

    add_krl(parser)


def _crds(parser: argparse.ArgumentParser) -> None:
    from signer.cli.crds import add_crds

    add_crds(parser)


def _version(parser: argparse.ArgumentParser) -> None:
    from signer.cli.version import add_version

    add_version(parser)


def _completion(parser: argparse.ArgumentParser) -> None:
    from signer.cli.completion import add_completion

    add_completion(parser)


COMMANDS: Final = (
    Command("run", "run the controller until SIGTERM", _run),
    Command("check", "verify a controller's configuration, roots, grants and attestors, without serving", _check),
    Command(
        "preflight",
        "check before mode Enforce: nodes that would lose renewal, grants that auto-approve, steps to take",
        _preflight,
    ),
    Command(
        "workload-kubeconfig",
        "make or renew the restricted kubeconfig with which the controller reaches a workload cluster",
        _workload_kubeconfig,
    ),
    Command("explain", "show why a request is approved, denied or waits, by CSR, Machine or node", _explain),
    Command("audit", "verify audit logs, or show the decision behind a certificate", _audit),
    Command(
        "status",
        "list every Cluster with a policy: readiness, attested nodes, pending and denied requests, expiries",
        _status,
    ),
    Command("rotate", "rotate the CAs of a Cluster: check, start, watch, complete, or roll back", _rotate),
    Command("node-access", "write ssh's configuration for the nodes of a Cluster", _node_access),
    Command(offline.SSH_SIGN, offline.COMMANDS[offline.SSH_SIGN], _ssh_sign),
    Command(offline.KRL, offline.COMMANDS[offline.KRL], _krl),
    Command("crds", "print the CustomResourceDefinitions for kubectl apply -f -", _crds),
    Command("version", "print the versions of this program and of the controller in the cluster", _version),
    Command("completion", "print a function for the shell that completes commands and flags", _completion),
)
"""In the order of the help."""
