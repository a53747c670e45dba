"""Properties of an attested request's certificate that follow from policy, record and request alone."""

from __future__ import annotations

import functools
import hashlib
from datetime import datetime, timedelta

from attestors.contract import Security
from attestors.wire.names import Purpose
from signer.model.kubernetes_time import parse_time
from signer.model.policy import Policy
from signer.model.record import AttestedNode
from signer.model.signing_request import BuiltinServingRequest, SigningRequest
from signer.rules.machine import NoRecord


def certificate_duration(policy: Policy, purpose: Purpose, security: Security) -> timedelta:
    """The certificate lifetime that the policy sets for this purpose and kind of attestor."""
    if security is Security.INSECURE:
        return policy.insecure_duration
    return policy.serving_duration if purpose is Purpose.SERVING else policy.client_duration


def requested_duration(request: SigningRequest, record: AttestedNode | NoRecord) -> int | None:
    """The request's ``expirationSeconds``; None for a key that already has a certificate.

    No evidence covers this field. Copies of a request with other values would otherwise each get another certificate.
    """
    if not isinstance(record, NoRecord) and record.entries_for_key(
        public_key_digest(request), str(request.header.signer)
    ):
        return None
    return request.header.expiration_seconds


def public_key_digest(request: SigningRequest | BuiltinServingRequest) -> str:
    """SHA-256 of the requested public key, hexadecimal. Copies of a request have the same."""
    return _sha256(request.certificate_request.subject_public_key_info)


@functools.lru_cache(maxsize=256)  # needed five times while a request is decided
def _sha256(subject_public_key_info: bytes) -> str:
    return hashlib.sha256(subject_public_key_info).hexdigest()


def first_requested_at(request: SigningRequest, record: AttestedNode | NoRecord, now: datetime) -> datetime:
    """When this key was first requested, by the API server's clock; ``now`` if its time cannot be read.

    A copy of a request may be posted at any later time. It counts as old as the first one.
    """
    try:
        created = parse_time(request.header.created)
    except ValueError:
        created = now.replace(microsecond=0)
    if isinstance(record, NoRecord):
        return created
    entries = record.entries_for_key(public_key_digest(request), str(request.header.signer))
    return min((created, *(entry.created for entry in entries)))
