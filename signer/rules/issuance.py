"""What the certificate of an attested request is like, as far as it follows from policy, record and request alone."""

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
    """What the policy grants."""
    if security is Security.INSECURE:
        return policy.insecure_duration
    return policy.serving_duration if purpose is Purpose.SERVING else policy.client_duration


def duration_asked_for(request: SigningRequest, record: AttestedNode | NoRecord) -> int | None:
    """``expirationSeconds``, in seconds; for a key that has a certificate already it is not heeded.

    No evidence covers it: who posts copies of a request with every other number gets one more certificate and not
    thousands.
    """
    if not isinstance(record, NoRecord) and record.entries_for_key(
        public_key_digest(request), str(request.header.signer)
    ):
        return None
    return request.header.expiration_seconds


def public_key_digest(request: SigningRequest | BuiltinServingRequest) -> str:
    """By which copies of a request are known."""
    return _sha256(request.certificate_request.subject_public_key_info)


@functools.lru_cache(maxsize=256)  # asked for five times while a request is judged
def _sha256(subject_public_key_info: bytes) -> str:
    return hashlib.sha256(subject_public_key_info).hexdigest()


def asked_since(request: SigningRequest, record: AttestedNode | NoRecord, now: datetime) -> datetime:
    """When that key was first asked for, as the API server says; now, where it says nothing that can be read.

    Copies of a request can be posted at any later time: they are as old as the first one.
    """
    try:
        created = parse_time(request.header.created)
    except ValueError:
        created = now.replace(microsecond=0)
    if isinstance(record, NoRecord):
        return created
    entries = record.entries_for_key(public_key_digest(request), str(request.header.signer))
    return min((created, *(entry.created for entry in entries)))
