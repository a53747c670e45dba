"""A connection for a moment, after which the node prolongs the sessions of the same grant."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Final

from node_access.client.errors import ClientFailed

_AUTHENTICATED: Final = b"Authenticated to "
_SECONDS: Final = 30.0
_MOMENT_SECONDS: Final = 1.0
_MAXIMUM_LINES: Final = 200
_OPTIONS: Final = (
    *("BatchMode=yes", "ConnectTimeout=15", "LogLevel=VERBOSE", "ClearAllForwardings=yes"),
    *("ControlMaster=no", "ControlPath=none", "RequestTTY=no"),
)


def touch(config: Path, alias: str, login: str) -> bool:
    """Log in without a session, and go after a moment; returns whether the login succeeded.

    The node prolongs sessions of the same login when it sees that the login has succeeded and goes on.

    Raises:
        ClientFailed: ``ssh`` cannot be started.
    """
    options = [word for one in _OPTIONS for word in ("-o", one)]
    words = [program("ssh"), "-F", str(config), "-N", *options, "-l", login, alias]
    try:
        process = subprocess.Popen(  # noqa: S603
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=sys.platform != "win32",
        )
    except OSError as error:
        raise ClientFailed(f"ssh cannot be started: {error.strerror}") from error
    timer = threading.Timer(_SECONDS, _kill, [process])
    timer.start()
    try:
        succeeded = _is_authenticated(process.stderr)
        if succeeded:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_MOMENT_SECONDS)
        return succeeded
    finally:
        timer.cancel()
        _kill(process)
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With the ``ssh`` that it started for the bastion: that one has the same standard error, and may wait for good."""
    if sys.platform == "win32":
        process.kill()
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def program(name: str) -> str:
    """The path of one of OpenSSH's programs.

    Raises:
        ClientFailed: it is not installed.
    """
    found = shutil.which(name)
    if found is None:
        raise ClientFailed(f"{name} is not installed, or not in PATH")
    return found


def _is_authenticated(stderr: IO[bytes] | None) -> bool:
    assert stderr is not None
    for _ in range(_MAXIMUM_LINES):
        line = stderr.readline(65536)
        if not line:
            return False
        if line.startswith(_AUTHENTICATED):
            return True
    return False
