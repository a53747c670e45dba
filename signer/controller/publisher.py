"""Carries a decision out: at most two writes to the workload cluster, each against the very version that was judged."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol

from attestors.wire.names import CHALLENGE_ANNOTATION
from signer.kube.client import JsonObject
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.model.decision import Approve, ApproveOnly, Challenge, Deny, Fail
from signer.model.reasons import Reason
from signer.model.record import format_time
from signer.model.signing_request import Condition, SigningRequest

_CHALLENGE_MESSAGE: Final = (
    "the evidence is good so far; answer the challenge in annotation "
    f"{CHALLENGE_ANNOTATION} with a second request for the same key"
)


class WorkloadCalls(Protocol):
    """The one call that is used of :class:`~signer.kube.client.Client`."""

    async def replace(self, path: str, body: JsonObject) -> JsonObject:
        """See Client."""
        ...


class Publisher:
    """The writes to one workload cluster."""

    def __init__(self, client: WorkloadCalls, now: Callable[[], datetime]) -> None:
        self._client = client
        self._now = now

    async def approve_and_sign(self, manifest: JsonObject, request: SigningRequest, decision: Approve) -> None:
        """Approve, unless that is done already, and publish the certificate that the journal names.

        Raises:
            ApiError: from the workload cluster; Conflict when the CSR changed since it was judged.
        """
        if Condition.APPROVED not in request.envelope.conditions:
            manifest = await self._write(
                manifest, "approval", conditions=[self._condition("Approved", decision.reason, decision.message)]
            )
        await self._write(manifest, "status", certificate=base64.b64encode(decision.certificate).decode("ascii"))

    async def approve(self, manifest: JsonObject, decision: ApproveOnly) -> None:
        """Approve what kube-controller-manager signs.

        Raises:
            ApiError: from the workload cluster; Conflict when the CSR changed since it was judged.
        """
        await self._write(
            manifest, "approval", conditions=[self._condition("Approved", decision.reason, decision.message)]
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
            manifest, "approval", conditions=[self._condition("Denied", reason, message)], annotations=annotations
        )

    async def fail(self, manifest: JsonObject, decision: Fail) -> None:
        """Mark as Failed what somebody else approved.

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
        metadata = dict(manifest["metadata"])
        metadata.pop("managedFields", None)
        if annotations:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
        status = dict(manifest.get("status") or {})
        if conditions:
            status["conditions"] = [*(status.get("conditions") or []), *conditions]
        if certificate is not None:
            status["certificate"] = certificate
        # Items of a list carry neither; the API server wants both.
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
        moment = format_time(self._now())
        return {
            "type": kind,
            "status": "True",
            "reason": str(reason),
            "message": message,
            "lastUpdateTime": moment,
            "lastTransitionTime": moment,
        }
