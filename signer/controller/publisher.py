"""Carries a decision out: at most two writes to the workload cluster, each against the very version that was judged."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol

from attestors.wire.names import CHALLENGE_ANNOTATION, NODE_USER_PREFIX, NODES_GROUP
from signer.authority import Authority, CertificateUsage, IssuanceRequest, issue
from signer.kube.client import JsonObject
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.model.decision import Approve, Challenge, Deny, Fail
from signer.model.reasons import Reason
from signer.model.record import format_time
from signer.model.signing_request import Condition, RequestEnvelope, SigningRequest

_CHALLENGE_MESSAGE: Final = (
    "the evidence is good so far; answer the challenge in annotation "
    f"{CHALLENGE_ANNOTATION} with a second request for the same key"
)


class WorkloadCalls(Protocol):
    """The one call that is used of :class:`~signer.kube.client.Client`."""

    async def replace(self, path: str, body: JsonObject) -> JsonObject:
        """See Client."""
        ...


class StaleCertificateAuthority(Exception):
    """The CA is no longer the one that the journal entry names: plan the certificate again."""


class Publisher:
    """The writes to one workload cluster."""

    def __init__(self, client: WorkloadCalls, now: Callable[[], datetime]) -> None:
        self._client = client
        self._now = now

    async def approve_and_sign(
        self, manifest: JsonObject, request: SigningRequest, decision: Approve, authority: Authority
    ) -> None:
        """Approve, unless that is done already, and publish the certificate of the journal entry.

        Raises:
            StaleCertificateAuthority: the CA changed since the entry was written; nothing was written.
            IssuanceRefused: the certificate would be a bad one.
            ApiError: from the workload cluster; Conflict when the CSR changed since it was judged.
        """
        if authority.signing.certificate.public_key_hash != decision.entry.ca_cert_hash:
            raise StaleCertificateAuthority
        # Signed before approval is written: a CSR is never left approved because signing cannot succeed.
        certificate = await sign(request, decision, authority)
        if Condition.APPROVED not in request.envelope.conditions:
            manifest = await self._write(
                manifest, "approval", conditions=[self._condition("Approved", decision.reason, decision.message)]
            )
        await self._write(manifest, "status", certificate=base64.b64encode(certificate).decode("ascii"))

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


async def sign(request: SigningRequest, decision: Approve, authority: Authority) -> bytes:
    """The certificate of the journal entry, PEM; slow keys sign in a thread, because signing releases the GIL."""
    issuance = issuance_request(request.envelope, request, decision)
    if authority.is_slow_to_sign:
        return await asyncio.to_thread(issue, authority, issuance)
    return issue(authority, issuance)


def issuance_request(envelope: RequestEnvelope, request: SigningRequest, decision: Approve) -> IssuanceRequest:
    """Subject and alternative names as judged, key from the CSR, usages from its spec, the rest from the journal."""
    certificate_request = request.certificate_request
    return IssuanceRequest(
        subject_common_name=NODE_USER_PREFIX + decision.node_name,
        organization=NODES_GROUP,
        public_key=certificate_request.public_key,  # type: ignore[arg-type]  # its constructor refuses other kinds
        dns_names=certificate_request.dns_names,
        ip_addresses=certificate_request.ip_addresses,
        usages=frozenset(CertificateUsage(usage) for usage in envelope.usages),
        serial_number=decision.entry.serial_number,
        not_before=decision.entry.not_before,
        not_after=decision.entry.not_after,
    )
