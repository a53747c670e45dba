"""Asks kube-controller-manager with which CA it signs client certificates: by a canary, a CSR that it alone signs.

A kube-controller-manager whose pair is unusable looks healthy and signs nothing, so its flags and its age do not show
it. The canary's key never leaves this process and ends with it, and the signature is verified here: whoever answers for
the workload cluster can withhold a certificate and cannot make one up.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import secrets
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from signer.authority.lenient_certificate import CertificateUnreadable, parse_ca_certificate
from signer.authority.profiles import CANARY_USER_PREFIX
from signer.kube.calls import Create, Delete, Get, Replace
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.model.decision import printable
from signer.model.fields import format_time, items_of, mapping_of, text_of
from signer.rotation.bundles import UnreadableBundle, is_issued_by, read_bundle
from signer.rotation.facts import CanarySigner, NotObserved
from signer.rotation.servers.observing import TwoAuthorities

_LOG = logging.getLogger(__name__)
SIGNER: Final = "kubernetes.io/kube-apiserver-client"
"""kube-controller-manager signs it, this controller never does, and nothing approves it by itself."""
LIFETIME_SECONDS: Final = 600
"""API servers before 1.22 drop the field: the certificate is then valid as long as any other of that signer."""
DEADLINE_SECONDS: Final = 15.0
"""A kube-controller-manager that leads signs within a second of the approval."""
_POLL_SECONDS: Final = 0.5
_MAXIMUM_CHARACTERS: Final = 64 * 1024
_NAME_BYTES: Final = 5


class CanaryCalls(Get, Create, Replace, Delete, Protocol):
    """The calls to the workload cluster."""


class AskControllerManager(Protocol):
    """Asks the kube-controller-manager that leads."""

    async def __call__(
        self, workload: CanaryCalls, authorities: TwoAuthorities, rotation_id: str
    ) -> CanarySigner | NotObserved:
        """See :func:`ask_controller_manager`."""
        ...


def asking_controller_manager(now: Callable[[], datetime]) -> AskControllerManager:
    """Asks the one that leads, as it is now."""

    async def ask(workload: CanaryCalls, authorities: TwoAuthorities, rotation_id: str) -> CanarySigner | NotObserved:
        return await ask_controller_manager(workload, authorities, rotation_id, now=now())

    return ask


async def ask_controller_manager(
    workload: CanaryCalls,
    authorities: TwoAuthorities,
    rotation_id: str,
    *,
    now: datetime,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> CanarySigner | NotObserved:
    """Create, approve and read one canary, and delete it again.

    The certificate names a user without groups, and its key is not kept. What goes wrong is NotObserved.
    """
    key = await asyncio.to_thread(ec.generate_private_key, ec.SECP256R1())
    name = f"node-attestation-canary-{rotation_id}-{secrets.token_hex(_NAME_BYTES)}"
    try:
        created = await workload.create(CERTIFICATE_SIGNING_REQUESTS.collection(), _manifest(name, key, rotation_id))
        try:
            approved = await _approve(workload, name, created, now)
            text = await _certificate(workload, name, approved, deadline_seconds)
        finally:
            with contextlib.suppress(ApiError):  # kube-controller-manager deletes it an hour later
                await workload.delete(CERTIFICATE_SIGNING_REQUESTS.object(name))
    except ApiError as error:
        return NotObserved(printable(f"the canary CSR: {error}"))
    if isinstance(text, NotObserved):
        return text
    return await asyncio.to_thread(signer_of, text, _public_key(key), authorities)


def signer_of(certificate: str, public_key: bytes, authorities: TwoAuthorities) -> CanarySigner | NotObserved:
    """Who signed the canary's certificate (PEM), if it is of the canary's key (SubjectPublicKeyInfo)."""
    found = read_bundle(certificate.encode("utf-8"))
    if isinstance(found, UnreadableBundle) or not found:
        return NotObserved("the canary's certificate cannot be read")
    try:
        leaf = parse_ca_certificate(found[0])
    except CertificateUnreadable as error:
        return NotObserved(f"the canary's certificate {error}")
    if leaf.subject_public_key_info != public_key:
        return NotObserved("the canary's certificate is of another key than the canary's")
    for signer, authority in ((CanarySigner.NEW, authorities.new), (CanarySigner.OLD, authorities.old)):
        if is_issued_by(leaf.der, authority.certificate):
            _LOG.info("kube-controller-manager signed a canary", extra={"detail": signer.value})
            return signer
    return CanarySigner.OTHER


def _public_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _manifest(name: str, key: ec.EllipticCurvePrivateKey, rotation_id: str) -> JsonObject:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"{CANARY_USER_PREFIX}{rotation_id}")])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return {
        "apiVersion": CERTIFICATE_SIGNING_REQUESTS.api_version,
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(request.public_bytes(Encoding.PEM)).decode("ascii"),
            "signerName": SIGNER,
            "expirationSeconds": LIFETIME_SECONDS,
            "usages": ["digital signature", "client auth"],
        },
    }


async def _approve(workload: Replace, name: str, created: JsonObject, now: datetime) -> JsonObject:
    condition = {
        "type": "Approved",
        "status": "True",
        "reason": "RotationCanary",
        "message": "shows with which CA kube-controller-manager signs; its key is not kept",
        "lastUpdateTime": format_time(now),
    }
    body = {**created, "status": {"conditions": [condition]}}
    return await workload.replace(f"{CERTIFICATE_SIGNING_REQUESTS.object(name)}/approval", body)


async def _certificate(workload: Get, name: str, found: JsonObject, deadline_seconds: float) -> str | NotObserved:
    """PEM of the certificate, once there is one."""
    late = NotObserved(
        f"it has not signed the canary CSR within {deadline_seconds:g} seconds: see the log of the one that leads"
    )
    try:
        async with asyncio.timeout(deadline_seconds):
            while not (text := _issued(found)):
                if failed := _failure(found):
                    return NotObserved(printable(f"it did not sign the canary CSR: {failed}"))
                await asyncio.sleep(_POLL_SECONDS)
                found = await workload.get(CERTIFICATE_SIGNING_REQUESTS.object(name))
    except TimeoutError:
        return late
    return text


def _issued(manifest: JsonObject) -> str:
    text = text_of(mapping_of(manifest, "status"), "certificate")
    if not text or len(text) > _MAXIMUM_CHARACTERS:
        return ""
    with contextlib.suppress(ValueError):
        return base64.b64decode(text, validate=True).decode("ascii")
    return ""


def _failure(manifest: JsonObject) -> str:
    """Why it will never be signed; empty if it may."""
    conditions: list[Any] = items_of(mapping_of(manifest, "status"), "conditions")
    for one in conditions:
        if isinstance(one, dict) and text_of(one, "type") in ("Failed", "Denied"):
            return f"{text_of(one, 'type')}: {text_of(one, 'reason')}: {text_of(one, 'message')}"
    return ""


__all__ = ["AskControllerManager", "ask_controller_manager", "asking_controller_manager", "signer_of"]
