"""A TPM's requests explained: live, where the chip's owner is the InfraMachine's to say, and from a recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION
from signer.cli import main
from signer.kube.resources import MACHINES_V1BETA2
from tests.integration.explaining import outcomes
from tests.integration.fixtures import CONTROLLER_USER, MASTERS, Harness, provider_id
from tests.integration.tpm.fake_tpm_node import FakeTPMNode
from tests.integration.tpm.whose import OperatorFolder, chip, cluster_of
from tests.support.infra_cluster import SIGNER_FIELD, add_infra_cluster, add_infra_machine
from tests.support.yaml_documents import safe_load_all

pytestmark = pytest.mark.slow


def test_live_and_from_a_recording(harness: Harness, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    operator = OperatorFolder(tmp_path)
    controller = harness.run(attestors=operator.attestors)
    cluster = cluster_of(harness, "metal")
    add_infra_cluster(cluster, SIGNER_FIELD)
    genuine = chip()
    for name, said in (("metal-1", genuine.fingerprint), ("metal-2", chip().fingerprint)):
        machine = cluster.add_machine(name, provider_id=provider_id(name))
        add_infra_machine(cluster, machine, **{ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: said})
    honest = FakeTPMNode(cluster, "metal-1", genuine)
    assert honest.attest("honest").reason == "Attested"
    thief = FakeTPMNode(cluster, "metal-2", chip())
    assert thief.ask("thief", thief.chip.first()).reason == "EndorsementKeyMismatch"
    annotated = cluster.add_machine("metal-3", provider_id=provider_id("metal-3"))
    kept, shown = chip().fingerprint, chip()
    annotations = {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: kept}
    path = MACHINES_V1BETA2.object(annotated["metadata"]["name"], "default")
    cluster.management.client.patch(path, {"metadata": {"annotations": annotations}})
    moved = FakeTPMNode(cluster, "metal-3", shown)
    assert moved.ask("moved", shown.first()).reason == "EndorsementKeyMismatch"
    controller.kill()  # nobody else connects anywhere while the network is refused

    kubeconfig, config = tmp_path / "kubeconfig", tmp_path / "operator.yaml"
    kubeconfig.write_text(harness.api.kubeconfig("management", CONTROLLER_USER, MASTERS))
    settings = {provider: {"settings": dict(one.settings)} for provider, one in operator.attestors.items()}
    config.write_text(yaml.safe_dump({"attestors": settings}))
    live = ("--cluster", "default/metal", "--kubeconfig", str(kubeconfig))

    answers = {
        "honest-first": (0, "challenged"),
        "honest": (0, "approved"),
        "thief": (4, "denied"),
        "moved": (4, "denied"),
    }

    def explain(csr: str, *arguments: str) -> dict[str, Any]:
        capsys.readouterr()
        code = main(["explain", csr, *arguments, "--config", str(config), "--output", "json"])
        report: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert (code, report["answered"]["answer"]) == answers[csr]
        return report

    expected = {
        "honest-first": ("challenge", "ChallengeIssued"),
        "honest": ("approve", "Attested"),
        "thief": ("deny", "EndorsementKeyMismatch"),
        "moved": ("deny", "EndorsementKeyMismatch"),
    }
    for csr, verdict in expected.items():
        recording = tmp_path / f"{csr}.yaml"
        report = explain(csr, *live, "--record", str(recording))
        assert (report["verdict"], report["reason"]) == verdict, report
        annotate = [one for one in report["commands"] if "kubectl annotate" in one]
        assert bool(annotate) is (csr == "moved"), "the thief's contradicts another source"
        if annotate:
            assert annotate[0] == (
                "kubectl annotate machine metal-3 --namespace default --overwrite "
                f"{ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION}={shown.fingerprint}  # only if the machine is the right one"
            )
            both = f"The annotation of Machine metal-3 is {kept}; the TPM of the request has {shown.fingerprint}."
            (note,) = (note for note in report["notes"] if note.startswith(both))
            assert "another machine asks in its name: leave the annotation as it is" in note
        again = explain(csr, "--objects", str(recording))
        assert (again["verdict"], again["reason"], again["message"]) == (*verdict, report["message"])
        assert outcomes(again) == outcomes(report)
        header, *objects = safe_load_all(recording.read_text())
        assert header.pop("answers"), csr
        recording.write_text(yaml.safe_dump_all([header, *objects]))
        without = explain(csr, "--objects", str(recording))
        if csr == "honest":  # the answer to a challenge: only the controller's key tells whether it is right
            assert (without["verdict"], without["reason"]) == ("wait", "ControllerKeyUnavailable")
            assert "not verified: the answer to a challenge" in without["message"]
