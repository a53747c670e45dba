"""The commands that run in containers. Pure.

``pods/exec`` sets no environment and stops nothing, so a shell of the image sets the variables, and its processes are
found again by one of them. What a person asks for is an argument of that shell, and never part of its script.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import Final

SESSION_VARIABLE: Final = "NODE_ACCESS_SESSION"
"""In the environment of each process of a connection."""
SFTP_SERVERS: Final = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
)
"""Where Debian, Fedora, Alpine and others install OpenSSH's. Green End's (gesftpserver) answers out of order: OpenSSH
9.2's clients then cut off what they have uploaded, without an error (``do_upload`` in ``sftp-client.c``).
"""
SFTP: Final = "sftp"
SIGNALS: Final = frozenset({"ABRT", "ALRM", "HUP", "INT", "KILL", "PIPE", "QUIT", "TERM", "USR1", "USR2"})
"""Names of signals (RFC 4254 section 6.10) that a session passes on."""
CONTROL_CHARACTERS: Final = {"INT": b"\x03", "QUIT": b"\x1c"}
"""What a terminal makes these signals of."""
_PLACE_CHARACTERS: Final = 12
_TERM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", re.ASCII)
_VARIABLES: Final = f'export {SESSION_VARIABLE}="$1"; [ -z "$2" ] || export TERM="$2"; '
_ORIGINAL: Final = '[ -z "$3" ] || export SSH_ORIGINAL_COMMAND="$3"; '
_FOLDER: Final = '[ -z "$5" ] || cd "$5" || exit 126; '
_LOGIN: Final = f"{_VARIABLES}{_FOLDER}{_ORIGINAL}command -v bash >/dev/null 2>&1 && exec bash -l; exec sh -l"
_RUN: Final = f'{_VARIABLES}{_FOLDER}{_ORIGINAL}sh -c "$4"; exit $?'
"""The outer shell stays: containerd closes the input of a command that has closed its output, as ``cat > FILE`` does
(``attachOutput`` in CRI's ``exec_io.go``). kubectl loses data so."""
_SFTP: Final = f'{_VARIABLES}for one in {" ".join(SFTP_SERVERS)}; do [ ! -x "$one" ] || exec "$one"; done; exit 127'
_TOOLS_SFTP: Final = (
    'user="$(id -u)"; group="$(id -g)"; file="/dev/shm/node-access-$user"; '
    'for one in /usr/lib/*/libnss_wrapper.so; do [ -e "$one" ] || continue; '
    'echo "user:x:$user:$group::/:/" >"$file.passwd" && echo "user:x:$group:" >"$file.group" && export '
    'LD_PRELOAD="$one" NSS_WRAPPER_PASSWD="$file.passwd" NSS_WRAPPER_GROUP="$file.group"; done; '
)
"""OpenSSH's server ends for a user without a name (``main`` of ``sftp-server.c``), and no image has all names."""
_END: Final = (
    "round=0; while [ $round -lt 5 ]; do round=$((round + 1)); found=; for one in /proc/[0-9]*; do "
    '[ "$one" != "/proc/$$" ] || continue; '
    'variables="$(tr "\\000" "\\n" <"$one/environ" 2>/dev/null || cat "$one/environ" 2>/dev/null)"; '
    f'case "$variables" in *"{SESSION_VARIABLE}=$1"*) ;; *) continue;; esac; '
    f'[ -z "$3" ] || case "$variables" in *"{SESSION_VARIABLE}=$3"*) continue;; esac; '
    'kill -"$2" "${one#/proc/}" 2>/dev/null && found=1; done; '
    '[ -n "$found" ] && [ "$2" = KILL ] || break; done; :'
)
"""Again while it finds processes: one may have forked meanwhile. Never itself: in a tools container it has the grant's
mark. What begins with the third argument is spared; without one, nothing is, whatever variables a process has beside
its mark.
"""


@dataclass(frozen=True, slots=True)
class GatewayIdentity:
    """Which gateway, and which process of it: what a killed one has left is found by the next one in its place."""

    place: str
    process: str

    @classmethod
    def of(cls, place: str) -> GatewayIdentity:
        """A new process in that place, such as a host and a port at which only one gateway listens at a time."""
        return cls(hashlib.sha256(place.encode()).hexdigest()[:_PLACE_CHARACTERS], secrets.token_hex(4))


@dataclass(frozen=True, slots=True)
class SessionMark:
    """What the processes of one connection, or of one grant, have in common."""

    value: str

    @classmethod
    def of_grant(cls, uid: str) -> SessionMark:
        """The beginning of the marks of all connections by the grant with that UID, through any gateway."""
        return cls(f"{uid}.")

    @classmethod
    def of_place(cls, uid: str, gateway: GatewayIdentity) -> SessionMark:
        """The beginning of the marks of all connections by that grant through any gateway in that place."""
        return cls(f"{cls.of_grant(uid).value}{gateway.place}.")

    @classmethod
    def of_process(cls, uid: str, gateway: GatewayIdentity) -> SessionMark:
        """The beginning of the marks of all connections by that grant through that process."""
        return cls(f"{cls.of_place(uid, gateway).value}{gateway.process}.")

    @classmethod
    def of_connection(cls, uid: str, gateway: GatewayIdentity) -> SessionMark:
        """One that no other process can have by chance, of a connection by the grant with that UID."""
        return cls(f"{cls.of_process(uid, gateway).value}{secrets.token_hex(16)}")


def terminal_type(stated: str) -> str:
    """``TERM`` for a container: what the client says, if it is the name of a terminal."""
    return stated if _TERM.fullmatch(stated) else "dumb"


def session_command(mark: SessionMark, terminal: str, asked: str, forced: str, folder: str = "") -> tuple[str, ...]:
    """The program for a session. ``asked`` is empty for a shell, ``terminal`` is empty without a terminal. It starts in
    ``folder``, if that is named.

    A forced command runs instead of what was asked for, as with sshd.
    """
    command = forced or asked
    script = _RUN if command else _LOGIN
    return ("sh", "-c", script, "sh", mark.value, terminal, asked if forced else "", command, folder)


def probe_command() -> tuple[str, ...]:
    """Succeeds where the image has a shell."""
    return ("sh", "-c", ":")


def sftp_command(mark: SessionMark) -> tuple[str, ...]:
    """The image's server of SFTP; exit code 127 if it has none."""
    return ("sh", "-c", _SFTP, "sh", mark.value, "")


def tools_sftp_command(mark: SessionMark) -> tuple[str, ...]:
    """The same in a tools container, whose image does not know the container's user."""
    return ("sh", "-c", _TOOLS_SFTP + _SFTP, "sh", mark.value, "")


def leftovers_command(uid: str, gateway: GatewayIdentity) -> tuple[str, ...]:
    """Ends what earlier gateways in the place of this one have left of a grant, and nothing of this one."""
    mark, spared = SessionMark.of_place(uid, gateway), SessionMark.of_process(uid, gateway)
    return ("sh", "-c", _END, "sh", mark.value, "KILL", spared.value)


def end_command(mark: SessionMark, signal: str) -> tuple[str, ...]:
    """Sends a signal to every process of a connection that has kept its environment.

    Raises:
        ValueError: there is no such signal.
    """
    if signal not in SIGNALS:
        raise ValueError("no signal that a session passes on")
    return ("sh", "-c", _END, "sh", mark.value, signal)


__all__ = [
    "CONTROL_CHARACTERS",
    "SESSION_VARIABLE",
    "SFTP",
    "SFTP_SERVERS",
    "SIGNALS",
    "GatewayIdentity",
    "SessionMark",
    "end_command",
    "leftovers_command",
    "probe_command",
    "session_command",
    "sftp_command",
    "terminal_type",
    "tools_sftp_command",
]
