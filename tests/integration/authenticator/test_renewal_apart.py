"""A renewal that takes longer than a kubelet waits goes on in a process of its own, alone and not for ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from attestors.wire.names import Purpose
from signer.testing.api import EmbeddedAPI
from tests.integration.authenticator.fixtures import ClusterAdmin, Node, created
from tests.support.agent_plugin import NOTED_BOUNDS, run_with, start_with
from tests.support.node_program import NodeProgram
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

IMPATIENT: Final = "credential.RENEWAL_LIMIT_SECONDS = 0.1"
"""A kubelet does not wait; what it would wait for is the test's to say."""
NEVER_WAITS: Final = """
from types import SimpleNamespace
from authenticator.store import lock
lock.time = SimpleNamespace(monotonic=time.monotonic)
"""
"""Who finds the lock held and sleeps fails, and says so."""
STILL_VALID: Final = "the stored certificate is still valid"


def runs(process: int) -> bool:
    """Whether it has not ended; who ended and is nobody's child has no command line."""
    try:
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


@dataclass
class SlowAttestor:
    """One that gathers when the test says so; says how often it was begun."""

    folder: Path

    @property
    def gather(self) -> str:
        """The code."""
        return f"""
            with Path({str(self.folder / "begun")!r}).open("a") as file:
                print(os.getpid(), file=file)
            for _ in range(6000):
                if Path({str(self.folder / "gate")!r}).exists():
                    break
                time.sleep(0.01)
        """

    @property
    def begun(self) -> list[int]:
        """The processes in which it was."""
        path = self.folder / "begun"
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_until_begun(self) -> None:
        """It gathers."""
        wait_until(lambda: bool(self.begun), "the attestor gathers")

    def wait_until_ended(self) -> None:
        """The process in which it gathered is not there any more."""
        wait_until(lambda: not runs(self.begun[0]), "the renewal's process has ended")

    def go_on(self) -> None:
        """Let it gather."""
        (self.folder / "gate").touch()


@pytest.fixture
def attestor(tmp_path: Path) -> Iterator[SlowAttestor]:
    folder = tmp_path / "attestor"
    folder.mkdir()
    slow = SlowAttestor(folder)
    yield slow
    assert not any(map(runs, slow.begun)), "a renewal goes on behind its test"


@pytest.fixture
def program(node: Node) -> NodeProgram:
    node.put_pair(age=9000, left=1000)  # a tenth of its life
    return node.program(timeoutSeconds=60.0)


def printed_key(done: subprocess.CompletedProcess[str]) -> str:
    """The key in the one ExecCredential that was printed."""
    assert done.returncode == 0, done.stderr
    key: str = json.loads(done.stdout)["status"]["clientKeyData"]
    return key


def stored_key(node: Node) -> str:
    """The key in the store."""
    pair = node.store.pair(Purpose.CLIENT)
    assert pair is not None
    return pair.key


def test_it_is_stored_behind_the_end_of_the_plugin(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, program: NodeProgram, attestor: SlowAttestor
) -> None:
    """The plugin's stdout and stderr end with it: :func:`run_with` returns while the attestor still gathers."""
    former = stored_key(node)
    done = run_with(program, attestor.gather, before=IMPATIENT)
    assert printed_key(done) == former
    attestor.wait_until_begun()
    assert f"continues as process {attestor.begun[0]}; {STILL_VALID}" in done.stderr
    with admin.granting():
        attestor.go_on()
        wait_until(lambda: stored_key(node) != former, "the next certificate is stored")
    assert printed_key(run_with(program, "raise AssertionError")) == stored_key(node)
    assert len(created(api)) == 1
    attestor.wait_until_ended()


def test_another_invocation_neither_waits_nor_starts_a_renewal(
    admin: ClusterAdmin, node: Node, program: NodeProgram, attestor: SlowAttestor
) -> None:
    former = stored_key(node)
    run_with(program, attestor.gather, before=IMPATIENT)
    attestor.wait_until_begun()
    done = [run_with(program, attestor.gather, before=NEVER_WAITS) for _ in range(2)]
    assert [printed_key(one) for one in done] == [former] * 2
    assert [one.stderr for one in done] == ["", ""]
    assert len(attestor.begun) == 1
    with admin.granting():
        attestor.go_on()
        wait_until(lambda: stored_key(node) != former, "the next certificate is stored")
    attestor.wait_until_ended()


def test_it_goes_on_where_the_plugin_is_killed_and_has_no_stdout(
    admin: ClusterAdmin, node: Node, program: NodeProgram, attestor: SlowAttestor
) -> None:
    former = stored_key(node)
    plugin = start_with(program, attestor.gather, start_new_session=True)
    attestor.wait_until_begun()
    os.killpg(plugin.pid, signal.SIGKILL)  # as a terminal's Ctrl-C, all that belong to it
    assert plugin.communicate(timeout=60)[0] == ""
    with admin.granting():
        attestor.go_on()
        wait_until(lambda: stored_key(node) != former, "the next certificate is stored")
    attestor.wait_until_ended()


def test_what_it_says_late_is_in_the_log(
    admin: ClusterAdmin, node: Node, program: NodeProgram, attestor: SlowAttestor, tmp_path: Path
) -> None:
    """Where stderr is the journal, or a file as here: nobody waits for its end."""
    former, log = stored_key(node), tmp_path / "log"
    with log.open("w") as file:
        assert printed_key(run_with(program, attestor.gather, before=IMPATIENT, stderr=file)) == former
    with admin.granting():
        attestor.go_on()
        wait_until(lambda: f"the certificate of node {node.name} is in" in log.read_text(), "it is said")
    assert log.read_text().startswith("kubelet-authenticator: the renewal takes longer")
    attestor.wait_until_ended()


def test_a_quick_one_is_printed(admin: ClusterAdmin, node: Node, program: NodeProgram) -> None:
    """Whatever it reads of stdin, which is somebody else's: nothing."""
    former = stored_key(node)
    reading, writing = os.pipe()
    with open(reading) as stdin, open(writing), admin.granting():
        done = run_with(program, "assert os.read(0, 1) == b''", stdin=stdin)
    assert printed_key(done) == stored_key(node) != former
    assert "the certificate of node" in done.stderr
    assert STILL_VALID not in done.stderr


@pytest.mark.parametrize(
    ("gather", "said"),
    [
        ("raise EvidenceUnavailable('the TPM is gone')", "not renewed: attestor keyed-mac: the TPM is gone"),
        ("raise ValueError('a defect')", "not renewed: attestor keyed-mac failed with ValueError at <string>:"),
        ("raise BrokenPipeError('a defect of ours')", f"BrokenPipeError('a defect of ours'); {STILL_VALID}"),
        ("sys.exit('enough')", "not renewed: attestor keyed-mac called sys.exit() instead of raising an exception"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", f"ended by signal 11 (Segmentation fault); {STILL_VALID}"),
        ("os._exit(0)", ""),
    ],
    ids=["no evidence", "a defect", "a defect of ours", "an exit", "a crash", "a silent end"],
)
def test_one_that_ends_leaves_the_stored_certificate(node: Node, program: NodeProgram, gather: str, said: str) -> None:
    done = run_with(program, gather)
    assert printed_key(done) == stored_key(node)
    assert said in done.stderr
    assert "goes on" not in done.stderr


def test_without_another_process_the_stored_certificate_is_printed(node: Node, program: NodeProgram) -> None:
    """As many processes as the kubelet's cgroup may have are there."""
    limit = "def fork():\n    raise BlockingIOError(11, 'Resource temporarily unavailable')\nos.fork = fork"
    done = run_with(program, "", before=limit)
    assert printed_key(done) == stored_key(node)
    assert f"cannot start: [Errno 11] Resource temporarily unavailable; {STILL_VALID}" in done.stderr


def test_one_that_hangs_is_ended_and_the_lock_is_free(
    api: EmbeddedAPI, node: Node, program: NodeProgram, tmp_path: Path
) -> None:
    """By the kernel, and with a word on where it hung, which holds no secret. The test only makes the bound shorter."""
    former, log = stored_key(node), tmp_path / "log"
    hanging = """
        if bounds != [605]:
            raise ValueError(bounds)
        alarm(1)
        time.sleep(600)
    """
    with log.open("w") as file:
        assert printed_key(run_with(program, hanging, before=NOTED_BOUNDS, stderr=file)) == former
    assert "in gather" in log.read_text()
    assert f"ended by signal 14 (Alarm clock); {STILL_VALID}" in log.read_text()
    assert program.node.settings["machine-key"] not in log.read_text()
    with node.store.lock(Purpose.CLIENT, timeout=0):
        assert len(created(api)) == 0
