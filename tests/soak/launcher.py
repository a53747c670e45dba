"""Runs the controller with an adjustable wall clock: ``python -m tests.soak.launcher CLOCK run …``.

``CLOCK`` is a file of eight bytes with the offset of this process's wall clock in seconds. Its monotonic clock is
unaffected, as on a machine whose clock is stepped.
"""

from __future__ import annotations

import mmap
import struct
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final
from unittest import mock

from signer import cli
from signer.controller.run import ControllerOptions

_FORMAT: Final = struct.Struct("<d")


class ClockFile:
    """Writes the offset to the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set(0.0)

    def set(self, seconds: float) -> None:
        """Set the clock ``seconds`` ahead."""
        with self.path.open("r+b" if self.path.exists() else "wb") as file:
            file.write(_FORMAT.pack(seconds))


def moved_clock(path: Path) -> Callable[[], datetime]:
    """A clock with the offset in the file."""
    with path.open("rb") as file:
        shared = mmap.mmap(file.fileno(), _FORMAT.size, access=mmap.ACCESS_READ)
    return lambda: datetime.now(UTC) + timedelta(seconds=_FORMAT.unpack(shared[: _FORMAT.size])[0])


def main() -> int:
    """Run the controller's command line with that clock."""
    now = moved_clock(Path(sys.argv[1]))
    with mock.patch("signer.cli.run.ControllerOptions", partial(ControllerOptions, now=now)):
        return cli.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
