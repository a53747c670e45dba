from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from authenticator.flow import kubelet as kubelet_module
from authenticator.flow.kubelet import KubeletFailed, LocalKubelet
from tests.support.processes import wait_until

SERVER = """
import http.server, socket, sys
class Healthz(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(sys.argv[2]) if self.path == "/healthz" else 404)
        self.end_headers()
    def log_message(self, *arguments): pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Healthz)
print(server.server_port, flush=True)
server.serve_forever()
"""


class Process:
    """A process that answers like a kubelet."""

    def __init__(self, port: int = 0, status: int = 200) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(port), str(status)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@pytest.fixture
def running() -> Iterator[Process]:
    process = Process()
    yield process
    process.end()


def at(port: int, *command: str) -> LocalKubelet:
    return LocalKubelet(command or ("true",), "127.0.0.1", port)


def test_another_process_has_another_identity(running: Process) -> None:
    kubelet = at(running.port)
    first = kubelet.process()
    assert first
    assert kubelet.process() == first
    assert kubelet.problem() == ""
    running.end()
    assert kubelet.process() == ""
    assert "does not answer" in kubelet.problem()
    again = Process(running.port)
    try:
        wait_until(lambda: kubelet.process() not in ("", first), "another process")
    finally:
        again.end()


def test_an_unhealthy_kubelet_is_a_problem() -> None:
    process = Process(status=500)
    try:
        assert "500" in at(process.port).problem()
    finally:
        process.end()


def test_tables_that_cannot_be_read_name_no_process(running: Process, tmp_path: Path) -> None:
    assert LocalKubelet(("true",), "127.0.0.1", running.port, tables=tmp_path).process() == ""


def test_the_command_is_run_without_a_shell(tmp_path: Path) -> None:
    at(1, sys.executable, "-c", "import sys; open(sys.argv[1], 'w').close()", str(tmp_path / "a b;c")).restart()
    assert (tmp_path / "a b;c").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("/no/such/program",), "cannot be run"),
        ((sys.executable, "-c", "import sys; sys.exit('not\\nfound')"), "exit code 1: not found"),
        ((sys.executable, "-c", "import sys; sys.exit(3)"), "exit code 3: no output"),
    ],
)
def test_a_command_that_fails_is_a_failure(command: tuple[str, ...], message: str) -> None:
    with pytest.raises(KubeletFailed, match=message):
        at(1, *command).restart()


def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubelet_module, "RESTART_SECONDS", 0.2)
    with pytest.raises(KubeletFailed, match="did not end"):
        at(1, sys.executable, "-c", "import time; time.sleep(60)").restart()
