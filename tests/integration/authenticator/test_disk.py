"""The node's disk fails at every step at which one may: no certificate is lost for it, and the next run goes on."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Final

import pytest

from authenticator.model.certificate import check_pair
from authenticator.model.failures import ExitCode
from authenticator.model.pair import parse_pair
from tests.integration.authenticator.scene import WORKERS, Scene
from tests.support.kill_points import FALLIBLE, WRITES
from tests.support.node_program import NodeProgram, Ran
from tests.support.yaml_documents import safe_load

pytestmark = pytest.mark.slow

ERRORS: Final = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EMFILE, errno.EDQUOT, errno.EACCES)
"""One after the other: whichever it is, nothing but its name differs."""
TOLD: Final = {ExitCode.CONFIGURATION, ExitCode.STORE}
"""What a person is told who has to see to the disk; the first, where it is a configuration file that cannot be read."""


def fail_at_every_step(
    scene: Scene,
    prepare: Callable[[str], NodeProgram],
    check: Callable[[NodeProgram, Ran], None],
    *,
    command: str = "credential",
    full: bool = False,
) -> int:
    """One run fails at its first step, another at its second, and so on; each recovers. Returns how many failed.

    A disk that is ``full`` stays so: for the rest of that run, and for another.
    """
    whole, names_file = prepare("whole"), scene.folder / "steps"
    scene.run(whole, steps=str(names_file), command=command, error=errno.EIO)
    scene.recover(whole, 1)
    names = names_file.read_text().splitlines()
    steps = [number for number, name in enumerate(names, 1) if (WRITES if full else FALLIBLE).fullmatch(name)]

    def fail(step: int) -> None:
        program = prepare(f"step-{step}")
        error = errno.ENOSPC if full else ERRORS[step % len(ERRORS)]
        ran = scene.run(program, step, command=command, error=error, lasting=full)
        try:
            check(program, ran)
            if full:
                requests = len(scene.posted_for(program))
                check(program, scene.run(program, 1, command=command, error=error, lasting=True))
                assert len(scene.posted_for(program)) == requests, "what cannot be stored is not asked for"
            scene.recover(program, 2)
            assert len(scene.posted_for(program)) <= 2
        except AssertionError as failure:
            raise AssertionError(f"{errno.errorcode[error]} at step {step}, {names[step - 1]} ({ran})") from failure
        shutil.rmtree(program.folder)

    with ThreadPoolExecutor(WORKERS) as workers:
        list(workers.map(fail, steps))
    print(f"{len(steps)} of {len(names)} steps failed")
    scene.check_posted()
    return len(steps)


def check_join(program: NodeProgram, ran: Ran) -> None:
    """It says what is wrong, or has a certificate all the same."""
    assert "Traceback" not in ran.log
    if ran.exit_code == ExitCode.DONE:
        check_printed(ran)
    else:
        assert ran.exit_code in TOLD
        assert ran.output == ""


def check_renewal(program: NodeProgram, ran: Ran) -> None:
    """A kubelet gets a certificate in any case, and the stored one is never gone."""
    assert "Traceback" not in ran.log
    assert ran.exit_code == ExitCode.DONE
    assert program.client_pair.exists()
    check_printed(ran)


def check_printed(ran: Ran) -> None:
    """Certificate and key belong together, and are not printed for longer than they are good."""
    status = json.loads(ran.output)["status"]
    check_pair(parse_pair(status["clientCertificateData"] + status["clientKeyData"]))
    assert datetime.fromisoformat(status["expirationTimestamp"]) <= ran.certificate().not_valid_after_utc


def check_prepared(program: NodeProgram, ran: Ran) -> None:
    """A kubeconfig and the CA that it names are there whole, or the kubeconfig not at all."""
    assert "Traceback" not in ran.log
    assert ran.exit_code in {ExitCode.DONE, *TOLD}
    if program.kubeconfig.exists():
        document = safe_load(program.kubeconfig.read_text())
        named = Path(document["clusters"][0]["cluster"]["certificate-authority"])
        assert named.read_text().endswith("-----END CERTIFICATE-----\n")
        assert program.kubeconfig.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("full", [False, True], ids=["fails once", "is full"])
def test_while_a_node_joins(scene: Scene, full: bool) -> None:
    assert fail_at_every_step(scene, scene.joining, check_join, full=full) > (40 if full else 80)


@pytest.mark.parametrize("full", [False, True], ids=["fails once", "is full"])
def test_while_a_node_renews(scene: Scene, full: bool) -> None:
    assert fail_at_every_step(scene, scene.renewing, check_renewal, full=full) > (30 if full else 60)


def test_before_the_kubelet_starts(scene: Scene) -> None:
    assert fail_at_every_step(scene, scene.joining, check_prepared, command="prepare") > 20
