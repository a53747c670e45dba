"""A flood of refused requests, and the lines of certificates."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attestors.registry import Registry
from signer.audit.decision_inputs import BuiltinStage, DecisionInputs, MachineStage
from signer.audit.lines import FileLines
from signer.audit.log import GroupedAuditLog
from signer.controller.requests import auditing
from signer.controller.requests.auditing import Auditing
from signer.controller.telemetry.metrics import Metrics
from signer.decision.decider import DecidedRequest
from signer.model.cluster import ClusterKey
from signer.model.decision import Approve, ApproveOnly, Decision, Defer, Deny
from signer.model.reasons import Reason
from signer.model.record import AttestedNode
from signer.rules.machine import MachineGone
from tests.unit.signer.builders import NODE, NOW, builtin_approval, journal_entry, manifest, record, signing_request

DENY = Deny(Reason.BINDING_MISMATCH, "the evidence was made for another key, cluster or signer")

CSR = manifest()
APPROVE = Approve(NODE, Reason.ATTESTED, "attested", journal_entry(), b"certificate")
APPROVE_BUILTIN = ApproveOnly(NODE, Reason.ATTESTED, "attested")
NEW, JOURNALED = record(journal=()), record(journal=(APPROVE.entry,))


class Flooded:
    """The audit log of one cluster, with room for a few refusals."""

    def __init__(self, path: Path) -> None:
        self.at = 0.0
        self.path = path
        self.metrics = Metrics()
        self.log = GroupedAuditLog(FileLines(path, 0, 0))
        self.auditing = self.of("prod")

    def of(self, cluster: str) -> Auditing:
        return Auditing(
            ClusterKey("team-a", cluster),
            audit_log=self.log,
            registry=Registry([]),
            provider_id_oids=(),
            metrics=self.metrics,
            now=lambda: NOW,
            monotonic=lambda: self.at,
        )

    async def decided(
        self, name: str, decision: Decision, of: Auditing | None = None, *, before: AttestedNode = NEW
    ) -> Decision:
        """``before`` is the record on which the decision was based."""
        csr = {**CSR, "metadata": {**CSR["metadata"], "name": name, "uid": f"uid-of-{name}"}}
        request = signing_request(csr)
        inputs = DecisionInputs(
            machine=MachineStage(before, MachineGone(), (), (), frozenset()),
            builtin=BuiltinStage(before, MachineGone()),
        )
        return await (of or self.auditing).decided(name, csr, DecidedRequest(request, decision, inputs))

    def names(self) -> list[str]:
        lines: list[dict[str, Any]] = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [line["request"]["name"] for line in lines if "request" in line]

    def omitted(self) -> float:
        return self.metrics.registry.get_sample_value("node_attestation_audit_lines_total", {"result": "omitted"}) or 0


@pytest.fixture
def flooded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flooded:
    monkeypatch.setattr(auditing, "UNAPPROVED_BYTES", 20_000)
    monkeypatch.setattr(auditing, "UNAPPROVED_BYTES_PER_SECOND", 20_000)
    return Flooded(tmp_path / "audit.log")


async def test_refused_requests_without_end_neither_push_out_the_lines_of_certificates_nor_fill_the_disk(
    flooded: Flooded,
) -> None:
    for number in range(50):
        assert await flooded.decided(f"forged-{number}", DENY) is DENY
        assert flooded.path.stat().st_size < 25_000
    assert 0 < len(flooded.names()) < 50
    assert flooded.omitted() == 50 - len(flooded.names())
    assert await flooded.decided("joins", APPROVE) is APPROVE
    assert flooded.names()[-1] == "joins"


async def test_copies_of_an_approved_request_without_end_wait(flooded: Flooded) -> None:
    """Each is approved, for the key's certificate that has its line; a token and one request suffice for the flood."""
    for number in range(50):
        answer = await flooded.decided(f"copy-{number}", APPROVE, before=JOURNALED)
        assert flooded.path.stat().st_size < 25_000
        assert answer is APPROVE or (isinstance(answer, Defer) and answer.reason == "AuditLogUnavailable")
        assert (answer is APPROVE) is (f"copy-{number}" in flooded.names()), "no certificate without its line"
    assert flooded.omitted()
    assert await flooded.decided("joins", APPROVE) is APPROVE
    flooded.at += 1
    assert await flooded.decided("copy-49", APPROVE, before=JOURNALED) is APPROVE


@pytest.mark.parametrize("decision", [APPROVE, APPROVE_BUILTIN], ids=["ours", "built-in"])
async def test_an_answer_that_the_workload_api_server_never_takes_fills_no_log(
    flooded: Flooded, decision: Decision
) -> None:
    """It refuses each write, and changes the request, so that the controller decides it at once."""
    digest = signing_request(CSR).header.spec_digest
    builtin = builtin_approval(csr_uid="uid-of-csr", spec_digest=digest)
    before = replace(JOURNALED, builtin_approvals=(builtin,))
    for _ in range(50):
        await flooded.decided("csr", decision, before=before)
        assert flooded.path.stat().st_size < 25_000
    assert flooded.omitted()
    assert await flooded.decided("another", decision, before=NEW) is decision


async def test_another_clusters_refusals_are_written_meanwhile(flooded: Flooded) -> None:
    for number in range(50):
        await flooded.decided(f"forged-{number}", DENY)
    await flooded.decided("denied", DENY, flooded.of("lab"))
    assert flooded.names()[-1] == "denied"


async def test_after_the_flood_refusals_are_written_again(flooded: Flooded) -> None:
    for number in range(50):
        await flooded.decided(f"forged-{number}", DENY)
    flooded.at += 1
    await flooded.decided("denied", DENY)
    assert flooded.names()[-1] == "denied"


async def test_a_waiting_request_whose_line_is_omitted_is_not_encoded_again(flooded: Flooded) -> None:
    wait = Defer(Reason.MACHINE_NOT_FOUND, "no Machine has it yet")
    for number in range(50):
        await flooded.decided(f"waits-{number}", wait)
    before = flooded.omitted()
    assert await flooded.decided("waits-49", wait) is wait
    assert flooded.omitted() == before
