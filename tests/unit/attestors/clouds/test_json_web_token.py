"""JSON Web Tokens: one strict reading, few algorithms, keys of the issuer's alone."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from attestors.clouds.json_web_token import (
    MAXIMUM_KEY_SET_BYTES,
    MAXIMUM_KEYS,
    MAXIMUM_TOKEN_CHARACTERS,
    Algorithm,
    InvalidKeySet,
    InvalidToken,
    UnverifiedToken,
    parse_key_set,
)
from tests.support.fake_aws.accounts import Issuer, encoded, sign
from tests.unit.attestors.support import PATIENT

CLAIMS: Final = {"iss": "https://issuer.example", "aud": "me", "exp": 1}


@functools.cache
def issuer() -> Issuer:
    return Issuer()


def key_set(**changes: Any) -> bytes:
    """The issuer's, with its RSA key changed."""
    entries = [dict(entry) for entry in issuer().key_set()["keys"]]
    entries[0] = {name: value for name, value in (entries[0] | changes).items() if value is not ...}
    return json.dumps({"keys": entries}).encode()


def joined(header: object, claims: object = CLAIMS, key_id: str = "RSA_0") -> str:
    """A token of any header, signed."""
    signed = f"{encoded(json.dumps(header).encode())}.{encoded(json.dumps(claims).encode())}"
    return f"{signed}.{encoded(sign(issuer().keys[key_id], signed.encode()))}"


def refused(text: str) -> str:
    with pytest.raises(InvalidToken) as caught:
        UnverifiedToken.parse(text)
    return str(caught.value)


@pytest.mark.parametrize("key_id", ["RSA_0", "EC384_0"])
def test_a_token_of_the_issuers_is_verified(key_id: str) -> None:
    token = UnverifiedToken.parse(issuer().token(CLAIMS, key_id))
    keys = parse_key_set(json.dumps(issuer().key_set()).encode())
    token.verify(keys[token.key_id])
    assert dict(token.claims) == CLAIMS
    assert "issuer.example" not in repr(token)


@pytest.mark.parametrize("key_id", ["RSA_0", "EC384_0"])
def test_another_keys_signature_is_refused(key_id: str) -> None:
    token = UnverifiedToken.parse(issuer().token(CLAIMS, key_id))
    other = Issuer(generation=1).keys[key_id].public_key()
    with pytest.raises(InvalidToken, match="not of its issuer's key"):
        token.verify(other)


@pytest.mark.parametrize("key_id", ["RSA_0", "EC384_0"])
def test_changed_claims_are_refused(key_id: str) -> None:
    header, _, signature = issuer().token(CLAIMS, key_id).split(".")
    changed = encoded(json.dumps({**CLAIMS, "aud": "you"}).encode())
    token = UnverifiedToken.parse(f"{header}.{changed}.{signature}")
    with pytest.raises(InvalidToken):
        token.verify(issuer().keys[key_id].public_key())


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "HS256", "RS512", "PS256", "ES256", "ES512", "EdDSA", "rs256", "", 1, None, []]
)
def test_other_algorithms_are_refused(algorithm: Any) -> None:
    assert "another algorithm" in refused(joined({"alg": algorithm, "kid": "RSA_0", "typ": "JWT"}))


def test_a_public_key_is_no_shared_secret() -> None:
    key = issuer().keys["RSA_0"].public_key()
    secret = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    header, claims = {"alg": "HS256", "kid": "RSA_0"}, CLAIMS
    signed = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
    refused(f"{signed}.{encoded(hmac.digest(secret, signed.encode(), hashlib.sha256))}")


@pytest.mark.parametrize(("said", "key_id"), [("ES384", "RSA_0"), ("RS256", "EC384_0")])
def test_the_algorithm_must_be_the_keys(said: str, key_id: str) -> None:
    token = UnverifiedToken.parse(joined({"alg": said, "kid": key_id}, key_id=key_id))
    assert token.algorithm is Algorithm(said)
    with pytest.raises(InvalidToken, match="algorithm is not that of"):
        token.verify(issuer().keys[key_id].public_key())


@pytest.mark.parametrize("kid", [..., "", "a b", "../x", "x" * 129, 1, None, ["RSA_0"]])
def test_a_token_must_name_its_key(kid: Any) -> None:
    header = {"alg": "RS256", "typ": "JWT"} | ({} if kid is ... else {"kid": kid})
    refused(joined(header))


@pytest.mark.parametrize("name", ["jwk", "jku", "x5c", "x5u", "x5t", "crit", "b64", "zip", "enc", "cty"])
def test_a_header_with_keys_or_anything_else_is_refused(name: str) -> None:
    assert "nothing else" in refused(joined({"alg": "RS256", "kid": "RSA_0", name: "x"}))


@pytest.mark.parametrize("kind", ["JWE", "at+jwt", 1, None])
def test_another_type_is_refused(kind: Any) -> None:
    refused(joined({"alg": "RS256", "kid": "RSA_0", "typ": kind}))


def test_the_type_may_be_missing() -> None:
    UnverifiedToken.parse(joined({"alg": "RS256", "kid": "RSA_0"}))


def test_a_key_twice_in_header_or_claims_is_refused() -> None:
    good = issuer().token(CLAIMS)
    header, claims, signature = good.split(".")
    twice_header = encoded(b'{"alg":"none","alg":"RS256","kid":"RSA_0"}')
    twice_claims = encoded(b'{"aud":"me","aud":"you"}')
    assert "has a repeated key" in refused(f"{twice_header}.{claims}.{signature}")
    assert "has a repeated key" in refused(f"{header}.{twice_claims}.{signature}")


@pytest.mark.parametrize("content", [b"[]", b'"x"', b"1", b"", b"\xff", b"{", b'{"a":NaN}', b"{}x", b"[" * 10000])
def test_claims_must_be_an_object(content: bytes) -> None:
    header, _, signature = issuer().token(CLAIMS).split(".")
    refused(f"{header}.{encoded(content)}.{signature}")


def test_there_are_three_parts_in_strict_base64url() -> None:
    good = issuer().token(CLAIMS)
    header, claims, signature = good.split(".")
    for text in ("", ".", "..", "...", f"{good}.", f"{good}.x", f"{header}.{claims}", f"{header}.{claims}."):
        refused(text)
    for changed in (f"{good}=", f"{good}\n", f" {good}", good.replace(".", ". "), f"{header}=.{claims}.{signature}"):
        refused(changed)


def test_there_is_one_way_to_write_base64url() -> None:
    header, _, signature = issuer().token(CLAIMS).split(".")
    claims = base64.urlsafe_b64encode(b'{"a":1} ').decode().rstrip("=")
    UnverifiedToken.parse(f"{header}.{claims}.{signature}")
    loose = claims[:-1] + chr(ord(claims[-1]) + 1)
    assert base64.urlsafe_b64decode(loose + "=") == b'{"a":1} '
    assert "canonical" in refused(f"{header}.{loose}.{signature}")


def test_a_token_is_bounded() -> None:
    assert "more than" in refused("a" * (MAXIMUM_TOKEN_CHARACTERS + 1))
    long = joined({"alg": "RS256", "kid": "RSA_0"}, {"x": "y" * (MAXIMUM_TOKEN_CHARACTERS // 2)})
    assert UnverifiedToken.parse(long).key_id == "RSA_0"


@pytest.mark.parametrize("length", [0, 95, 97, 104])
def test_an_elliptic_signature_has_its_length(length: int) -> None:
    header, claims, _ = issuer().token(CLAIMS, "EC384_0").split(".")
    if length == 0:
        refused(f"{header}.{claims}.")
        return
    token = UnverifiedToken.parse(f"{header}.{claims}.{encoded(b'x' * length)}")
    with pytest.raises(InvalidToken, match="length"):
        token.verify(issuer().keys["EC384_0"].public_key())


def test_an_elliptic_signature_of_zeros_is_refused() -> None:
    header, claims, _ = issuer().token(CLAIMS, "EC384_0").split(".")
    with pytest.raises(InvalidToken):
        UnverifiedToken.parse(f"{header}.{claims}.{encoded(bytes(96))}").verify(issuer().keys["EC384_0"].public_key())


def test_a_key_set_is_read_and_other_keys_are_left_out() -> None:
    other = [{"kty": "oct", "k": "eA", "kid": "s"}, {"kty": "EC", "crv": "P-256", "kid": "p"}, {"kty": "OKP"}]
    entries = [*issuer().key_set()["keys"], *other, {"kty": "RSA", "use": "enc", "kid": "e"}]
    keys = parse_key_set(json.dumps({"keys": entries}).encode())
    assert sorted(keys) == ["EC384_0", "RSA_0"]


@pytest.mark.parametrize(
    "changes",
    [
        {"kid": ...},
        {"kid": "EC384_0"},
        {"kid": "a b"},
        {"n": ...},
        {"n": 5},
        {"n": "!"},
        {"e": "AQ"},
        {"e": "AQAD"},
        {"n": encoded(b"\xff" * 128)},
        {"n": encoded(b"\xff" * 1024)},
    ],
)
def test_a_weak_nameless_or_broken_key_spoils_the_set(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidKeySet):
        parse_key_set(key_set(**changes))


def test_a_point_that_is_not_on_the_curve_spoils_the_set() -> None:
    entries = [dict(entry) for entry in issuer().key_set()["keys"]]
    entries[1]["x"] = encoded(b"\x01" * 48)
    with pytest.raises(InvalidKeySet):
        parse_key_set(json.dumps({"keys": entries}).encode())


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"keys":{}}', b'{"keys":[1]}', b'{"keys":[],"keys":[]}', b"<html>"]
)
def test_something_else_is_no_key_set(content: bytes) -> None:
    with pytest.raises(InvalidKeySet):
        parse_key_set(content)


@pytest.mark.parametrize("name", ["kty", "crv", "use"])
def test_a_kind_that_is_no_text_is_another_kind(name: str) -> None:
    """Found by fuzzing: a list has no hash."""
    first, *others = issuer().key_set()["keys"]
    entries = [{**first, name: ["RSA"]}, *others]
    assert list(parse_key_set(json.dumps({"keys": entries}).encode())) == [other["kid"] for other in others]


def test_a_set_without_a_key_that_signs_is_the_issuers_fault() -> None:
    """Every token would be by a key that it does not publish, and denied."""
    for entries in ([], [{**entry, "use": "enc"} for entry in issuer().key_set()["keys"]]):
        with pytest.raises(InvalidKeySet, match="no key that signs"):
            parse_key_set(json.dumps({"keys": entries}).encode())


def test_a_key_set_is_bounded() -> None:
    with pytest.raises(InvalidKeySet):
        parse_key_set(json.dumps({"keys": [{}] * (MAXIMUM_KEYS + 1)}).encode())
    with pytest.raises(InvalidKeySet):
        parse_key_set(key_set().ljust(MAXIMUM_KEY_SET_BYTES + 1))
    assert len(parse_key_set(key_set().ljust(MAXIMUM_KEY_SET_BYTES))) == 2


def test_a_recorded_key_set_of_an_account_is_read() -> None:
    recorded = {
        "keys": [
            {
                "e": "AQAB",
                "kid": "RSA_0",
                "kty": "RSA",
                "n": (
                    "3AvB0UECoYssZEgSMTa4SYvfqstJxkhbBBSKAFRUW6f_McJ9CAXkTi6YkG0NGm77ZIRW12_gOLKZJUHWp9CMAbmk0O4sMIx8"
                    "K6Ap7-6qjkt7FYvl4mkQVJd-pU-yE3SJn0S5xEbCYXulgrrGN8POysTblqN0BfrdDAYTVhWQ47rbm--3QrRcVN9XCjlMBVXY"
                    "auaN6KlszKL6NTe7GWilauYBsVHw7d4ekliuEGGA6zJNGz595KD7yofRc1euFs86KgiFj0mpudCqG39jIlBJ4vZSJPw1Rsvh"
                    "g8THqlxhmurVYr9TuckLJa5fpEL78xGs3Ar4GIM6w0sxLDbdY-KdCQ"
                ),
                "use": "sig",
            },
            {
                "alg": "ES384",
                "crv": "P-384",
                "kid": "EC384_0",
                "kty": "EC",
                "use": "sig",
                "x": "ad_olFw0n3XBA114sefjlirPf2gX6bKqT-kD2lQzfQzkWW1TetKIUWah3md-UgV9",
                "y": "w6GzW2Oen4G7Ei1bFaDkBpPSulvkSznb6YtG79NWK9UjgDqfN6am9lUs-bF8VN7v",
            },
        ]
    }
    keys = parse_key_set(json.dumps(recorded).encode())
    assert isinstance(keys["RSA_0"], rsa.RSAPublicKey)
    assert isinstance(keys["EC384_0"], ec.EllipticCurvePublicKey)


@PATIENT
@given(st.text(max_size=60), st.integers(0, 2))
def test_whatever_comes_is_read_or_refused(text: str, where: int) -> None:
    parts = issuer().token(CLAIMS).split(".")
    parts[where] = text
    for candidate in (text, ".".join(parts)):
        try:
            token = UnverifiedToken.parse(candidate)
        except InvalidToken:
            continue
        with pytest.raises(InvalidToken):
            token.verify(issuer().keys["RSA_0"].public_key())


def test_what_rsa_signs_with_another_padding_is_refused() -> None:
    header, claims, _ = issuer().token(CLAIMS).split(".")
    key = issuer().keys["RSA_0"]
    assert isinstance(key, rsa.RSAPrivateKey)
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), 32)
    signature = key.sign(f"{header}.{claims}".encode(), pss, hashes.SHA256())
    with pytest.raises(InvalidToken):
        UnverifiedToken.parse(f"{header}.{claims}.{encoded(signature)}").verify(key.public_key())
