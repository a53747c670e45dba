from __future__ import annotations

import hashlib
import logging
from typing import Any, Final

import pytest

from attestors.contract import Denied, Plausible, PreFiltered
from attestors.wire.binding import BindingMismatch
from attestors.wire.evidence import MalformedEvidence
from signer.decision.pre_filter import flow_of_parsed, requester_of, unfiltered
from signer.model.decision import Deferred, Refused
from signer.model.flow import Flow, PriorityLevel
from signer.model.reasons import Reason
from signer.model.signing_request import Malformed, NotOurs, SigningRequest, parse_signing_request
from tests.unit.signer import builders

REQUESTER: Final = builders.BOOTSTRAP[0]


def answering(answer: PreFiltered | BaseException) -> Any:
    def pre_filter(request: SigningRequest) -> PreFiltered:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return pre_filter


def test_a_flow_is_the_authenticated_requesters_whatever_the_request_says() -> None:
    assert unfiltered(builders.manifest()) == Flow(PriorityLevel.UNFILTERED, REQUESTER)


@pytest.mark.parametrize("spec", [None, [], {}, {"username": None}, {"username": ["system:node:a"]}, {"username": 1}])
def test_a_requester_that_is_no_text_is_nobody(spec: Any) -> None:
    assert requester_of({"spec": spec}) == ""
    assert requester_of({}) == ""


def test_what_is_plausible_is_told_apart_by_machine_and_key() -> None:
    request = builders.signing_request()
    public_key = hashlib.sha256(request.certificate_request.subject_public_key_info).hexdigest()
    assert flow_of_parsed(REQUESTER, request, answering(Plausible())) == Flow(
        PriorityLevel.PLAUSIBLE, REQUESTER, builders.PROVIDER_ID, public_key
    )


@pytest.mark.parametrize(
    "answer",
    [
        Denied("UnknownKey", "nobody knows it"),
        Refused(Reason.ATTESTOR_NOT_AUTHORIZED, "not here"),
        MalformedEvidence("no MAC"),
        BindingMismatch("another key"),
    ],
)
def test_what_is_refused_waits_with_its_claim(answer: Any) -> None:
    flow = flow_of_parsed(REQUESTER, builders.signing_request(), answering(answer))
    assert flow == Flow(PriorityLevel.REFUSED, REQUESTER, builders.PROVIDER_ID)


def test_without_a_sensible_provider_id_the_attestor_is_not_asked() -> None:
    csr = builders.manifest(builders.blocks(builders.pkcs10(extensions=[])))
    flow = flow_of_parsed(REQUESTER, builders.signing_request(csr), answering(AssertionError("asked")))
    assert flow == Flow(PriorityLevel.REFUSED, REQUESTER)


def test_without_evidence_the_attestor_is_not_asked() -> None:
    asked = answering(AssertionError("asked"))
    malformed = Malformed(builders.signing_request().header, Reason.MALFORMED_REQUEST, "no block")
    builtin = parse_signing_request(builders.builtin_serving_manifest(b"no DER"), builders.PROVIDERS)
    for parsed in (malformed, builtin, NotOurs()):
        assert flow_of_parsed(REQUESTER, parsed, asked) == Flow(PriorityLevel.REFUSED, REQUESTER)
    for_serving = builders.builtin_serving_request()
    assert flow_of_parsed(REQUESTER, for_serving, asked) == Flow(PriorityLevel.PLAUSIBLE, REQUESTER)


def test_what_cannot_be_told_yet_is_left_open() -> None:
    answer = answering(Deferred(Reason.ATTESTOR_UNAVAILABLE, "its library is missing"))
    assert flow_of_parsed(REQUESTER, builders.signing_request(), answer) == Flow(
        PriorityLevel.UNFILTERED, REQUESTER, builders.PROVIDER_ID
    )


@pytest.mark.parametrize("defect", [AttributeError("screen"), SystemExit(2)])
def test_a_defect_of_a_plugin_is_logged_and_gains_nothing(
    caplog: pytest.LogCaptureFixture, defect: BaseException
) -> None:
    with caplog.at_level(logging.ERROR):
        flow = flow_of_parsed(REQUESTER, builders.signing_request(), answering(defect))
    assert flow == Flow(PriorityLevel.REFUSED, REQUESTER, builders.PROVIDER_ID)
    (record,) = caplog.records
    assert record.__dict__["provider"] == "tpm"
