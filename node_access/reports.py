"""What this program says in the journal."""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass

from node_access.values import Connection, Session


class Level(enum.IntEnum):
    """Of syslog(3); systemd reads it before each line."""

    ALERT = 1
    WARNING = 4
    INFO = 6


@dataclass(frozen=True, slots=True)
class Report:
    """One line."""

    level: Level
    text: str
    about: Session | Connection | None = None

    def __str__(self) -> str:
        return f"{_subject(self.about)}{self.text}"


def write(report: Report) -> None:
    """Write it to standard error."""
    line = str(report).encode("ascii", "backslashreplace").decode("ascii").replace("\n", "\\n")
    print(f"<{report.level.value}>{line}", file=sys.stderr, flush=True)


def _subject(about: Session | Connection | None) -> str:
    if about is None:
        return ""
    if isinstance(about, Connection):
        return f"{about.unit}: "
    certificate = about.certificate
    return (
        f"{about.connection.unit}: session of {about.login_name} by {certificate.key_id!a} "
        f"(serial {certificate.serial}, CA {certificate.authority.fingerprint}) "
    )
