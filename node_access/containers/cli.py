"""``node-access-containers``: SSH sessions in the containers of this node."""

from __future__ import annotations

import argparse
import grp
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attestors.command_parser import EXIT_USAGE, CommandParser
from node_access.containers.agent import SESSIONS, SOCKET, Agent, Files
from node_access.containers.finding import RUNTIME_ROOT, TASKS, Bundles, NotOpen, open_container
from node_access.containers.running import PROGRAMS
from node_access.containers.session import Settings
from node_access.containers.tools import ACCOUNTS, BUSYBOX, SFTP_SERVER, NoTools, load_tools
from node_access.containers.users import (
    DATABASE,
    FIRST_UID,
    POOL_SIZE,
    STATE,
    InvalidState,
    Pool,
    load_users,
    require_own_database,
)
from node_access.ending import EXIT_FAILED, end_with_output, end_with_reason
from node_access.service import Stop, notify

_PROGRAM: Final = "node-access-containers"
GROUP: Final = "node-access-containers"
_DEFAULT: Final = "(default: %(default)s)"
_LOWEST_UID: Final = 65_536
_HIGHEST_UID: Final = 2**31


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    options = _parser().parse_args(arguments)
    return _list(options) if options.command == "list" else _run(options)


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog=_PROGRAM, description="SSH sessions in the containers of this node.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="serve sessions, and keep the users of containers")
    listing = commands.add_parser("list", help="print the containers, as JSON")
    for command in (run, listing):
        command.add_argument(
            "--tasks", type=Path, default=TASKS, metavar="FOLDER", help=f"containerd's folder of containers {_DEFAULT}"
        )
        command.add_argument(
            "--runtime-root",
            type=Path,
            default=RUNTIME_ROOT,
            metavar="FOLDER",
            help=f"--root of runc or crun {_DEFAULT}",
        )
    run.add_argument("--runc", default=PROGRAMS["runc"], metavar="FILE", help=f"path of runc {_DEFAULT}")
    run.add_argument("--crun", default=PROGRAMS["crun"], metavar="FILE", help=f"path of crun {_DEFAULT}")
    run.add_argument(
        "--busybox", type=Path, default=BUSYBOX, metavar="FILE", help=f"path of a static busybox {_DEFAULT}"
    )
    run.add_argument(
        "--sftp-server",
        type=Path,
        default=SFTP_SERVER,
        metavar="FILE",
        help=f"path of OpenSSH's sftp-server {_DEFAULT}",
    )
    run.add_argument(
        "--nss-wrapper", type=Path, default=ACCOUNTS, metavar="FILE", help=f"path of libnss_wrapper.so {_DEFAULT}"
    )
    run.add_argument(
        "--first-uid", type=int, default=FIRST_UID, metavar="UID", help=f"the first of the users' uids {_DEFAULT}"
    )
    run.add_argument(
        "--uids", type=int, default=POOL_SIZE, metavar="NUMBER", help=f"how many containers get a user {_DEFAULT}"
    )
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.first_uid < _LOWEST_UID or options.uids < 1 or options.first_uid + options.uids > _HIGHEST_UID:
        return end_with_reason(
            _PROGRAM, EXIT_USAGE, f"the uids of --first-uid and --uids are not between {_LOWEST_UID} and {_HIGHEST_UID}"
        )
    pool = Pool(options.first_uid, options.uids)
    try:
        group = grp.getgrnam(GROUP).gr_gid
    except KeyError:
        return end_with_reason(_PROGRAM, EXIT_USAGE, f"there is no group {GROUP}: run systemd-sysusers")
    try:
        require_own_database(DATABASE, pool)
        users = load_users(STATE, pool, time.clock_gettime(time.CLOCK_BOOTTIME))
        tools = load_tools(options.busybox, options.sftp_server, options.nss_wrapper)
    except (InvalidState, NoTools) as failure:
        return end_with_reason(_PROGRAM, EXIT_USAGE, str(failure))
    settings = Settings(options.runtime_root, {"runc": options.runc, "crun": options.crun}, tools)
    files = Files(SOCKET, SESSIONS, STATE, DATABASE, group)
    try:
        agent = Agent(Bundles(options.tasks), users, settings, files, notify)
    except OSError as error:  # of another user than root
        where = error.filename or SOCKET
        return end_with_reason(
            _PROGRAM, EXIT_USAGE, f"{where}: {error.strerror}: start it by `systemctl start {_PROGRAM}`"
        )
    stop = Stop()
    stop.listen()
    try:
        agent.run(stop)
    finally:
        agent.close()
    return 0


def _list(options: argparse.Namespace) -> int:
    if not options.tasks.is_dir():
        why = f"{options.tasks}: no such folder: containerd has started no container, or --tasks names another one"
        return end_with_reason(_PROGRAM, EXIT_FAILED, why)
    bundles, skipped = Bundles(options.tasks).all()
    containers = []
    for bundle in sorted(bundles, key=lambda one: one.name):
        shown = {"user": bundle.name, "container": bundle.identifier}
        try:
            open_container(bundle, options.runtime_root)
        except NotOpen as refusal:
            shown["refused"] = str(refusal)
        containers.append(shown)
    document = {
        "containers": containers,
        "skipped": [{"container": one.identifier, "why": one.why} for one in skipped],
    }
    return end_with_output(_PROGRAM, json.dumps(document, indent=2))


if __name__ == "__main__":
    sys.exit(main())
