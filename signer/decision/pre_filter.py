"""The pre-filter: finds the flow in which a request waits, from the request and its evidence alone. It decides nothing.

Every request is decided in full later, plausible or refused: a refused one only waits behind the others.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import TypeAlias

from attestors.contract import Denied, PreFiltered
from attestors.registry import AttestorFailed, attestor_code
from attestors.wire.binding import BindingMismatch
from attestors.wire.evidence import MalformedEvidence
from signer.kube.client import JsonObject
from signer.model.decision import Deferred, Refused
from signer.model.flow import Flow, PriorityLevel
from signer.model.flow import requester_of as requester_of
from signer.model.flow import unfiltered as unfiltered
from signer.model.signing_request import (
    BuiltinServingRequest,
    Malformed,
    MalformedBuiltinServingRequest,
    NotOurs,
    Parsed,
    Settled,
    SigningRequest,
)
from signer.rules.request import claimed_provider_id

_LOG = logging.getLogger(__name__)

PreFilter: TypeAlias = Callable[[JsonObject], Flow]
"""Finds the flow of a CSR: no calls, no waiting, never raises; 0.3 to 1 ms of CPU time."""


def flow_of_parsed(requester: str, parsed: Parsed, pre_filter: Callable[[SigningRequest], PreFiltered]) -> Flow:
    """The flow of a parsed CSR; ``pre_filter`` asks the attestor (``ServerPlugin.pre_filter``).

    If ``pre_filter`` raises Deferred, the request stays unfiltered, because its decision would be deferred too. Any
    other error refuses it. A request that must not be retried must not stay unfiltered, because unfiltered requests
    come first.
    """
    match parsed:
        case SigningRequest():
            return _flow_of_evidence(requester, parsed, pre_filter)
        case BuiltinServingRequest():
            return Flow(PriorityLevel.PLAUSIBLE, requester)  # without evidence there is no ground for a refusal
        case NotOurs() | Settled() | Malformed() | MalformedBuiltinServingRequest():
            return Flow(PriorityLevel.REFUSED, requester)


def _flow_of_evidence(
    requester: str, request: SigningRequest, pre_filter: Callable[[SigningRequest], PreFiltered]
) -> Flow:
    provider_id = ""
    try:
        with attestor_code(Refused, MalformedEvidence, BindingMismatch, Deferred):
            provider_id = claimed_provider_id(request)
            found = pre_filter(request)
    except (Refused, MalformedEvidence, BindingMismatch):
        return Flow(PriorityLevel.REFUSED, requester, provider_id)
    except Deferred:
        return Flow(PriorityLevel.UNFILTERED, requester, provider_id)
    except AttestorFailed as failed:
        _LOG.error("a request could not be pre-filtered", exc_info=failed.fault, extra={"provider": request.provider})
        return Flow(PriorityLevel.REFUSED, requester, provider_id)
    if isinstance(found, Denied):
        return Flow(PriorityLevel.REFUSED, requester, provider_id)
    public_key = hashlib.sha256(request.certificate_request.subject_public_key_info).hexdigest()
    return Flow(PriorityLevel.PLAUSIBLE, requester, provider_id, public_key)
