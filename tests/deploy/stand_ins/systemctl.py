"""systemctl and the service manager: starts a unit with what it wants, after what it is ordered after.

``ExecStartPre`` runs; ``ExecStart`` is written down only.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.deploy.stand_ins.events import write_down
from tests.deploy.units import read_service

HERE: Final = Path("/")


def main(arguments: list[str]) -> int:
    """``systemctl start|stop UNIT`` and ``systemctl daemon-reload``."""
    match arguments:
        case ["daemon-reload"]:
            write_down(program="systemctl", command="daemon-reload")
            return 0
        case ["stop", name]:
            write_down(program="systemctl", command="stop", unit=name)
            return 0
        case ["start", name]:
            return start(service_name(name))
    print(f"nobody does systemctl {' '.join(arguments)}", file=sys.stderr)
    return 1


def service_name(name: str) -> str:
    """The unit that is meant."""
    return name if "." in name else f"{name}.service"


def start(name: str) -> int:
    """Start a service; a wanted one that fails does not keep it from starting."""
    service = read_service(HERE, name)
    wanted = [unit for unit in dict.fromkeys(service.names("Wants")) if unit.endswith(".service")]
    before = [unit for unit in wanted if unit in service.names("After")]
    for unit in before:
        start(unit)
    if not service.conditions_met(HERE):
        write_down(program="systemd", unit=name, result="condition not met")
        return 0
    for command in service.command_lines("ExecStartPre", HERE):
        done = subprocess.run(command, check=False)
        write_down(program="systemd", unit=name, prepared=command, code=done.returncode)
        if done.returncode:
            write_down(program="systemd", unit=name, result="failed")
            return 1
    [command] = service.command_lines("ExecStart", HERE)
    write_down(program="systemd", unit=name, result="started", command=command)
    for unit in wanted:
        if unit not in before:
            start(unit)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
