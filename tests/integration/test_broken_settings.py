"""A broken setting of one attestor: said at the start, not ready, and no harm to Clusters that do not need it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from signer.configuration import OperatorAttestor
from signer.controller import attestor_settings
from signer.testing.world import RunningController
from tests.integration.fixtures import Harness, keyed_mac
from tests.integration.replicas import start_replica, wait_until_it_leads
from tests.support.processes import wait_until
from tests.unit.attestors.tpm.endorsement.support import root

pytestmark = pytest.mark.slow

BROKEN = "a setting of an attestor is broken: its requests wait, and this replica is not ready"


def counted(controller: RunningController) -> float | None:
    return controller.options.metrics.registry.get_sample_value("node_attestation_broken_attestor_settings")


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.__dict__["detail"]) for record in caplog.records if record.message == BROKEN]


def test_it_is_logged_and_not_ready_and_other_attestors_work(
    harness: Harness, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attestor_settings, "RECHECK_SECONDS", 0.05)
    caplog.set_level(logging.INFO)
    roots = tmp_path / "roots"
    cluster = harness.cluster()
    tpm = OperatorAttestor(
        settings={"endorsementRootsFolder": str(roots)},
        settings_by_namespace={"team-a": {"deniedEndorsementKeys": "none"}},
    )
    composite = OperatorAttestor(settings={"attestors": {"tpm": {}}})
    controller = harness.run(attestors={**keyed_mac(), "tpm": tpm, "composite": composite})
    harness.join(cluster)
    report = controller.options.health.ready()
    assert (report.passed, report.brief()) == (False, "broken settings, which the log describes: composite, tpm")
    assert counted(controller) == 3
    (one, message), (_, everywhere), (_, of_team) = logged(caplog)
    assert (one, message) == (logging.ERROR, "attestors.composite.settings: attestors must name 2 or 3 attestors")
    assert everywhere.startswith("attestors.tpm.settings: endorsementRootsFolder: ")
    assert of_team.startswith("attestors.tpm.settingsByNamespace.team-a: ")
    started = [record.__dict__["attestors"] for record in caplog.records if record.message == "started"]
    assert started == [["composite", "keyed-mac", "tpm"]], "those that the configuration allows"
    roots.mkdir()
    (roots / "root.pem").write_bytes(root())
    wait_until(lambda: counted(controller) == 2, "the folder is found once it is mounted")
    assert len(logged(caplog)) == 3, "each is logged once"
    assert controller.options.health.alive().passed, "a restart would not help"


def test_files_that_come_later_make_it_ready(harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attestor_settings, "RECHECK_SECONDS", 0.05)
    settings = {"endorsementRootsFolder": str(tmp_path / "roots")}
    controller = harness.run(attestors={"tpm": OperatorAttestor(settings=settings)})
    assert not controller.options.health.ready().passed
    (tmp_path / "roots").mkdir()
    (tmp_path / "roots/root.pem").write_bytes(root())
    wait_until(lambda: controller.options.health.ready().passed, "it is ready")


def test_the_new_replica_of_a_rolling_update_is_not_ready_although_the_old_one_leads(harness: Harness) -> None:
    """So the Deployment keeps the old one. A standby with sound settings is ready."""
    old = start_replica(harness, "old")
    wait_until_it_leads(old)
    new = start_replica(harness, "new", attestors={"tpm": OperatorAttestor()})
    wait_until(lambda: "standing by" in new.options.health.ready().passing, "it stands by")
    assert new.options.health.ready().brief() == "broken settings, which the log describes: tpm"
    sound = start_replica(harness, "sound")
    wait_until(lambda: "standing by" in sound.options.health.ready().brief(), "it stands by")
    assert sound.options.health.ready().passed
