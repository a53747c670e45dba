from __future__ import annotations

import hashlib
import logging
from typing import Any, Final

import pytest

from attestors.contract import Denied, Plausible, Screened
from attestors.wire.binding import BindingMismatch
from attestors.wire.evidence import MalformedEvidence
from signer.decision.pre_filter import lane_found, requester_of, unscreened
from signer.model.csr_header import NotOurs
from signer.model.decision import Deferred, Refused
from signer.model.flow import Lane, Screening
from signer.model.reasons import Reason
from signer.model.signing_request import Malformed, SigningRequest, parse_signing_request
from tests.unit.signer import builders

REQUESTER: Final = builders.BOOTSTRAP[0]


def answering(answer: Screened | BaseException) -> Any:
    def screen(request: SigningRequest) -> Screened:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return screen


def test_a_lane_is_the_authenticated_requesters_whatever_the_request_says() -> None:
    assert unscreened(builders.manifest()) == Lane(Screening.UNSCREENED, REQUESTER)


@pytest.mark.parametrize("spec", [None, [], {}, {"username": None}, {"username": ["system:node:a"]}, {"username": 1}])
def test_a_requester_that_is_no_text_is_nobody(spec: Any) -> None:
    assert requester_of({"spec": spec}) == ""
    assert requester_of({}) == ""


def test_what_is_plausible_is_told_apart_by_machine_and_key() -> None:
    request = builders.signing_request()
    public_key = hashlib.sha256(request.certificate_request.subject_public_key_info).hexdigest()
    assert lane_found(REQUESTER, request, answering(Plausible())) == Lane(
        Screening.PLAUSIBLE, REQUESTER, builders.PROVIDER_ID, public_key
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
    lane = lane_found(REQUESTER, builders.signing_request(), answering(answer))
    assert lane == Lane(Screening.REFUSED, REQUESTER, builders.PROVIDER_ID)


def test_without_a_sensible_provider_id_the_attestor_is_not_asked() -> None:
    csr = builders.manifest(builders.blocks(builders.pkcs10(extensions=[])))
    lane = lane_found(REQUESTER, builders.signing_request(csr), answering(AssertionError("asked")))
    assert lane == Lane(Screening.REFUSED, REQUESTER)


def test_without_evidence_the_attestor_is_not_asked() -> None:
    asked = answering(AssertionError("asked"))
    malformed = Malformed(builders.signing_request().envelope, Reason.MALFORMED_REQUEST, "no block")
    stock = parse_signing_request(builders.stock_serving_manifest(b"no DER"), builders.PROVIDERS)
    for parsed in (malformed, stock, NotOurs()):
        assert lane_found(REQUESTER, parsed, asked) == Lane(Screening.REFUSED, REQUESTER)
    for_serving = builders.stock_serving_request()
    assert lane_found(REQUESTER, for_serving, asked) == Lane(Screening.PLAUSIBLE, REQUESTER)


def test_what_cannot_be_told_yet_is_left_open() -> None:
    answer = answering(Deferred(Reason.ATTESTOR_UNAVAILABLE, "its library is missing"))
    assert lane_found(REQUESTER, builders.signing_request(), answer) == Lane(
        Screening.UNSCREENED, REQUESTER, builders.PROVIDER_ID
    )


@pytest.mark.parametrize("defect", [AttributeError("screen"), SystemExit(2)])
def test_a_defect_of_a_plugin_is_logged_and_gains_nothing(
    caplog: pytest.LogCaptureFixture, defect: BaseException
) -> None:
    with caplog.at_level(logging.ERROR):
        lane = lane_found(REQUESTER, builders.signing_request(), answering(defect))
    assert lane == Lane(Screening.REFUSED, REQUESTER, builders.PROVIDER_ID)
    (record,) = caplog.records
    assert record.__dict__["provider"] == "tpm"
