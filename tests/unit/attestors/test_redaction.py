"""What an audit log holds of evidence lets nobody act, and still says all that is judged."""

from __future__ import annotations

import base64
from datetime import timedelta
from types import MappingProxyType

import pytest

from attestors.aws import plugin as aws
from attestors.aws import wire as aws_wire
from attestors.aws.caller_identity import PresignedRequest
from attestors.clouds.recorded_calls import read_outcome, without_signature, write_outcome
from attestors.contract import Auditable, Denied, NotProvableYet, digest_of
from attestors.gcp import plugin as gcp
from attestors.gcp import wire as gcp_wire
from attestors.gcp.certificate_source import CertificateSource
from attestors.gcp.controller import GCPServerPlugin
from attestors.gcp.instances import NoLookUp
from attestors.insecure import plugin as insecure
from attestors.tpm import plugin as tpm
from attestors.wire.binding import CACertHash
from attestors.wire.evidence import Evidence, MalformedEvidence
from tests.support.fake_google import encode_token
from tests.support.fake_google.signing import signing_key
from tests.unit.attestors.gcp import support as google

URL = (
    "https://sts.eu-west-1.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15"
    "&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=ASIAABCDEFGHIJKLMNOP%2F20260301%2Feu-west-1%2Fsts%2F"
    "aws4_request&X-Amz-Date=20260301T120000Z&X-Amz-Expires=300&X-Amz-Security-Token={token}"
    f"&X-Amz-SignedHeaders=host%3B{aws_wire.BINDING_HEADER}&X-Amz-Signature={{signature}}"
)
SESSION_TOKEN = "IQoJb3JpZ2luX2VjEOT"
SIGNATURE = "0f" * 32
PRESIGNED = URL.format(token=SESSION_TOKEN, signature=SIGNATURE)


def evidence(**fields: str) -> Evidence:
    return Evidence("v1", CACertHash("sha256:" + "ab" * 32), MappingProxyType(fields))


@pytest.mark.parametrize("attestor", [aws, gcp, insecure, tpm])
def test_all_of_ours_say_it(attestor: object) -> None:
    assert isinstance(attestor, Auditable)


def test_a_presigned_request() -> None:
    fields = aws.redacted_fields(evidence(**{aws_wire.CALLER_IDENTITY_REQUEST_FIELD: PRESIGNED}))
    kept = fields[aws_wire.CALLER_IDENTITY_REQUEST_FIELD]
    assert SESSION_TOKEN not in kept
    assert SIGNATURE not in kept
    before, after = PresignedRequest.parse(PRESIGNED), PresignedRequest.parse(kept)
    assert (after.region, after.signed_at, after.lifetime) == (before.region, before.signed_at, before.lifetime)


def test_a_presigned_request_of_an_early_year() -> None:
    early = PRESIGNED.replace("20260301", "00010301")
    (kept,) = aws.redacted_fields(evidence(**{aws_wire.CALLER_IDENTITY_REQUEST_FIELD: early})).values()
    assert PresignedRequest.parse(kept).signed_at == PresignedRequest.parse(early).signed_at


def test_a_presigned_request_that_is_too_long_stays_none() -> None:
    """Without its session token it would be short enough."""
    long = URL.format(token="%2B" * 4096, signature=SIGNATURE)
    assert len(long) > aws_wire.MAXIMUM_CALLER_IDENTITY_REQUEST_CHARACTERS
    fields = aws.redacted_fields(evidence(**{aws_wire.CALLER_IDENTITY_REQUEST_FIELD: long}))
    assert fields == {aws_wire.CALLER_IDENTITY_REQUEST_FIELD: digest_of(long)}


@pytest.mark.parametrize("url", [PRESIGNED + "&more=1", PRESIGNED.replace("https", "http"), "", SESSION_TOKEN])
def test_what_cannot_be_taken_apart_is_not_kept(url: str) -> None:
    fields = aws.redacted_fields(evidence(**{aws_wire.CALLER_IDENTITY_REQUEST_FIELD: url, "unknown": SESSION_TOKEN}))
    assert fields == {aws_wire.CALLER_IDENTITY_REQUEST_FIELD: digest_of(url), "unknown": digest_of(SESSION_TOKEN)}


def test_a_token() -> None:
    token = encode_token({"iss": "https://accounts.google.com"}, signing_key(1))
    (kept,) = gcp.redacted_fields(evidence(**{gcp_wire.IDENTITY_TOKEN_FIELD: token})).values()
    head, _, signature = token.rpartition(".")
    assert kept.startswith(head)
    assert signature not in kept
    assert base64.urlsafe_b64decode(kept.rpartition(".")[2] + "=")


@pytest.mark.parametrize("token", ["", "a.b", "a.b.c.d", "a.b." + "c" * 97])
def test_what_is_no_token_is_not_kept(token: str) -> None:
    assert without_signature(token, maximum_characters=100) == digest_of(token)
    assert gcp.redacted_fields(evidence(other="x.y.z")) == {"other": digest_of("x.y.z")}


HEAD, _, TOKENS_SIGNATURE = google.token().rpartition(".")
UNSIGNED = google.signed('{"alg":"none","kid":"x"}', "{}").rpartition(".")[0]
OTHER_ISSUER = google.token(google.claims(iss="https://attacker.example")).rpartition(".")[0]
MUCH = google.token(google.claims(iss="x" * 5490)).rpartition(".")[0]
MAXIMUM = gcp_wire.MAXIMUM_TOKEN_CHARACTERS


@pytest.mark.parametrize(
    ("token", "answer"),
    [
        (google.token(), "Plausible"),
        (f"{UNSIGNED}.", "TokenAlgorithmRefused"),
        (f"{UNSIGNED}.ä", "TokenAlgorithmRefused"),
        (f"{UNSIGNED}.{TOKENS_SIGNATURE}", "TokenAlgorithmRefused"),
        (f"{OTHER_ISSUER}.{TOKENS_SIGNATURE}", "TokenIssuerRefused"),
        (f"{OTHER_ISSUER}.A", "MalformedEvidence"),
        (f"{OTHER_ISSUER}.AB", "MalformedEvidence"),
        (f"{OTHER_ISSUER}.!!", "MalformedEvidence"),
        (f"{OTHER_ISSUER}.", "MalformedEvidence"),
        (f"{OTHER_ISSUER}.{'A' * MAXIMUM}", "MalformedEvidence"),
        (f"{MUCH}.AAAA", "TokenIssuerRefused"),
        (f".{HEAD}", "MalformedEvidence"),
        (f"ä{HEAD}.{TOKENS_SIGNATURE}", "MalformedEvidence"),
    ],
    ids=[
        "good",
        "unsigned",
        "unsigned, no ASCII",
        "unsigned, and yet signed",
        "another issuer's",
        "one character",
        "not canonical",
        "no base64url",
        "empty",
        "too long",
        "short in a long token",
        "no header",
        "no ASCII",
    ],
)
def test_what_is_wrong_with_a_token_is_wrong_with_what_is_kept_of_it(token: str, answer: str) -> None:
    """Or whoever has a bootstrap token could make ``audit verify`` find decisions that the log does not give."""

    def judged(text: str) -> str:
        plugin = GCPServerPlugin(google.SETTINGS, nobody_asks, NoLookUp())
        try:
            outcome = plugin.pre_filter(google.request(text))
        except MalformedEvidence as error:
            return type(error).__name__
        return outcome.reason if isinstance(outcome, Denied) else type(outcome).__name__

    (kept,) = gcp.redacted_fields(evidence(**{gcp_wire.IDENTITY_TOKEN_FIELD: token})).values()
    assert kept.rpartition(".")[2] != TOKENS_SIGNATURE
    assert (judged(token), judged(kept)) == (answer, answer)


def nobody_asks() -> CertificateSource:
    raise AssertionError("Google was asked")


def test_what_ends_a_judgement_is_read_back() -> None:
    for outcome in (Denied("Wrong", "why"), NotProvableYet("Later", "why", timedelta(seconds=30))):
        assert read_outcome(write_outcome(outcome)) == outcome
