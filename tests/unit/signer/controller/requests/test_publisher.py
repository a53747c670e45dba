"""Writes to the workload cluster: at most two, each against the decided resourceVersion."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from attestors.wire.names import CHALLENGE_ANNOTATION, ENDORSEMENT_KEY_ANNOTATION, Purpose, SignerName
from signer.controller.requests.publisher import Publisher
from signer.kube.errors import ApiError, Conflict, UnexpectedAnswer
from signer.model.decision import Approve, ApproveOnly, Challenge, Deny, Fail
from signer.model.reasons import Reason
from tests.unit.signer.builders import (
    NODE,
    NOW,
    journal_entry,
    manifest,
    signing_request,
)

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests/csr-x1"


CERTIFICATE = b"-----BEGIN CERTIFICATE-----\n"


OURS = {ENDORSEMENT_KEY_ANNOTATION: "sha256:ours"}
FORGED = {ENDORSEMENT_KEY_ANNOTATION: "sha256:forged", "theirs": "kept"}


def approval(annotations: Mapping[str, str] | None = None) -> Approve:
    return Approve(NODE, Reason.ATTESTED, "Attested by tpm", journal_entry(0xABC), CERTIFICATE, annotations or {})


def annotated(annotations: Mapping[str, str], **status: Any) -> dict[str, Any]:
    csr = manifest(**status)
    csr["metadata"]["annotations"] = dict(annotations)
    return csr


class Workload:
    """Records each write and returns it with the next resourceVersion, like an API server."""

    def __init__(
        self,
        failure: ApiError | None = None,
        fails_at: int = 1,
        answers: Callable[[dict[str, Any]], dict[str, Any]] = lambda body: body,
        text: bytes = b"",
    ) -> None:
        self.writes: list[tuple[str, dict[str, Any]]] = []
        self._failure = failure
        self._fails_at = fails_at
        self._answers = answers
        self._text = text
        self.publisher = Publisher(self, lambda: NOW, self._explanatory_text)

    async def _explanatory_text(self) -> bytes:
        return self._text

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path.startswith(PATH + "/")
        self.writes.append((path.removeprefix(PATH + "/"), copy.deepcopy(body)))
        if self._failure is not None and len(self.writes) == self._fails_at:
            raise self._failure
        version = str(42 + len(self.writes))
        return self._answers({**body, "metadata": {**body["metadata"], "resourceVersion": version}})


def assert_complete(condition: dict[str, Any]) -> None:
    """The API server requires every field of a condition that it does not default."""
    assert condition["status"] == "True"
    assert condition["lastUpdateTime"] == condition["lastTransitionTime"] == "2026-03-01T12:00:00Z"


async def test_approve_then_sign() -> None:
    workload, csr = Workload(), manifest()
    before = copy.deepcopy(csr)
    await workload.publisher.approve_and_sign(csr, signing_request(csr), approval())
    (first, approved), (second, signed) = workload.writes
    assert (first, second) == ("approval", "status")
    assert approved["apiVersion"] == "certificates.k8s.io/v1"
    assert approved["metadata"]["resourceVersion"] == "42"
    assert signed["metadata"]["resourceVersion"] == "43"
    (condition,) = approved["status"]["conditions"]
    assert (condition["type"], condition["reason"], condition["message"]) == ("Approved", "Attested", "Attested by tpm")
    assert_complete(condition)
    assert "certificate" not in approved["status"]
    assert signed["status"]["conditions"] == [condition]
    assert base64.b64decode(signed["status"]["certificate"]) == CERTIFICATE
    assert approved["spec"] == signed["spec"] == before["spec"]
    assert csr == before, "the object of the watch stays as it is"


@pytest.mark.parametrize("purpose", Purpose)
async def test_text_follows_a_client_certificate_only(purpose: Purpose) -> None:
    workload = Workload(text=b"statement\n")
    csr = manifest(signer_name=str(SignerName(purpose, "tpm")))
    request = signing_request(csr)
    await workload.publisher.approve_and_sign(csr, request, approval())
    _, (_, signed) = workload.writes
    text = b"statement\n" if purpose is Purpose.CLIENT else b""
    assert base64.b64decode(signed["status"]["certificate"]) == CERTIFICATE + text


async def test_an_approved_request_is_only_signed() -> None:
    condition = {"type": "Approved", "status": "True", "reason": "Attested"}
    workload, csr = Workload(), manifest(conditions=[condition])
    await workload.publisher.approve_and_sign(csr, signing_request(csr), approval())
    ((subresource, body),) = workload.writes
    assert subresource == "status"
    assert body["status"]["conditions"] == [condition]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"status": "x"}, id="no status"),
        pytest.param({"metadata": ["x"]}, id="no metadata"),
        pytest.param({"metadata": {"name": "another"}}, id="another name"),
        pytest.param({"metadata": {"name": "../x"}}, id="no name"),
        pytest.param({"metadata": {"uid": "another"}}, id="another one of its name"),
        pytest.param({"metadata": {"annotations": [1]}}, id="annotations"),
        pytest.param({"status": {"conditions": 1}}, id="conditions"),
        pytest.param({"status": {"certificate": [{}] * 5000}}, id="too large"),
    ],
)
async def test_the_response_to_the_approval_must_be_the_same_request(answer: dict[str, Any]) -> None:
    """No certificate is written elsewhere, and a hostile API server causes no internal error."""
    workload, csr = Workload(answers=lambda body: _instead(body, answer)), manifest()
    with pytest.raises(UnexpectedAnswer):
        await workload.publisher.approve_and_sign(csr, signing_request(csr), approval())
    assert [subresource for subresource, _ in workload.writes] == ["approval"]


def _instead(body: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """A response with ``parts`` in place of the honest ones."""
    if not parts:
        return {}
    return {
        key: {**value, **parts[key]} if isinstance(value, dict) and isinstance(parts.get(key), dict) else value
        for key, value in {**body, **{key: part for key, part in parts.items() if not isinstance(part, dict)}}.items()
    }


# Annotations of an approval


async def annotations_after(csr: dict[str, Any], decision: Approve) -> list[tuple[str, Any]]:
    """Subresource and annotations of each write."""
    workload = Workload()
    await workload.publisher.approve_and_sign(csr, signing_request(csr), decision)
    return [(subresource, body["metadata"].get("annotations")) for subresource, body in workload.writes]


async def test_the_approval_overwrites_the_requesters_annotations() -> None:
    expected = {"theirs": "kept", **OURS}
    assert await annotations_after(annotated(FORGED), approval(OURS)) == [("approval", expected), ("status", expected)]


@pytest.mark.parametrize(
    "forged",
    [
        {ENDORSEMENT_KEY_ANNOTATION: "sha256:forged"},
        {ENDORSEMENT_KEY_ANNOTATION.upper(): "sha256:forged"},
        {CHALLENGE_ANNOTATION: "forged"},
        {"attestation.cluster.x-k8s.io/anything": "forged"},
    ],
)
async def test_the_approval_removes_forged_annotations(forged: dict[str, str]) -> None:
    csr = annotated({"theirs": "kept", **forged})
    assert (await annotations_after(csr, approval()))[0] == ("approval", {"theirs": "kept"})
    assert (await annotations_after(annotated(forged), approval()))[0] == ("approval", {})


async def test_foreign_annotations_are_kept() -> None:
    theirs = {"theirs": "kept", "cluster-x-k8s-io": "no prefix", "example.com/cluster-x-k8s-io/x": "", "x-cluster": ""}
    assert (await annotations_after(annotated(theirs), approval()))[0] == ("approval", theirs)


async def test_a_request_without_annotations_gets_none() -> None:
    assert await annotations_after(manifest(), approval()) == [("approval", None), ("status", None)]


async def test_the_certificate_of_an_approved_request_brings_the_annotations() -> None:
    csr = annotated(FORGED, conditions=[{"type": "Approved", "status": "True", "reason": "Attested"}])
    assert await annotations_after(csr, approval()) == [("status", {"theirs": "kept"})]
    assert await annotations_after(csr, approval(OURS)) == [("status", {"theirs": "kept", **OURS})]


async def test_an_approval_without_a_certificate_removes_forged_annotations() -> None:
    workload = Workload()
    await workload.publisher.approve(annotated(FORGED), ApproveOnly(NODE, Reason.ATTESTED, "attested before"))
    ((subresource, body),) = workload.writes
    assert (subresource, body["metadata"]["annotations"]) == ("approval", {"theirs": "kept"})


async def test_conflict_at_approval_signs_nothing() -> None:
    workload = Workload(Conflict("changed", status=409))
    with pytest.raises(Conflict):
        await workload.publisher.approve_and_sign(manifest(), signing_request(), approval())
    assert [subresource for subresource, _ in workload.writes] == ["approval"]


async def test_a_denial_is_one_write_and_keeps_other_annotations() -> None:
    workload, csr = Workload(), manifest()
    csr["metadata"] |= {"annotations": {"theirs": "kept", "ours": "old"}, "managedFields": [{"manager": "kubelet"}]}
    await workload.publisher.deny(csr, Deny("NodeNameMismatch", "ask for your own name", {"ours": "new"}))
    ((subresource, body),) = workload.writes
    assert subresource == "approval"
    assert body["metadata"]["annotations"] == {"theirs": "kept", "ours": "new"}
    assert "managedFields" not in body["metadata"]
    assert "managedFields" in csr["metadata"]
    (condition,) = body["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("Denied", "NodeNameMismatch")
    assert condition["message"] == "ask for your own name"
    assert_complete(condition)


async def test_deny_without_annotations_touches_none() -> None:
    workload = Workload()
    await workload.publisher.deny(manifest(), Deny("NodeNameMismatch", "no"))
    assert "annotations" not in workload.writes[0][1]["metadata"]


async def test_challenge_is_a_denial_with_the_challenge_in_the_same_write() -> None:
    workload = Workload()
    await workload.publisher.deny(manifest(), Challenge("c2VjcmV0"))
    ((subresource, body),) = workload.writes
    assert subresource == "approval"
    assert body["metadata"]["annotations"] == {CHALLENGE_ANNOTATION: "c2VjcmV0"}
    (condition,) = body["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("Denied", "ChallengeIssued")
    assert "c2VjcmV0" not in condition["message"]


async def test_fail_goes_to_status_and_keeps_the_approval() -> None:
    approved = {"type": "Approved", "status": "True"}
    workload = Workload()
    await workload.publisher.fail(manifest(conditions=[approved]), Fail(Reason.APPROVED_BY_OTHERS, "not by us"))
    ((subresource, body),) = workload.writes
    assert subresource == "status"
    kept, failed = body["status"]["conditions"]
    assert kept == approved
    assert (failed["type"], failed["reason"], failed["message"]) == ("Failed", "ApprovedByOthers", "not by us")
    assert "certificate" not in body["status"]
