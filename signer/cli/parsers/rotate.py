"""Arguments of ``rotate``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from signer.cli.loading import Load
from signer.cli.parsers.arguments import (
    add_cluster_namespace,
    add_controller_namespace,
    add_management_cluster,
    add_output,
)
from signer.rotation.operations import Gate, Operation

if TYPE_CHECKING:
    from signer.cli.parsers.arguments import Commands

ANSWERED_WITHIN_SECONDS: Final = 20.0
"""A running controller sees the annotation at once, and asks the API servers once before it answers."""
_ORDERS: Final = "Exit code 0: the controller has accepted it; 4: rejected it; 5: does not answer; 6: you declined."
_GATES: Final = ", ".join(gate.value for gate in Gate)


def add_rotate(
    parser: argparse.ArgumentParser, *, preflight: Load, status: Load, order: Load, confirm: Load, ssh_status: Load
) -> None:
    """Complete the parser of the command."""
    parser.description = (
        "Orders rotations by an annotation of the Cluster's policy, which the controller carries out if it "
        "runs with --rotate-authorities."
    )
    parser.add_argument("cluster", metavar="CLUSTER", help="name of the Cluster, or NAMESPACE/NAME")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    checks = actions.add_parser(
        "preflight",
        help="check whether a rotation could be finished, and list who holds CAs",
        description="Changes nothing. Exit code 0: every check holds; 3: one does not; 5: not all could be read.",
    )
    _add_common(checks)
    checks.set_defaults(load=preflight)
    _add_start(actions, order)
    shown = actions.add_parser(
        "status",
        help="show what is proven, what is waited for, who lags, and what to do",
        description="Changes nothing. Exit code 0: no rotation is under way, or it goes on by itself; 3: it has "
        "stalled, or its state does not count; 5: it waits for a person.",
    )
    _add_common(shown)
    shown.add_argument(
        "--watch", action="store_true", help="show every change, until the rotation is over or waits for a person"
    )
    shown.set_defaults(load=status)
    _add_order(
        actions, order, "complete", Operation.COMPLETE, "replace the old CA by the new one, after it is Prepared"
    )
    _add_order(actions, order, "rollback", Operation.ROLLBACK, "take back as much as can be taken back now")
    _add_order(actions, order, "retry", Operation.RETRY, "go on after a stall or a rollback of clients")
    _add_abandon(actions, order)
    _add_confirm(actions, confirm)
    _add_order(
        actions,
        order,
        "node-client-authority",
        Operation.ROTATE_NODE_CLIENT,
        "replace the node-client authority alone, and have API servers refuse the former one",
    )
    _add_ssh(actions, order, ssh_status)


def _add_ssh(actions: Commands, order: Load, status: Load) -> None:
    parser = actions.add_parser(
        "ssh",
        help="rotate the two SSH authorities",
        description="Orders are carried out by a controller that runs with --ssh.",
    )
    ssh = parser.add_subparsers(required=True, metavar="ACTION")
    shown = ssh.add_parser(
        "status",
        help="show both authorities, what is waited for, and who lags",
        description="Changes nothing. Exit code 0: no rotation is under way, or it goes on by itself; 3: nodes hold "
        "it, or the authorities are not available; 5: it waits for a person.",
    )
    _add_common(shown)
    shown.set_defaults(load=status)
    _add_order(ssh, order, "start", Operation.START_SSH, "make new authorities, and have nodes trust them")
    _add_order(ssh, order, "complete", Operation.COMPLETE_SSH, "have both new ones sign, and drop the old ones")
    _add_order(ssh, order, "rollback", Operation.ROLLBACK_SSH, "have the old ones sign, and drop the new ones")
    _add_order(ssh, order, "retry", Operation.RETRY_SSH, "wait for the gates that you name no longer")
    _add_order(
        ssh, order, "revoke-user", Operation.REVOKE_SSH_USER, "a thief has the user authority: replace it at once"
    )
    _add_order(
        ssh, order, "revoke-host", Operation.REVOKE_SSH_HOST, "a thief has the host authority: replace it at once"
    )


def _add_start(actions: Commands, order: Load) -> None:
    parser = actions.add_parser(
        "start", help="start a rotation: make a new CA, and have all trust it", description=_ORDERS
    )
    _add_common(parser)
    _add_asking(parser)
    parser.add_argument(
        "--without-workers-rollout",
        dest="operation",
        action="store_const",
        const=Operation.START_WITHOUT_WORKERS_ROLLOUT,
        default=Operation.START,
        help="let the owner of the worker nodes replace or restart them",
    )
    parser.set_defaults(load=order, skip_gates="")


def _add_abandon(actions: Commands, order: Load) -> None:
    parser = actions.add_parser(
        "abandon",
        help="have the controller leave everything as it is, for good: the rest is yours",
        description=f"For a rotation that can go neither on nor back. {_ORDERS}",
    )
    _add_common(parser)
    _add_asking(parser)
    parser.set_defaults(load=order, operation=Operation.ABANDON, skip_gates="")


def _add_confirm(actions: Commands, confirm: Load) -> None:
    parser = actions.add_parser(
        "confirm",
        help="seal a rotation whose controller key is lost, after you have compared its CAs",
        description="For a rotation that is Unverified, after a move or a restore without the controller key. Writes "
        "the rotation and its Secrets, with your rights. Exit code 0: it is sealed; 1: it cannot be; 6: you declined.",
    )
    _add_common(parser)
    add_controller_namespace(parser)
    parser.add_argument(
        "--node-client-authority",
        action="append",
        default=[],
        metavar="HASH",
        help="also seal Secret <cluster>-node-client-ca if it holds the CA with this hash (sha256:…)",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask; required without a terminal")
    parser.set_defaults(load=confirm)


def _add_order(actions: Commands, order: Load, name: str, operation: Operation, help_text: str) -> None:
    parser = actions.add_parser(name, help=help_text, description=_ORDERS)
    _add_common(parser)
    _add_asking(parser)
    parser.add_argument(
        "--skip-gates",
        default="",
        metavar="GATE,...",
        help=f"do not wait for these gates in this rotation; the record keeps that. Gates: {_GATES}",
    )
    parser.set_defaults(load=order, operation=operation)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_cluster_namespace(parser)
    add_management_cluster(parser)
    add_output(parser)


def _add_asking(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask; required without a terminal")
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help=f"do not wait for the controller's answer (default: wait up to {ANSWERED_WITHIN_SECONDS:.0f} seconds)",
    )
