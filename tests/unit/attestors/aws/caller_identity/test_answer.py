"""What STS answers: one form is believed, a few codes blame the node."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.aws.caller_identity.answer import MAXIMUM_ANSWER_BYTES, read_answer
from attestors.aws.caller_identity.role_session import CallerIdentity
from attestors.clouds.errors import CloudUnavailable
from attestors.contract import Denied
from attestors.verdict import Ended
from tests.unit.attestors.support import PATIENT

RESULT: Final = {
    "Account": "123456789012",
    "Arn": "arn:aws:sts::123456789012:assumed-role/nodes/i-0123456789abcdef0",
    "UserId": "AROAEXAMPLEEXAMPLE123:i-0123456789abcdef0",
}
METADATA: Final = {"ResponseMetadata": {"RequestId": "1"}}
GOOD: Final = {"GetCallerIdentityResponse": {"GetCallerIdentityResult": RESULT, **METADATA}}
JSON: Final = "application/json"


def body(document: Any) -> bytes:
    return json.dumps(document).encode()


def unavailable(status: int, content_type: str, content: bytes) -> str:
    with pytest.raises(CloudUnavailable) as caught:
        read_answer(status, content_type, content)
    outcome = caught.value.outcome()
    assert outcome.message.startswith("AWS STS: ")
    return outcome.message


def denied(status: int, content: bytes) -> Denied:
    with pytest.raises(Ended) as caught:
        read_answer(status, JSON, content)
    assert isinstance(caught.value.outcome, Denied)
    return caught.value.outcome


@pytest.mark.parametrize("content_type", [JSON, "application/json; charset=utf-8", "Application/JSON"])
def test_the_caller_is_read(content_type: str) -> None:
    caller = read_answer(200, content_type, body(GOOD))
    assert caller == CallerIdentity("aws", "123456789012", "nodes", "AROAEXAMPLEEXAMPLE123", "i-0123456789abcdef0")


@pytest.mark.parametrize("status", [204, 206, 301, 302, 307, 400, 403, 500])
def test_the_right_words_with_another_status_are_not_believed(status: int) -> None:
    assert f"status {status}" in unavailable(status, JSON, body(GOOD))


@pytest.mark.parametrize(
    "content_type", ["text/xml", "text/html", "", "application/jsonp", "text/plain; application/json"]
)
def test_another_type_is_not_believed(content_type: str) -> None:
    assert "something else than JSON" in unavailable(200, content_type, body(GOOD))


def test_xml_is_not_believed() -> None:
    xml = b"<GetCallerIdentityResponse><GetCallerIdentityResult/></GetCallerIdentityResponse>"
    unavailable(200, "text/xml", xml)
    unavailable(200, JSON, xml)


@pytest.mark.parametrize(
    "document",
    [
        {"Error": {"Code": "x", "Message": json.dumps(GOOD)}},
        {"GetSessionTokenResponse": {"GetCallerIdentityResult": RESULT}},
        {"GetCallerIdentityResponse": {"GetSessionTokenResult": RESULT}},
        {"DecodeAuthorizationMessageResponse": {"DecodedMessage": json.dumps(GOOD)}, **GOOD},
        {"GetCallerIdentityResponse": {"Reflected": "x", "GetCallerIdentityResult": RESULT}},
        {"GetCallerIdentityResponse": {"GetCallerIdentityResult": [RESULT]}},
        {"GetCallerIdentityResponse": json.dumps(GOOD["GetCallerIdentityResponse"])},
        {"GetCallerIdentityResponse": {"GetCallerIdentityResult": {**RESULT, "Account": 123456789012}}},
        {"GetCallerIdentityResponse": {"GetCallerIdentityResult": {"Account": "123456789012"}}},
        RESULT,
        [GOOD],
        "x",
        None,
    ],
)
def test_an_answer_to_another_question_or_reflected_data_is_not_believed(document: Any) -> None:
    unavailable(200, JSON, body(document))


def test_a_key_twice_is_not_believed() -> None:
    once = body(GOOD)
    unavailable(200, JSON, once.replace(b'"Account":', b'"Account": "1", "Account":'))
    unavailable(200, JSON, once[:-1] + b"," + once[1:])


def test_more_than_fits_is_not_read() -> None:
    fits = body(GOOD).ljust(MAXIMUM_ANSWER_BYTES)
    assert read_answer(200, JSON, fits).account == "123456789012"
    assert "more than" in unavailable(200, JSON, fits + b" ")


@pytest.mark.parametrize(
    "code",
    ["ExpiredToken", "SignatureDoesNotMatch", "InvalidClientTokenId", "IncompleteSignature", "RequestExpired"],
)
def test_what_sts_holds_against_the_request_denies_it(code: str) -> None:
    outcome = denied(403, body({"Error": {"Code": code, "Message": "m", "Type": "Sender"}, "RequestId": "1"}))
    assert outcome.reason == "CallerIdentityRefused"
    assert code in outcome.message


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "Throttling"),
        (429, "TooManyRequestsException"),
        (503, "Throttling"),
        (500, "InternalFailure"),
        (503, "ServiceUnavailable"),
        (503, "ExpiredToken"),
        (403, "AccessDenied"),
        (403, "RegionDisabledException"),
        (403, "SomethingNew"),
    ],
)
def test_what_is_not_the_nodes_fault_makes_it_wait(status: int, code: str) -> None:
    unavailable(status, JSON, body({"Error": {"Code": code}}))


@pytest.mark.parametrize("status", [302, 403, 429, 500, 502, 503])
def test_an_error_that_is_not_sts_s_makes_it_wait(status: int) -> None:
    unavailable(status, "text/html", b"<h1>proxy</h1>")


def test_a_user_is_no_instance() -> None:
    user = {**RESULT, "Arn": "arn:aws:iam::123456789012:user/i-0123456789abcdef0", "UserId": "AIDAEXAMPLE"}
    outcome = denied(200, body({"GetCallerIdentityResponse": {"GetCallerIdentityResult": user, **METADATA}}))
    assert outcome.reason == "CallerIsNoInstance"


def test_an_answer_that_contradicts_itself_makes_it_wait() -> None:
    """Only AWS, or whoever is between, can have made it so."""
    other = {**RESULT, "Account": "210987654321"}
    unavailable(200, JSON, body({"GetCallerIdentityResponse": {"GetCallerIdentityResult": other, **METADATA}}))


@PATIENT
@given(st.integers(100, 599), st.sampled_from([JSON, "text/xml"]), st.binary(max_size=200))
def test_whatever_sts_answers_is_never_an_identity(status: int, content_type: str, content: bytes) -> None:
    unavailable(status, content_type, content)
