"""``node-attestation-controller rotate CLUSTER …``: rotate a cluster's CAs, and watch it."""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import sys
import textwrap
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from signer.cli.arguments import WrongUse, add_controller_namespace, add_management_cluster, cluster_key, namespace
from signer.cli.management import management_access
from signer.cli.output import add_output, print_result, print_to_stderr
from signer.cli.rotate_confirm import NoControllerKey, confirm_rotation, confirmed_as_json, what_is_confirmed
from signer.cli.rotate_order import ANSWERED_WITHIN_SECONDS, Answer, Asked, NotOrdered, OrderAnswer, place, what_happens
from signer.cli.rotate_output import (
    answer_as_json,
    preflight_as_json,
    show_answer,
    show_preflight,
    show_status,
    status_as_json,
)
from signer.cli.rotate_preflight import Readiness, examine
from signer.cli.rotate_reading import NoPolicy, read_policy, read_view
from signer.cli.rotate_ssh import SSHAttention, show_ssh_status, ssh_status_as_json, ssh_view
from signer.cli.rotate_watch import watch
from signer.controller.named_cluster import NoSuchCluster, require_cluster
from signer.kube.client import Client
from signer.kube.errors import Conflict
from signer.model.cluster import ClusterKey
from signer.model.command_failures import CommandFailed
from signer.rotation.confirmation import CannotBeConfirmed, NothingToConfirm, Unconfirmed
from signer.rotation.operations import Gate, Operation, UnknownGate, read_gates
from signer.rotation.view import Attention, View
from signer.store.cluster_api import discover_cluster_api

if TYPE_CHECKING:
    from signer.cli.arguments import Commands

EXIT_NEEDS_ATTENTION: Final = 3
EXIT_REJECTED: Final = 4
EXIT_WAITS: Final = 5
EXIT_NOT_ORDERED: Final = 6
_BY_ATTENTION: Final[Mapping[Attention, int]] = {
    Attention.NONE: 0,
    Attention.PERSON: EXIT_WAITS,
    Attention.NEEDED: EXIT_NEEDS_ATTENTION,
}
_BY_READINESS: Final[Mapping[Readiness, int]] = {
    Readiness.READY: 0,
    Readiness.NOT_READY: EXIT_NEEDS_ATTENTION,
    Readiness.NOT_KNOWN: EXIT_WAITS,
}
_BY_ANSWER: Final[Mapping[Answer, int]] = {
    Answer.ACCEPTED: 0,
    Answer.NOT_AWAITED: 0,
    Answer.REJECTED: EXIT_REJECTED,
    Answer.NONE: EXIT_WAITS,
}
_BY_SSH_ATTENTION: Final[Mapping[SSHAttention, int]] = {
    SSHAttention.NONE: 0,
    SSHAttention.PERSON: EXIT_WAITS,
    SSHAttention.NEEDED: EXIT_NEEDS_ATTENTION,
}
_ORDERS: Final = "Exit code 0: the controller has accepted it; 4: rejected it; 5: does not answer; 6: you declined."
_CONFIRMED: Final = "the rotation is confirmed; `rotate … status` shows it"
_GATES: Final = ", ".join(gate.value for gate in Gate)
Found = TypeVar("Found")


class RotateFailed(CommandFailed):
    """The command cannot do what it is for; the message says why."""


def add_rotate(parser: argparse.ArgumentParser) -> None:
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
    checks.set_defaults(command=_preflight)
    _add_start(actions)
    status = actions.add_parser(
        "status",
        help="show what is proven, what is waited for, who lags, and what to do",
        description="Changes nothing. Exit code 0: no rotation is under way, or it goes on by itself; 3: it has "
        "stalled, or its state does not count; 5: it waits for a person.",
    )
    _add_common(status)
    status.add_argument(
        "--watch", action="store_true", help="show every change, until the rotation is over or waits for a person"
    )
    status.set_defaults(command=_status)
    _add_order(actions, "complete", Operation.COMPLETE, "replace the old CA by the new one, after it is Prepared")
    _add_order(actions, "rollback", Operation.ROLLBACK, "take back as much as can be taken back now")
    _add_order(actions, "retry", Operation.RETRY, "go on after a stall or a rollback of clients")
    _add_abandon(actions)
    _add_confirm(actions)
    _add_order(
        actions,
        "node-client-authority",
        Operation.ROTATE_NODE_CLIENT,
        "replace the node-client authority alone, and have API servers refuse the former one",
    )
    _add_ssh(actions)


def _add_ssh(actions: Commands) -> None:
    parser = actions.add_parser(
        "ssh",
        help="rotate the two SSH authorities",
        description="Orders are carried out by a controller that runs with --ssh.",
    )
    ssh = parser.add_subparsers(required=True, metavar="ACTION")
    status = ssh.add_parser(
        "status",
        help="show both authorities, what is waited for, and who lags",
        description="Changes nothing. Exit code 0: no rotation is under way, or it goes on by itself; 3: nodes hold "
        "it, or the authorities are not available; 5: it waits for a person.",
    )
    _add_common(status)
    status.set_defaults(command=_ssh_status)
    _add_order(ssh, "start", Operation.START_SSH, "make new authorities, and have nodes trust them")
    _add_order(ssh, "complete", Operation.COMPLETE_SSH, "have both new ones sign, and drop the old ones")
    _add_order(ssh, "rollback", Operation.ROLLBACK_SSH, "have the old ones sign, and drop the new ones")
    _add_order(ssh, "retry", Operation.RETRY_SSH, "wait for the gates that you name no longer")
    _add_order(ssh, "revoke-user", Operation.REVOKE_SSH_USER, "a thief has the user authority: replace it at once")
    _add_order(ssh, "revoke-host", Operation.REVOKE_SSH_HOST, "a thief has the host authority: replace it at once")


def _add_start(actions: Commands) -> None:
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
    parser.set_defaults(command=_order, skip_gates="")


def _add_abandon(actions: Commands) -> None:
    parser = actions.add_parser(
        "abandon",
        help="have the controller leave everything as it is, for good: the rest is yours",
        description=f"For a rotation that can go neither on nor back. {_ORDERS}",
    )
    _add_common(parser)
    _add_asking(parser)
    parser.set_defaults(command=_order, operation=Operation.ABANDON, skip_gates="")


def _add_confirm(actions: Commands) -> None:
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
    parser.set_defaults(command=_confirm)


def _add_order(actions: Commands, name: str, operation: Operation, help_text: str) -> None:
    parser = actions.add_parser(name, help=help_text, description=_ORDERS)
    _add_common(parser)
    _add_asking(parser)
    parser.add_argument(
        "--skip-gates",
        default="",
        metavar="GATE,...",
        help=f"do not wait for these gates in this rotation; the record keeps that. Gates: {_GATES}",
    )
    parser.set_defaults(command=_order, operation=operation)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n", "--namespace", type=namespace, default="default", help="namespace of the Cluster (default: default)"
    )
    add_management_cluster(parser)
    add_output(parser)


def _add_asking(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask; required without a terminal")
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help=f"do not wait for the controller's answer (default: wait up to {ANSWERED_WITHIN_SECONDS:.0f} seconds)",
    )


def _preflight(options: argparse.Namespace) -> int:
    found = _run(options, lambda management, key: examine(management, key, datetime.now(UTC)))
    print_result(options.output, lambda: preflight_as_json(found), lambda console: show_preflight(found, console))
    return _BY_READINESS[found.readiness]


def _status(options: argparse.Namespace) -> int:
    if options.watch:
        last = _run(options, lambda management, key: watch(management, key, options.output))
        return _BY_ATTENTION[last.attention]
    view = _run(options, read_view)
    print_result(
        options.output,
        lambda: status_as_json(view),
        lambda console: show_status(view, console, datetime.now(UTC)),
    )
    return _BY_ATTENTION[view.attention]


def _ssh_status(options: argparse.Namespace) -> int:
    view = ssh_view(_run(options, read_policy))
    print_result(options.output, lambda: ssh_status_as_json(view), lambda console: show_ssh_status(view, console))
    return _BY_SSH_ATTENTION[view.attention]


def _order(options: argparse.Namespace) -> int:
    try:
        gates = read_gates(tuple(filter(None, (one.strip() for one in options.skip_gates.split(",")))))
    except UnknownGate as error:
        raise WrongUse(f"--skip-gates: {error}") from error
    _require_answer(options)
    asked = Asked(options.operation, gates)

    async def ordered(management: Client, key: ClusterKey) -> OrderAnswer:
        confirm = _agreed if options.yes else _ask_for_order
        return await place(management, key, asked, confirm=confirm, waits=not options.no_wait)

    try:
        answer = _run(options, ordered)
    except NotOrdered as error:
        print_to_stderr(f"node-attestation-controller: {error}")
        return EXIT_NOT_ORDERED
    print_result(options.output, lambda: answer_as_json(answer), lambda console: show_answer(answer, console))
    return _BY_ANSWER[answer.answer]


def _confirm(options: argparse.Namespace) -> int:
    _require_answer(options)

    def agreed(found: Unconfirmed) -> bool:
        return bool(options.yes) or _ask(what_is_confirmed(found))

    try:
        found = _run(
            options,
            lambda management, key: confirm_rotation(
                management,
                key,
                options.controller_namespace,
                agreed,
                node_client=frozenset(options.node_client_authority),
            ),
        )
    except NotOrdered as error:
        print_to_stderr(f"node-attestation-controller: {error}")
        return EXIT_NOT_ORDERED
    except (NoControllerKey, NothingToConfirm, CannotBeConfirmed, Conflict) as error:
        raise RotateFailed(str(error)) from error
    print_result(
        options.output,
        lambda: confirmed_as_json(found),
        lambda console: console.print(_CONFIRMED),
    )
    return 0


def _require_answer(options: argparse.Namespace) -> None:
    if not options.yes and not sys.stdin.isatty():
        raise WrongUse("standard input is no terminal, so nobody can be asked: give --yes")


def _agreed(view: View, asked: Asked) -> bool:
    return True


def _ask_for_order(view: View, asked: Asked) -> bool:
    return _ask(what_happens(view, asked))


def _ask(lines: Iterable[str]) -> bool:
    """Say what will happen, and read the answer from the terminal. Standard output stays free for the result."""
    for line in lines:
        print_to_stderr(textwrap.fill(line, width=shutil.get_terminal_size().columns))
    sys.stderr.write("Go on? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _run(options: argparse.Namespace, action: Callable[[Client, ClusterKey], Coroutine[Any, Any, Found]]) -> Found:
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    key = cluster_key(options.cluster, default_namespace=options.namespace)

    async def connected() -> Found:
        access = await management_access(options)
        async with Client(access.connection, token_source=access.token_source) as management:
            try:
                return await action(management, key)
            except NoPolicy:
                await require_cluster(management, (await discover_cluster_api(management)).clusters, key)
                raise

    try:
        return asyncio.run(connected())
    except (NoSuchCluster, NoPolicy) as error:
        raise RotateFailed(str(error)) from error
