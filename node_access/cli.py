"""``node-access-sessions``: serves sshd's principals command and ends sessions, or lists them."""

from __future__ import annotations

import argparse
import json
import pwd
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attestors.command_parser import EXIT_USAGE, CommandParser
from node_access.daemon import SOCKET, Daemon
from node_access.ending import EXIT_FAILED, end_with_output, end_with_reason
from node_access.machine import Machine
from node_access.node_files import FOLDER as NODE_FOLDER
from node_access.node_files import NodeFiles
from node_access.principals import UnknownRevocations
from node_access.records import FALLBACK_FOLDER, Records
from node_access.records import FOLDER as RECORDS_FOLDER
from node_access.registry import Sessions, SystemClock
from node_access.reports import write
from node_access.service import Stop, notify
from node_access.values import Session

_PROGRAM: Final = "node-access-sessions"
_USER: Final = "node-access"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    options = _parser().parse_args(arguments)
    return _list(options) if options.command == "list" else _run(options)


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog=_PROGRAM, description="Serves sshd's principals command and ends sessions, or lists them."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="serve sshd's principals command, and end sessions in time")
    listing = commands.add_parser("list", help="print the sessions, as JSON")
    for command in (run, listing):
        command.add_argument(
            "--folder",
            type=Path,
            default=NODE_FOLDER,
            metavar="FOLDER",
            help="the folder that kubelet-authenticator's ssh.folder names (default: %(default)s)",
        )
    return parser


def _run(options: argparse.Namespace) -> int:
    try:
        allowed = pwd.getpwnam(_USER).pw_uid
    except KeyError:
        return end_with_reason(_PROGRAM, EXIT_USAGE, f"there is no user {_USER}: run systemd-sysusers")
    clock = SystemClock()
    sessions = Sessions(Machine(), NodeFiles(options.folder), Records(RECORDS_FOLDER, FALLBACK_FOLDER), write, clock)
    try:
        sessions.restore()
        daemon = Daemon(sessions, path=SOCKET, allowed_user=allowed, report=write, clock=clock, alive=notify)
    except OSError as error:  # of another user than root, or without the folders that systemd makes
        where = error.filename or SOCKET
        return end_with_reason(
            _PROGRAM, EXIT_USAGE, f"{where}: {error.strerror}: start it by `systemctl start {_PROGRAM}`"
        )
    stop = Stop()
    stop.listen()
    try:
        daemon.run(stop)
    finally:
        SOCKET.unlink(missing_ok=True)
        daemon.close()
    return 0


def _list(options: argparse.Namespace) -> int:
    try:
        sessions, unusable = Records(RECORDS_FOLDER, FALLBACK_FOLDER).load()
    except OSError as error:
        return end_with_reason(
            _PROGRAM, EXIT_FAILED, f"{error.filename}: {error.strerror}: only root may read the records"
        )
    revocations = NodeFiles(options.folder).revocations()
    document = {
        "sessions": [_shown(session) for session in sessions],
        "unreadableRecords": unusable,
        "alarms": [revocations.why] if isinstance(revocations, UnknownRevocations) else [],
    }
    return end_with_output(_PROGRAM, json.dumps(document, indent=2))


def _shown(session: Session) -> dict[str, object]:
    certificate = session.certificate
    return {
        "unit": session.connection.unit,
        "login": session.login_name,
        "state": session.login.value,
        "keyID": certificate.key_id,
        "serial": certificate.serial,
        "authority": certificate.authority.fingerprint,
        "registeredAt": session.registered_at,
        "deadline": session.deadline if session.has_deadline else None,
    }


if __name__ == "__main__":
    sys.exit(main())
