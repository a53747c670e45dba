"""A strict parser of the systemd units in the image: sections and keys, drop-ins, conditions, command lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

UNIT_FOLDER: Final = "etc/systemd/system"
SECTIONS: Final = {
    "Unit": frozenset(
        {"Description", "Documentation", "Wants", "After", "PartOf", "ConditionPathExists", "StartLimitIntervalSec"}
    ),
    "Service": frozenset(
        {
            *("Type", "Environment", "EnvironmentFile", "ExecStartPre", "ExecStart", "TimeoutStartSec"),
            *("Restart", "RestartSec", "RestartPreventExitStatus", "UMask", "StateDirectory", "ReadWritePaths"),
            *("ProtectSystem", "ProtectHome", "ProtectClock", "ProtectControlGroups", "ProtectHostname"),
            *("ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables", "ProtectProc", "PrivateTmp"),
            *("DevicePolicy", "DeviceAllow", "CapabilityBoundingSet", "NoNewPrivileges", "LockPersonality"),
            *("RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID"),
            *("SystemCallArchitectures", "SystemCallFilter", "SystemCallErrorNumber"),
        }
    ),
    "Install": frozenset({"WantedBy"}),
}
"""The keys that this project's units and kubeadm's use, by the section in which systemd reads them."""
REPEATABLE: Final = frozenset(
    {
        "Wants",
        "After",
        "ConditionPathExists",
        "Environment",
        "EnvironmentFile",
        "ExecStartPre",
        "ExecStart",
        "DeviceAllow",
    }
)
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")


class InvalidUnit(ValueError):
    """systemd would refuse or ignore a line."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One assignment."""

    section: str
    key: str
    value: str


def parse_unit(text: str) -> list[Entry]:
    """The assignments of a unit or drop-in.

    Raises:
        InvalidUnit: any line for which systemd would only log a warning.
    """
    found: list[Entry] = []
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line or line.startswith(("#", ";")):
            continue
        if heading := re.fullmatch(r"\[(\w+)\]", line):
            section = heading[1]
            if section not in SECTIONS:
                raise InvalidUnit(f"line {number}: unknown section {section}")
            continue
        key, equals, value = line.partition("=")
        if not equals or key != key.strip() or value != value.strip() or value.endswith("\\"):
            raise InvalidUnit(f"line {number}: not KEY=VALUE")
        if key not in SECTIONS.get(section, ()):
            raise InvalidUnit(f"line {number}: {key} is not a key of [{section}]")
        if key not in REPEATABLE and any((entry.section, entry.key) == (section, key) for entry in found):
            raise InvalidUnit(f"line {number}: {key} is repeated")
        found.append(Entry(section, key, value))
    return found


@dataclass(frozen=True, slots=True)
class Service:
    """A service with its drop-ins."""

    name: str
    entries: tuple[Entry, ...]

    def values(self, key: str) -> list[str]:
        """The values of the key, in order. An empty assignment clears the earlier ones."""
        found: list[str] = []
        for entry in self.entries:
            if entry.key == key:
                found = [*found, entry.value] if entry.value else []
        return found

    def names(self, key: str) -> list[str]:
        """The units that a dependency names."""
        return [name for value in self.values(key) for name in value.split()]

    def conditions_met(self, root: Path) -> bool:
        """Whether all plain conditions hold, and at least one of those with ``|``."""
        triggers: list[bool] = []
        plain: list[bool] = []
        for value in self.values("ConditionPathExists"):
            triggering, path = value.startswith("|"), value.removeprefix("|")
            there = (root / path.removeprefix("!").lstrip("/")).exists() != path.startswith("!")
            (triggers if triggering else plain).append(there)
        return all(plain) and (not triggers or any(triggers))

    def environment(self, root: Path) -> dict[str, str]:
        """Values of ``Environment=``, then those of the files. Later values replace earlier ones."""
        found = dict(_assignments(self.values("Environment")))
        for value in self.values("EnvironmentFile"):
            path = root / value.removeprefix("-").lstrip("/")
            if path.exists():
                found |= _assignments(path.read_text(encoding="utf-8").splitlines())
            elif not value.startswith("-"):
                raise InvalidUnit(f"{value} does not exist")
        return found

    def command_lines(self, key: str, root: Path) -> list[list[str]]:
        """The commands with their variables expanded: ``$NAME`` into words, ``${NAME}`` within one word."""
        environment = self.environment(root)
        return [list(_words(value, environment)) for value in self.values(key)]


def read_service(root: Path, name: str) -> Service:
    """Read a service from the folder with the machine's own units.

    Raises:
        FileNotFoundError: the unit does not exist.
        InvalidUnit: the unit or a drop-in is invalid.
    """
    folder = root / UNIT_FOLDER
    files = [folder / name, *sorted((folder / f"{name}.d").glob("*.conf"), key=lambda path: path.name)]
    return Service(name, tuple(entry for file in files for entry in parse_unit(file.read_text(encoding="utf-8"))))


def _assignments(lines: Iterable[str]) -> dict[str, str]:
    words = [word for line in lines for word in shlex.split(line)]
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def _words(command: str, environment: Mapping[str, str]) -> Iterator[str]:
    for word in shlex.split(command):
        if word.startswith("$") and not word.startswith("${"):
            yield from environment.get(word[1:], "").split()
        else:
            yield _VARIABLE.sub(lambda match: environment.get(match[1], ""), word)
