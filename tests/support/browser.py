"""A real browser without a window: Chromium of Debian."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.support.binaries import MissingPart, skip_or_fail

_PROGRAMS: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_ALWAYS: Final = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage")
_LIGHT_OR_DARK: Final = {"light": 1, "dark": 0}


class Browser:
    """Opens pages of the file system, each in a process and with a profile of its own."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder

    def screenshot(
        self, page: Path, name: str, *, scheme: str = "light", width: int = 1920, height: int = 1080
    ) -> Path:
        """A picture of the page, ``name`` in the folder."""
        picture = self._folder / name
        self._run(
            page,
            f"--screenshot={picture}",
            f"--window-size={width},{height}",
            f"--blink-settings=preferredColorScheme={_LIGHT_OR_DARK[scheme]}",
        )
        return picture

    def document(self, page: Path) -> str:
        """The page as the browser has it after it has run what it runs, as HTML."""
        return self._run(page, "--dump-dom")

    def _run(self, page: Path, *arguments: str) -> str:
        profile = f"--user-data-dir={self._folder / 'profile'}"
        ran = subprocess.run(
            [self._program, *_ALWAYS, profile, *arguments, page.as_uri()],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


def browser_in(folder: Path) -> Browser:
    """The browser of this machine, which writes into ``folder``; the test is skipped where there is none."""
    found = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if found is None:
        skip_or_fail(
            MissingPart(
                "no Chromium is installed: run tests/provision/provision.sh, or install chromium-headless-shell"
            )
        )
    return Browser(found, folder)
