"""The commands by name. A command's parser is imported when the command is named, and the rest when it runs.

Only this module imports them, so that help, completion and wrong usage load parsers alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from signer import offline

if TYPE_CHECKING:
    from signer.cli.loading import Run


@dataclass(frozen=True, slots=True)
class Command:
    """One command of ``node-attestation-controller``."""

    name: str
    summary: str
    """Its line in the list of commands."""
    add_arguments: Callable[[argparse.ArgumentParser], None]
    """Imports the command's parser, and completes it."""


def _add_run(parser: argparse.ArgumentParser) -> None:
    from signer.cli.parsers.run import add_run

    add_run(parser, _load_run)


def _load_run() -> Run:
    from signer.cli.run import run_controller

    return run_controller


def _add_check(parser: argparse.ArgumentParser) -> None:
    from signer.cli.parsers.check import add_check

    add_check(parser, _load_check)


def _load_check() -> Run:
    from signer.cli.check.command import run_check

    return run_check


def _add_preflight(parser: argparse.ArgumentParser) -> None:
    from signer.cli.parsers.preflight import add_preflight

    add_preflight(parser, _load_preflight)


def _load_preflight() -> Run:
    from signer.cli.preflight import run_preflight

    return run_preflight


def _add_workload_kubeconfig(parser: argparse.ArgumentParser) -> None:
    from signer.cli.parsers.workload_kubeconfig import add_workload_kubeconfig

    add_workload_kubeconfig(parser, _load_workload_kubeconfig)


def _load_workload_kubeconfig() -> Run:
    from signer.cli.workload_kubeconfig.command import run_workload_kubeconfig

    return run_workload_kubeconfig


def _add_explain(parser: argparse.ArgumentParser) -> None:
    from signer.cli.parsers.explain import add_explain

    add_explain(parser, _load_explain)


def _load_explain() -> Run:
    from signer.cli.explain import run_explain

    return run_explain


def _add_audit(parser: argparse.ArgumentParser) -> None:
    from signer.cli.parsers.audit import add_audit

    add_audit(parser, verify=_load_audit_verify, show=_load_audit_show)


def _load_audit_verify() -> Run:
    from signer.cli.audit import run_verify

    return run_verify


def _load_audit_show() -> Run:
    from signer.cli.audit import run_show

    return run_show


def _add_status(parser: argparse.ArgumentParser) -> None:
    from signer.cli.parsers.status import add_status

    add_status(parser, _load_status)


def _load_status() -> Run:
    from signer.cli.status import run_status

    return run_status


def _add_rotate(parser: argparse.ArgumentParser) -> None:
    from signer.cli.parsers.rotate import add_rotate

    add_rotate(
        parser,
        preflight=_load_rotate_preflight,
        status=_load_rotate_status,
        order=_load_rotate_order,
        confirm=_load_rotate_confirm,
        ssh_status=_load_rotate_ssh_status,
    )


def _load_rotate_preflight() -> Run:
    from signer.cli.rotate_preflight_command import run_preflight

    return run_preflight


def _load_rotate_status() -> Run:
    from signer.cli.rotate_status import run_status

    return run_status


def _load_rotate_order() -> Run:
    from signer.cli.rotate import run_order

    return run_order


def _load_rotate_confirm() -> Run:
    from signer.cli.rotate import run_confirm

    return run_confirm


def _load_rotate_ssh_status() -> Run:
    from signer.cli.rotate_ssh import run_ssh_status

    return run_ssh_status


def _add_node_access(parser: argparse.ArgumentParser) -> None:
    from signer.cli.parsers.node_access import add_node_access

    add_node_access(
        parser,
        config=_load_node_access_config,
        known_hosts=_load_node_access_known_hosts,
        preflight=_load_node_access_preflight,
    )


def _load_node_access_config() -> Run:
    from signer.cli.node_access import run_config

    return run_config


def _load_node_access_known_hosts() -> Run:
    from signer.cli.node_access import run_known_hosts

    return run_known_hosts


def _load_node_access_preflight() -> Run:
    from signer.cli.node_access_preflight import run_preflight

    return run_preflight


def _add_ssh_sign(parser: argparse.ArgumentParser) -> None:
    from signer.offline.ssh_sign import add_ssh_sign

    add_ssh_sign(parser)


def _add_krl(parser: argparse.ArgumentParser) -> None:
    from signer.offline.krl import add_krl

    add_krl(parser)


def _add_crds(parser: argparse.ArgumentParser) -> None:
    from signer.cli.parsers.crds import add_crds

    add_crds(parser, _load_crds)


def _load_crds() -> Run:
    from signer.cli.crds import run_crds

    return run_crds


def _add_version(parser: argparse.ArgumentParser) -> None:
    from signer.cli.parsers.version import add_version

    add_version(parser, _load_version)


def _load_version() -> Run:
    from signer.cli.version import run_version

    return run_version


def _add_completion(parser: argparse.ArgumentParser) -> None:
    from signer.cli.parsers.completion import add_completion

    add_completion(parser, _load_completion)


def _load_completion() -> Run:
    from signer.cli.completion import run_completion

    return run_completion


COMMANDS: Final = (
    Command("run", "run the controller until SIGTERM", _add_run),
    Command("check", "verify a controller's configuration, roots, grants and attestors, without serving", _add_check),
    Command(
        "preflight",
        "check before mode Enforce: nodes that would lose renewal, grants that auto-approve, steps to take",
        _add_preflight,
    ),
    Command(
        "workload-kubeconfig",
        "make or renew the restricted kubeconfig with which the controller reaches a workload cluster",
        _add_workload_kubeconfig,
    ),
    Command("explain", "show why a request is approved, denied or waits, by CSR, Machine or node", _add_explain),
    Command("audit", "verify audit logs, or show the decision behind a certificate", _add_audit),
    Command(
        "status",
        "list every Cluster with a policy: readiness, attested nodes, pending and denied requests, expiries",
        _add_status,
    ),
    Command("rotate", "rotate the CAs of a Cluster: check, start, watch, complete, or roll back", _add_rotate),
    Command("node-access", "write ssh's configuration for the nodes of a Cluster", _add_node_access),
    Command(offline.SSH_SIGN, offline.COMMANDS[offline.SSH_SIGN], _add_ssh_sign),
    Command(offline.KRL, offline.COMMANDS[offline.KRL], _add_krl),
    Command("crds", "print the CustomResourceDefinitions for kubectl apply -f -", _add_crds),
    Command("version", "print the versions of this program and of the controller in the cluster", _add_version),
    Command("completion", "print a function for the shell that completes commands and flags", _add_completion),
)
"""In the order of the help."""
