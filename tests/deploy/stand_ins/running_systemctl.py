"""systemctl whose services run, with what kubeadm asks it besides; nothing is started again that ends."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.deploy.stand_ins.systemctl import HERE, main, service_name
from tests.deploy.units import UNIT_FOLDER, read_service

UNITS: Final = Path("/run/units")
_STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05


def systemctl(arguments: list[str]) -> int:
    """``start``, ``stop`` and ``restart`` of a unit, ``daemon-reload``, and questions about a unit."""
    match arguments:
        case ["is-enabled", _]:
            print("enabled")
            return 0
        case ["status" | "is-active", name]:
            running = is_running(service_name(name))
            print("Loaded: loaded" if arguments[0] == "status" else "active" if running else "inactive")
            return 0 if running else 3
        case ["stop", name]:
            halt_with_parts(service_name(name))
        case ["restart", name]:
            halt_with_parts(service_name(name))
            return main(["start", name], launch)
    return main(arguments, launch)


def launch(name: str, command: list[str], wait: bool) -> None:
    """Run a service in a process group of its own; what it writes goes to a log beside its process ID.

    ``wait`` is for ``Type=notify``: until it says that it is ready, or ends. One that runs already goes on.
    """
    if is_running(name):
        return
    UNITS.mkdir(exist_ok=True)
    address = UNITS / f"{name}.notify"
    address.unlink(missing_ok=True)
    with (UNITS / f"{name}.log").open("ab") as log, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(address))
        told.settimeout(_POLL_SECONDS)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "NOTIFY_SOCKET": str(address)},
        )
        (UNITS / f"{name}.pid").write_text(str(process.pid), encoding="utf-8")
        while wait and process.poll() is None:
            with contextlib.suppress(TimeoutError):
                wait = b"READY=1" not in told.recv(4096).splitlines()


def halt_with_parts(name: str) -> None:
    """End a service, and those that are part of it."""
    halt(name)
    for unit in sorted((HERE / UNIT_FOLDER).glob("*.service")):
        if name in read_service(HERE, unit.name).names("PartOf"):
            halt(unit.name)


def halt(name: str) -> None:
    """End a service, politely and then by force."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _STOP_SECONDS
        while is_running(name) and time.monotonic() < deadline:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(_process_id(name), number)
            time.sleep(_POLL_SECONDS)
    (UNITS / f"{name}.pid").unlink(missing_ok=True)


def is_running(name: str) -> bool:
    """Whether the service's process is there, and has not ended."""
    try:
        state = Path(f"/proc/{_process_id(name)}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _process_id(name: str) -> int:
    return int((UNITS / f"{name}.pid").read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(systemctl(sys.argv[1:]))
