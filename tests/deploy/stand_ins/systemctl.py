"""systemctl and the service manager: start a unit and the units that it wants, in their order.

``ExecStartPre`` runs. ``ExecStart`` is only recorded.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.deploy.stand_ins.events import record
from tests.deploy.units import read_service

HERE: Final = Path("/")


def main(arguments: list[str]) -> int:
    """``systemctl start|stop UNIT`` and ``systemctl daemon-reload``."""
    match arguments:
        case ["daemon-reload"]:
            record(program="systemctl", command="daemon-reload")
            return 0
        case ["stop", name]:
            record(program="systemctl", command="stop", unit=name)
            return 0
        case ["start", name]:
            return start(service_name(name))
    print(f"unsupported: systemctl {' '.join(arguments)}", file=sys.stderr)
    return 1


def service_name(name: str) -> str:
    """The full name of the unit."""
    return name if "." in name else f"{name}.service"


def start(name: str) -> int:
    """Start a service, also if a unit that it wants fails."""
    service = read_service(HERE, name)
    wanted = [unit for unit in dict.fromkeys(service.names("Wants")) if unit.endswith(".service")]
    before = [unit for unit in wanted if unit in service.names("After")]
    for unit in before:
        start(unit)
    if not service.conditions_met(HERE):
        record(program="systemd", unit=name, result="condition not met")
        return 0
    for command in service.command_lines("ExecStartPre", HERE):
        done = subprocess.run(command, check=False)
        record(program="systemd", unit=name, prepared=command, code=done.returncode)
        if done.returncode:
            record(program="systemd", unit=name, result="failed")
            return 1
    [command] = service.command_lines("ExecStart", HERE)
    record(program="systemd", unit=name, result="started", command=command)
    for unit in wanted:
        if unit not in before:
            start(unit)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
