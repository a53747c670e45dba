"""The key set that an API server publishes: which keys count, and what is no key set."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from signer.rotation.servers.key_set import (
    MAXIMUM_IDENTIFIER_CHARACTERS,
    MAXIMUM_KEYS,
    InvalidKeySet,
    key_identifier,
    publishes,
    read_key_set,
)
from tests.unit.signer.rotation.servers.keys import EC_KEY, OTHER, RSA_KEY, hash_of, jwk


@pytest.mark.parametrize("key", [RSA_KEY, EC_KEY, OTHER])
def test_a_key_that_is_published(key: Any) -> None:
    assert publishes({"keys": [jwk(OTHER), jwk(RSA_KEY), jwk(EC_KEY)]}, hash_of(key))


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()])
def test_keys_of_every_curve_of_kubernetes(curve: ec.EllipticCurve) -> None:
    key = ec.generate_private_key(curve).public_key()
    assert publishes({"keys": [jwk(key)]}, hash_of(key))


def test_an_identifier_is_kubernetes_own() -> None:
    der = RSA_KEY.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    expected = base64.urlsafe_b64encode(hashlib.sha256(der).digest()).decode().rstrip("=")
    assert key_identifier(hash_of(RSA_KEY)) == expected


@pytest.mark.parametrize(
    "keys",
    [
        [],
        [jwk(OTHER)],
        [{**jwk(OTHER), "kid": jwk(RSA_KEY)["kid"]}],
        [{**jwk(RSA_KEY), "kid": "another"}],
        [{"kty": "oct", "kid": jwk(RSA_KEY)["kid"], "k": "AAAA"}],
        [{"kty": "EC", "crv": "secp256k1", "kid": jwk(RSA_KEY)["kid"], "x": "AA", "y": "AA"}],
    ],
    ids=["none", "another", "its ID, another key", "the key, another ID", "a secret key", "an unknown curve"],
)
def test_a_key_that_is_not_published(keys: list[dict[str, str]]) -> None:
    assert not publishes({"keys": keys}, hash_of(RSA_KEY))


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({}, "no list"),
        ({"keys": {}}, "no list"),
        ({"keys": [jwk(OTHER)] * (MAXIMUM_KEYS + 1)}, "no list"),
        ({"keys": ["key"]}, "no object"),
        ({"keys": [jwk(RSA_KEY), jwk(RSA_KEY)]}, "the same ID"),
        ({"keys": [jwk(RSA_KEY), {**jwk(OTHER), "kid": jwk(RSA_KEY)["kid"]}]}, "the same ID"),
        ({"keys": [{**jwk(RSA_KEY), "kid": ""}]}, "kid"),
        ({"keys": [{**jwk(RSA_KEY), "kid": "k" * (MAXIMUM_IDENTIFIER_CHARACTERS + 1)}]}, "kid"),
        ({"keys": [{**jwk(RSA_KEY), "kid": 7}]}, "kid"),
        ({"keys": [{**jwk(RSA_KEY), "n": "A" * 5000}]}, "n is no text"),
        ({"keys": [{**jwk(RSA_KEY), "n": "+/+/"}]}, "base64url"),
        ({"keys": [{**jwk(RSA_KEY), "n": "A"}]}, "base64url"),
        ({"keys": [{**jwk(RSA_KEY), "n": "\N{LATIN SMALL LETTER E WITH ACUTE}"}]}, "base64url"),
        ({"keys": [{**jwk(RSA_KEY), "e": "Ag"}]}, "impossible numbers"),
        ({"keys": [{**jwk(EC_KEY), "x": jwk(EC_KEY)["y"]}]}, "impossible numbers"),
    ],
)
def test_what_is_no_key_set(document: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidKeySet, match=why):
        publishes(document, hash_of(RSA_KEY))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(sorted(jwk(RSA_KEY).values())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["kty", "kid", "n", "e"]), inner),
    max_leaves=8,
)


@given(keys=st.lists(st.dictionaries(st.sampled_from(["kty", "kid", "n", "e", "crv", "x", "y"]), VALUES), max_size=3))
def test_whatever_is_there_it_is_read_or_refused(keys: list[dict[str, Any]]) -> None:
    try:
        found = read_key_set({"keys": keys})
    except InvalidKeySet:
        return
    assert all(not value or value.startswith("sha256:") for value in found.values())


def test_an_rsa_key_of_sixteen_kilobits_is_not_too_large() -> None:
    numbers = rsa.RSAPublicNumbers(65537, (1 << 16_383) + 1)
    assert read_key_set({"keys": [jwk(numbers.public_key())]})
