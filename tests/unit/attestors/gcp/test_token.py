"""Reading tokens: strict, so that no two readers can understand one differently."""

from __future__ import annotations

import hashlib
import hmac
import json
import string

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from attestors.gcp.token import MalformedToken, UnsuitableAlgorithm, parse_token
from tests.support.fake_google.signing import base64url
from tests.unit.attestors.gcp.support import ABSENT, KEY, claims, header, repeated, signed, token
from tests.unit.attestors.support import PATIENT

GOOD = token()
PAYLOAD = json.dumps(claims())
HEADER = json.dumps(header())


def test_a_good_token() -> None:
    read = parse_token(GOOD)
    assert read.key_id == KEY.key_id
    assert read.signed == GOOD.rpartition(".")[0].encode()
    assert base64url(read.signature) == GOOD.rpartition(".")[2]
    assert GOOD.rpartition(".")[2] not in repr(read)


def test_a_header_without_a_type_is_enough() -> None:
    assert parse_token(token(typ=ABSENT)).key_id == KEY.key_id


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (GOOD.rpartition(".")[0], "three segments"),
        (GOOD + ".", "three segments"),
        ("", "three segments"),
        ("..", "header is not base64url"),
        (GOOD.rpartition(".")[0] + ".", "signature is not base64url"),
        (GOOD + "=", "signature is not base64url"),
        (GOOD + "\n", "signature is not base64url"),
        (" " + GOOD, "header is not base64url"),
        (GOOD.replace(".", ".+", 1), "payload is not base64url"),
        (GOOD.replace(".", ".é", 1), "payload is not base64url"),
        (GOOD + "AAA", "signature is not base64url"),
        (GOOD[:-1] + {"A": "B", "Q": "R", "g": "h", "w": "x"}[GOOD[-1]], "signature is not canonical"),
        (signed("[]", PAYLOAD), "header: not a JSON object"),
        (signed("{", PAYLOAD), "header: not JSON"),
        (signed(HEADER, '"text"'), "payload: not a JSON object"),
        (signed(HEADER, "[" * 5000), "payload: more than 512 objects and lists"),
        (signed(HEADER, PAYLOAD + "{}"), "payload: not JSON"),
        (signed(HEADER, PAYLOAD.replace('"exp": ', '"exp": NaN, "was": ')), "payload: not JSON"),
        (signed(HEADER, '{"exp": ' + "9" * 5000 + "}"), "payload: not JSON"),
        (signed(repeated("kid", "x", header()), PAYLOAD), "key is repeated"),
        (signed(HEADER, repeated("aud", "x", claims())), "key is repeated"),
        (signed(HEADER, PAYLOAD.replace('"instance_id"', '"zone": "europe-west1-c", "instance_id"')), "repeated"),
        (token(kid=ABSENT), "no key ID"),
        (token(kid=""), "no key ID"),
        (token(kid=7), "no key ID"),
        (token(kid="../" + KEY.key_id), "no key ID"),
        (token(kid="k" * 129), "no key ID"),
        (token(kid=KEY.key_id + "\n"), "no key ID"),
        (token(crit=["exp"]), "critical extensions"),
        (token(typ="at+jwt"), "another type"),
        (token(claims(exp="1")), "payload: exp"),
    ],
    ids=[
        "two segments",
        "four segments",
        "empty",
        "three empty segments",
        "no signature",
        "padding",
        "line break",
        "blank",
        "base64 of another alphabet",
        "not ASCII",
        "impossible length",
        "bits that count for nothing",
        "header is a list",
        "header is not a JSON",
        "payload is a text",
        "deep nesting",
        "two documents",
        "no number",
        "huge number",
        "repeated key in the header",
        "repeated claim",
        "repeated claim inside",
        "no kid",
        "empty kid",
        "kid is no text",
        "kid is a path",
        "long kid",
        "kid with a line break",
        "critical extension",
        "another type",
        "claim of another form",
    ],
)
def test_what_is_no_token(text: str, part: str) -> None:
    with pytest.raises(MalformedToken, match=part) as refused:
        parse_token(text)
    assert "capi-workloads" not in str(refused.value)


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "HS256", "ES256", "RS512", "PS256", "rs256", "", ABSENT, ["RS256"]]
)
def test_any_other_algorithm(algorithm: object) -> None:
    with pytest.raises(UnsuitableAlgorithm, match="RS256"):
        parse_token(token(alg=algorithm))


def test_a_token_without_a_signature() -> None:
    """``alg`` none with the empty signature that RFC 7519 section 6.1 gives it."""
    unsigned = f"{base64url(json.dumps(header(alg='none')).encode())}.{base64url(PAYLOAD.encode())}."
    with pytest.raises(UnsuitableAlgorithm):
        parse_token(unsigned)


def test_the_public_key_as_a_shared_secret() -> None:
    """HS256 with Google's certificate, or public key, as the secret."""
    for secret in (
        KEY.certificate_pem.encode(),
        KEY.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    ):
        content = f"{base64url(json.dumps(header(alg='HS256')).encode())}.{base64url(PAYLOAD.encode())}"
        mac = hmac.digest(secret, content.encode(), hashlib.sha256)
        with pytest.raises(UnsuitableAlgorithm):
            parse_token(f"{content}.{base64url(mac)}")


@PATIENT
@given(st.text(alphabet=string.ascii_letters + string.digits + "-_.=+/ \n\x00é", max_size=200))
def test_any_text(text: str) -> None:
    with pytest.raises((MalformedToken, UnsuitableAlgorithm)):
        parse_token(text)


@PATIENT
@given(st.integers(0, len(GOOD) - 1), st.characters(codec="ascii"))
def test_any_change_is_another_token_or_none(position: int, character: str) -> None:
    """No two texts are read as the same token."""
    text = GOOD[:position] + character + GOOD[position + 1 :]
    try:
        read = parse_token(text)
    except (MalformedToken, UnsuitableAlgorithm):
        return
    assert (read == parse_token(GOOD)) is (text == GOOD)


@PATIENT
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["google", "compute_engine", "aud", "iss", "exp"]) | st.text(), inner)
        ),
        max_leaves=20,
    )
)
def test_any_payload(payload: object) -> None:
    """A fault is told as one, whatever JSON it is."""
    with pytest.raises(MalformedToken):
        parse_token(signed(HEADER, json.dumps(payload)))
