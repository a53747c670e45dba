"""Every command of ``docs/playground.md``, in its order, in the playground that ``make playground`` opens."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.documents.markdown import ROOT, blocks
from tests.playground.__main__ import READY
from tests.playground.stage import ENVIRONMENT, WORKERS
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.kubectl import find_kubectl
from tests.support.processes import Programs, wait_until
from tests.support.software_tpm import find_swtpm, find_tpm_library

pytestmark = [pytest.mark.real, pytest.mark.slow]

PAGE: Final = ROOT / "docs/playground.md"
FOLDER: Final = "build/playground"
"""As on the page."""
DENIED: Final = 7
"""Exit code of ``kubelet-authenticator``."""
WOULD_BE_DENIED: Final = 4
"""Exit code of ``explain``."""
SECONDS: Final = 120.0
SHOWS: Final[dict[str, tuple[int, str]]] = {
    "get attestednodes": (0, r"production\.worker-2 +worker-2"),
    "get csr theft-1": (0, "Approved,Issued"),
    "get csr theft-2": (0, "Pending"),
    "preflight": (0, "Ready for Enforce"),
    "status": (0, "EndorsementKeyMismatch 1"),
    "explain": (WOULD_BE_DENIED, "EndorsementKeyMismatch"),
    "get clusterrolebindings": (0, "kubeadm:node-autoapprove-bootstrap"),
}
"""The exit codes of commands that change nothing, and what they print after a while, by some of their words."""


@pytest.fixture
def programs() -> Iterator[Programs]:
    try:
        find_tpm_library()
        find_swtpm()
        find_kubectl()
    except MissingPart as missing:
        skip_or_fail(missing)
    programs = Programs("node-attestation-playground-")
    try:
        yield programs
    finally:
        programs.close()


def ran(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What a command of the page does, in a shell that has read the environment."""
    line = f". {FOLDER}/{ENVIRONMENT}\n{command}".replace(FOLDER, str(folder))
    return subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)


def shows(command: str, folder: Path, code: int, expected: str) -> bool:
    """Whether a command that changes nothing ends so, and prints that."""
    done = ran(command, folder)
    return done.returncode == code and re.search(expected, done.stdout + done.stderr) is not None


def test_a_newcomer_gets_from_the_checkout_to_enforce(programs: Programs) -> None:
    folder = programs.folder / "playground"
    playground = programs.start(
        "playground", [sys.executable, "-m", "tests.playground", folder], {"PYTHONPATH": str(ROOT)}
    )
    playground.wait_ready(lambda: READY in playground.log.read_text(), SECONDS)
    fingerprints: dict[str, str] = {}

    def follow(command: str) -> None:
        for worker, found in fingerprints.items():
            command = command.replace(f"FINGERPRINT-OF-{worker.upper()}", found)
        for words, shown in SHOWS.items():
            if words in command:
                wait_until(partial(shows, command, folder, *shown), command, SECONDS)
                return
        done = ran(command, folder)
        said = done.stdout + done.stderr
        assert done.returncode == (DENIED if "/thief/" in command else 0), said
        assert "/thief/" not in command or "EndorsementKeyMismatch" in said, said
        if "tpm fingerprint" in command:
            fingerprints[next(worker for worker in WORKERS if worker in command)] = said.split()[0]

    commands = [line for block in blocks(PAGE) for line in block.text.splitlines()]
    assert commands[:3] == ["make provision", "make playground", f". {FOLDER}/{ENVIRONMENT}"]
    for command in commands[3:]:
        if command.startswith("node-attestation-controller run "):
            line = f". {folder / ENVIRONMENT}; exec {command}"
            controller = programs.start("controller", ["bash", "-c", line])
            wait_until(_logged(controller.log), "the controller has started", SECONDS)
        else:
            follow(command)
    playground.process.send_signal(signal.SIGINT)
    assert playground.process.wait(SECONDS) == 0
    assert not folder.exists()


def _logged(log: Path) -> Callable[[], bool]:
    return lambda: '"started"' in log.read_text()


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    command = [sys.executable, "-m", "tests.playground", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 2
    assert "is there: remove it" in " ".join(done.stdout.split())
    assert (tmp_path / "mine").read_text() == "precious"
