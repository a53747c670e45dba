"""systemd units, as strictly as the image's files need it: sections and keys, drop-ins, conditions, command lines."""

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
"""The keys that our units and kubeadm's use, in the section that systemd reads them from."""
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
    """systemd would refuse a line, or read over it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One assignment."""

    section: str
    key: str
    value: str


def parse_unit(text: str) -> list[Entry]:
    """The assignments of a unit or drop-in.

    Raises:
        InvalidUnit: anything that systemd would only warn of.
    """
    found: list[Entry] = []
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line or line.startswith(("#", ";")):
            continue
        if heading := re.fullmatch(r"\[(\w+)\]", line):
            section = heading[1]
            if section not in SECTIONS:
                raise InvalidUnit(f"line {number}: no section is called {section}")
            continue
        key, equals, value = line.partition("=")
        if not equals or key != key.strip() or value != value.strip() or value.endswith("\\"):
            raise InvalidUnit(f"line {number}: not KEY=VALUE")
        if key not in SECTIONS.get(section, ()):
            raise InvalidUnit(f"line {number}: {key} does not belong into [{section}]")
        if key not in REPEATABLE and any((entry.section, entry.key) == (section, key) for entry in found):
            raise InvalidUnit(f"line {number}: {key} is there twice")
        found.append(Entry(section, key, value))
    return found


@dataclass(frozen=True, slots=True)
class Service:
    """A service with its drop-ins."""

    name: str
    entries: tuple[Entry, ...]

    def values(self, key: str) -> list[str]:
        """What was assigned to the key, in order; an empty assignment forgets what was before it."""
        found: list[str] = []
        for entry in self.entries:
            if entry.key == key:
                found = [*found, entry.value] if entry.value else []
        return found

    def names(self, key: str) -> list[str]:
        """The units that a dependency names."""
        return [name for value in self.values(key) for name in value.split()]

    def conditions_met(self, root: Path) -> bool:
        """Plain conditions all hold; of those with ``|`` one does."""
        triggers: list[bool] = []
        plain: list[bool] = []
        for value in self.values("ConditionPathExists"):
            triggering, path = value.startswith("|"), value.removeprefix("|")
            there = (root / path.removeprefix("!").lstrip("/")).exists() != path.startswith("!")
            (triggers if triggering else plain).append(there)
        return all(plain) and (not triggers or any(triggers))

    def environment(self, root: Path) -> dict[str, str]:
        """``Environment=``, the later over the earlier, and over both what the files say."""
        found = dict(_assignments(self.values("Environment")))
        for value in self.values("EnvironmentFile"):
            path = root / value.removeprefix("-").lstrip("/")
            if path.exists():
                found |= _assignments(path.read_text(encoding="utf-8").splitlines())
            elif not value.startswith("-"):
                raise InvalidUnit(f"{value} is not there")
        return found

    def command_lines(self, key: str, root: Path) -> list[list[str]]:
        """The commands, with variables put in: ``$NAME`` as words, ``${NAME}`` as part of one."""
        environment = self.environment(root)
        return [list(_words(value, environment)) for value in self.values(key)]


def read_service(root: Path, name: str) -> Service:
    """A service of a root folder, from where the machine's own units lie.

    Raises:
        FileNotFoundError: there is none.
        InvalidUnit: it, or a drop-in, is wrong.
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
