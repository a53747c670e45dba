"""Publishes a decision with at most two writes to the workload cluster, each against the decided resourceVersion."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final

from attestors.wire.names import ANNOTATION_PREFIX, CHALLENGE_ANNOTATION, ENDORSEMENT_KEY_ANNOTATION, Purpose
from signer.controller.requests.bounded_request import can_be_answered, is_too_large
from signer.kube.calls import Replace
from signer.kube.client import JsonObject
from signer.kube.errors import UnexpectedAnswer
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.model.decision import Approve, ApproveOnly, Challenge, Deny, Fail
from signer.model.fields import format_time
from signer.model.host_keys import HostCertificatesIssued
from signer.model.reasons import Reason
from signer.model.signing_request import Condition, SigningRequest

_CHALLENGE_MESSAGE: Final = (
    "the evidence is good so far; answer the challenge in annotation "
    f"{CHALLENGE_ANNOTATION} with a second request for the same key"
)
_OUR_ANNOTATIONS: Final = (f"{ANNOTATION_PREFIX}/", f"{ENDORSEMENT_KEY_ANNOTATION.partition('/')[0]}/")
"""Prefixes of annotation keys that only this controller writes on an approved request."""


class Publisher:
    """The writes to one workload cluster."""

    def __init__(
        self, client: Replace, now: Callable[[], datetime], explanatory_text: Callable[[], Awaitable[bytes]]
    ) -> None:
        """``explanatory_text`` follows each client certificate (RFC 7468 section 5.2). It may be empty."""
        self._client = client
        self._now = now
        self._explanatory_text = explanatory_text

    async def approve_and_sign(self, manifest: JsonObject, request: SigningRequest, decision: Approve) -> None:
        """Approve the CSR unless it is approved, and publish the certificate that the journal names.

        Our annotations become those of the decision, and any that the requester set are removed: in the same write as
        the approval, or for a CSR that is approved already, as the certificate.

        The host certificates and the trust follow, behind a statement: a reader takes that text to the end.

        Neither the journal nor the audit log holds the explanatory text. Nothing compares what is published with them.

        Raises:
            ApiError: from the workload cluster; Conflict if the CSR changed since the decision.
            UnexpectedAnswer: the response to the approval is not this CSR.
        """
        annotations: Mapping[str, str] | None = _ours_replaced(manifest, decision.annotations)
        if Condition.APPROVED not in request.header.conditions:
            approval = self._condition("Approved", decision.reason, decision.message)
            answer = await self._write(manifest, "approval", conditions=[approval], annotations=annotations)
            manifest, annotations = _as_answered(manifest, answer), None
        text = await self._explanatory_text() if request.header.signer.purpose is Purpose.CLIENT else b""
        if isinstance(decision.host_certificates, HostCertificatesIssued):
            text += decision.host_certificates.text
        certificate = base64.b64encode(decision.certificate + text).decode("ascii")
        await self._write(manifest, "status", certificate=certificate, annotations=annotations)

    async def approve(self, manifest: JsonObject, decision: ApproveOnly) -> None:
        """Approve a CSR that kube-controller-manager signs, and remove any of our annotations that the requester set.

        Raises:
            ApiError: from the workload cluster; Conflict if the CSR changed since the decision.
        """
        await self._write(
            manifest,
            "approval",
            conditions=[self._condition("Approved", decision.reason, decision.message)],
            annotations=_ours_replaced(manifest, {}),
        )

    async def deny(self, manifest: JsonObject, decision: Deny | Challenge) -> None:
        """Deny with reason, message and annotations in one write.

        Raises:
            ApiError: from the workload cluster.
        """
        if isinstance(decision, Challenge):
            reason, message = str(Reason.CHALLENGE_ISSUED), _CHALLENGE_MESSAGE
            annotations: Mapping[str, str] = {CHALLENGE_ANNOTATION: decision.challenge}
        else:
            reason, message, annotations = decision.reason, decision.message, decision.annotations
        await self._write(
            manifest,
            "approval",
            conditions=[self._condition("Denied", reason, message)],
            annotations={**_annotations(manifest), **annotations},
        )

    async def fail(self, manifest: JsonObject, decision: Fail) -> None:
        """Mark a CSR that another party approved as Failed.

        Raises:
            ApiError: from the workload cluster.
        """
        await self._write(manifest, "status", conditions=[self._condition("Failed", decision.reason, decision.message)])

    async def _write(
        self,
        manifest: JsonObject,
        subresource: str,
        *,
        conditions: list[JsonObject] | None = None,
        certificate: str | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> JsonObject:
        """``annotations`` replace the object's annotations; None keeps them."""
        metadata = dict(manifest["metadata"])
        metadata.pop("managedFields", None)
        if annotations is not None and annotations != _annotations(manifest):
            metadata["annotations"] = dict(annotations)
        status = dict(manifest.get("status") or {})
        if conditions:
            status["conditions"] = [*(status.get("conditions") or []), *conditions]
        if certificate is not None:
            status["certificate"] = certificate
        # Items of a list lack apiVersion and kind, which the API server requires.
        body = {
            "apiVersion": CERTIFICATE_SIGNING_REQUESTS.api_version,
            "kind": "CertificateSigningRequest",
            "metadata": metadata,
            "spec": manifest["spec"],
            "status": status,
        }
        return await self._client.replace(
            CERTIFICATE_SIGNING_REQUESTS.object(str(metadata["name"]), subresource=subresource), body
        )

    def _condition(self, kind: str, reason: str, message: str) -> dict[str, Any]:
        timestamp = format_time(self._now())
        return {
            "type": kind,
            "status": "True",
            "reason": str(reason),
            "message": message,
            "lastUpdateTime": timestamp,
            "lastTransitionTime": timestamp,
        }


def _as_answered(written: JsonObject, answer: JsonObject) -> JsonObject:
    """The CSR after a write, from the response of an API server that may be hostile.

    Raises:
        UnexpectedAnswer: the response is another object, or has no form to which a certificate can be added.
    """
    metadata, status = answer.get("metadata"), answer.get("status")
    if not (isinstance(metadata, dict) and isinstance(status, dict)):
        raise UnexpectedAnswer("the answer to an approval is no CSR", status=200)
    if any(metadata.get(field) != written["metadata"][field] for field in ("name", "uid")):
        raise UnexpectedAnswer("the answer to an approval is another CSR", status=200)
    if not can_be_answered(metadata, status):
        raise UnexpectedAnswer("the answer to an approval is a CSR of no form to add a certificate to", status=200)
    metadata.pop("managedFields", None)
    if is_too_large((metadata, status)):
        raise UnexpectedAnswer("the answer to an approval is a CSR larger than any that is kept", status=200)
    return {"metadata": metadata, "spec": written["spec"], "status": status}


def _annotations(manifest: JsonObject) -> Mapping[str, str]:
    annotations: Mapping[str, str] = manifest["metadata"].get("annotations") or {}
    return annotations


def _ours_replaced(manifest: JsonObject, ours: Mapping[str, str]) -> Mapping[str, str]:
    """The object's annotations with ``ours`` in place of all that have our prefixes, in any case."""
    theirs = {
        key: value for key, value in _annotations(manifest).items() if not key.lower().startswith(_OUR_ANNOTATIONS)
    }
    return {**theirs, **ours}
