"""``node-access``, which is ``kubectl-node_access``, too."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from attestors.command_parser import CommandParser
from attestors.standard_output import OutputNotWritten, checked_argparse_output, discard_output
from node_access.client import connecting, doctor, file_commands, grant_commands, sessions
from node_access.client.access import KEY_FROM_STANDARD_INPUT
from node_access.client.arguments import add_address, add_folder, add_management, add_request, add_way, seconds
from node_access.client.errors import ClientFailed, WrongUse
from node_access.client.signals import Signalled, end_by
from node_access.client.terminal import say

_NODE_OR_CONTAINER: Final = "or NAMESPACE_POD_CONTAINER[.CLUSTER]; deploy.NAME, sts.NAME, ds.NAME or job.NAME for POD"
_EXAMPLES: Final = """\
examples:
  {program} ssh worker-1.production
  {program} ssh worker-1.production -- journalctl -u kubelet
  {program} ssh shop_web-0_app.production
  {program} scp worker-1.production:/var/log/syslog .
  {program} forward worker-1.production 8080:localhost:80
  {program} grant create worker-1.production --duration 8h --reason upgrade
"""
_PLUGIN: Final = "kubectl-node_access"
_SESSIONS: Final = frozenset({"ssh", "scp", "forward"})


@dataclass(frozen=True, slots=True)
class _Codes:
    """Exit codes of this program's own failures."""

    failed: int
    wrong_use: int


_CODES: Final = _Codes(failed=1, wrong_use=2)
_SESSION_CODES: Final = _Codes(failed=sessions.FAILED, wrong_use=sessions.FAILED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    given, words = command_words(sys.argv[1:] if arguments is None else arguments)
    codes = _SESSION_CODES if given[:1] and given[0] in _SESSIONS else _CODES
    try:
        return _run(given, words)
    except SystemExit as error:  # argparse has said what is wrong, or has shown its help
        return codes.wrong_use if error.code else 0
    except WrongUse as error:
        say(f"{_name()}: error: {error}")
        return codes.wrong_use
    except ClientFailed as error:
        say(f"{_name()}: error: {error}")
        return codes.failed
    except OutputNotWritten as error:
        discard_output(sys.stdout)
        say(f"{_name()}: error: standard output cannot be written: {error}: fix that, or write elsewhere")
        return codes.failed
    except BrokenPipeError:
        discard_output(sys.stdout)
        return codes.failed
    except KeyboardInterrupt:
        return end_by(signal.SIGINT)
    except Signalled as error:
        return end_by(error.number)
    except Exception:  # noqa: BLE001 - Python's own code for it, 1, would look like the remote command's
        traceback.print_exc()
        return codes.failed


def _run(given: Sequence[str], words: Sequence[str]) -> int:
    with checked_argparse_output():
        options = parser(_name()).parse_args(given)
    options.words = words
    command: Callable[[argparse.Namespace], int] = options.command
    return command(options)


def command_words(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options, and what follows the first ``--`` of ``ssh``: the node's command, which may have options of its own."""
    given = list(arguments)
    if given[:1] == ["ssh"] and "--" in given:
        at = given.index("--")
        return given[:at], given[at + 1 :]
    return given, []


def _name() -> str:
    return "kubectl node-access" if _PLUGIN in (sys.argv[0] if sys.argv else "") else "node-access"


def parser(name: str = "node-access") -> argparse.ArgumentParser:
    """The command line."""
    top = CommandParser(
        prog=name,
        description="Reach the nodes of a Cluster by SSH, with a grant that ends. Talks to the management cluster "
        "through kubectl.",
        epilog=_EXAMPLES.format(program=name),
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    _add_sessions(commands)
    _add_grants(commands)
    _add_files(commands)
    check = commands.add_parser("doctor", help="check ssh, kubectl, agent, rights, clock and configuration")
    check.add_argument("cluster", nargs="?", default="", metavar="CLUSTER", help="check a grant for it by a dry run")
    check.add_argument("-l", "--login", default="root", help="login on the node (default: root)")
    add_management(check)
    check.set_defaults(command=doctor.doctor)
    return top


def _add_sessions(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    ssh = commands.add_parser(
        "ssh",
        help="log in to a node or a container",
        usage="%(prog)s [OPTIONS] NODE[.CLUSTER] [-- COMMAND ...]",
        of_words="a command for the node follows --",
    )
    ssh.add_argument("node", metavar="NODE[.CLUSTER]", help=_NODE_OR_CONTAINER)
    ssh.add_argument(
        "-o", "--option", action="append", default=[], metavar="KEY=VALUE", help="option of ssh; may be repeated"
    )
    ssh.set_defaults(command=sessions.ssh)
    copy = commands.add_parser("scp", help="copy files from or to a node or a container")
    copy.add_argument(
        "paths", nargs="+", metavar="PATH", help="a local path, or NODE[.CLUSTER]:PATH; the last is the target"
    )
    copy.add_argument("-r", "--recursive", action="store_true", help="copy folders with all that is in them")
    copy.add_argument(
        "-O",
        dest="legacy",
        action="store_true",
        help="use the protocol before SFTP, which needs the program scp on the other side",
    )
    copy.set_defaults(command=sessions.scp)
    forward = commands.add_parser("forward", help="forward local ports to what a node reaches, or to a pod")
    forward.add_argument("node", metavar="NODE[.CLUSTER]", help=_NODE_OR_CONTAINER)
    forward.add_argument("forwards", nargs="+", metavar="[ADDRESS:]PORT:HOST:PORT", help="as ssh -L has it")
    forward.set_defaults(command=sessions.forward_ports)
    for one in (ssh, copy, forward):
        add_way(one)
        add_request(one)
        add_management(one)
        one.add_argument("--keep", action="store_true", help="keep the grant when its last session has ended")
        if one is not forward:
            one.add_argument("--port-forwarding", action="store_true", help="ask for port forwarding, too")


def _add_grants(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    grant = commands.add_parser("grant", help="create, list, show, extend, revoke and approve grants")
    actions = grant.add_subparsers(required=True, metavar="ACTION")
    create = actions.add_parser("create", help="ask for access that outlives a session")
    create.add_argument("nodes", nargs="*", metavar="NODE.CLUSTER", help="or one NAMESPACE_POD_CONTAINER.CLUSTER")
    create.add_argument("--all-nodes", action="store_true", help="every node of --cluster, also later ones")
    create.add_argument("--name", default="", help="name of the grant (default: made from the node's)")
    create.add_argument("--port-forwarding", action="store_true", help="allow port forwarding")
    create.add_argument("--force-command", default="", metavar="COMMAND", help="the only command that nodes run")
    create.add_argument("--no-wait", action="store_true", help="print the grant before it is ready")
    add_request(create)
    create.set_defaults(command=grant_commands.create)
    listing = actions.add_parser("list", help="the grants of the namespace")
    listing.set_defaults(command=grant_commands.list_grants)
    show = actions.add_parser("show", help="one grant, with its conditions")
    show.add_argument("grant", metavar="GRANT", help="name of the grant")
    show.set_defaults(command=grant_commands.show_one)
    extend = actions.add_parser("extend", help="send one heartbeat, and write the new certificates")
    extend.add_argument("grant", metavar="GRANT", help="name of the grant")
    extend.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="SECONDS", help="how long to wait for the answer (default: 60)"
    )
    extend.set_defaults(command=grant_commands.extend)
    revoke = actions.add_parser("revoke", help="end grants, and their sessions")
    revoke.add_argument("grants", nargs="+", metavar="GRANT", help="name of a grant")
    revoke.set_defaults(command=grant_commands.revoke)
    approve = actions.add_parser("approve", help="approve or deny another person's grant")
    approve.add_argument("grant", metavar="GRANT", help="name of the grant")
    approve.add_argument("--deny", action="store_true", help="deny the grant, which ends it")
    approve.add_argument("--yes", action="store_true", help="do not ask before")
    approve.add_argument("--user", default="", metavar="NAME", help="your name, for API servers before 1.28")
    approve.set_defaults(command=grant_commands.approve)
    for one in (create, listing, show, extend):
        one.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default: table")
    for one in (create, listing, show, extend, revoke, approve):
        add_management(one)
    patch = commands.add_parser("patch-ingress", help="let a bastion be reached from this machine's present address")
    patch.add_argument("grant", metavar="GRANT", help="name of the grant")
    add_address(patch)
    add_management(patch)
    patch.set_defaults(command=grant_commands.patch_ingress)


def _add_files(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    config = commands.add_parser("config", help="write ssh's configuration for the live grants of this machine")
    config.add_argument("--install", action="store_true", help="have ~/.ssh/config include it")
    config.add_argument("-l", "--login", default="", help="login on the nodes (default: the grant's first)")
    add_management(config)
    config.set_defaults(command=file_commands.config)
    known = commands.add_parser("known-hosts", help="print the known_hosts lines of a grant")
    known.add_argument("grant", metavar="GRANT", help="name of the grant")
    add_management(known)
    known.set_defaults(command=file_commands.show_known_hosts)
    connecting_to = commands.add_parser("connect", help="for ssh: connect to the address of a node that answers")
    connecting_to.add_argument("port", type=int, metavar="PORT", help="port of sshd on the node")
    connecting_to.add_argument(
        "addresses", nargs="+", metavar="ADDRESS", help="addresses of the node, in the order in which to try them"
    )
    connecting_to.add_argument("--through", default="", metavar="HOST", help="the bastion, as --config names it")
    connecting_to.add_argument("--config", default="", metavar="FILE", help="configuration of ssh for the bastion")
    connecting_to.add_argument(
        "--pause",
        type=seconds,
        default=5.0,
        metavar="SECONDS",
        help="how long to wait before the next address (default: 5)",
    )
    connecting_to.set_defaults(command=connecting.connect)
    agent = commands.add_parser("agent", help="keep a grant of this machine alive until it ends; others start it")
    agent.add_argument("grant", metavar="GRANT", help="name, NAMESPACE/NAME or UID")
    agent.add_argument(KEY_FROM_STANDARD_INPUT, action="store_true", help=argparse.SUPPRESS)
    add_folder(agent)
    agent.set_defaults(command=file_commands.agent)


if __name__ == "__main__":
    sys.exit(main())
