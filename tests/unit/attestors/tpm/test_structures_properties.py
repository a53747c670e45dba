from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestors.tpm.attestation_key import AttestationKey, EndorsementKey, UnsuitableKey
from attestors.tpm.constants import Curve, HashAlgorithm, ObjectAttribute, SignatureAlgorithm
from attestors.tpm.reader import MalformedStructure
from attestors.tpm.statement import ClockInfo, QuoteStatement, decode_quote
from attestors.tpm.structures import (
    ECCKey,
    ECDSASignature,
    PublicArea,
    RSAKey,
    RSASignature,
    Scheme,
    Signature,
    decode_public,
    decode_signature,
)
from tests.unit.attestors.support import PATIENT
from tests.unit.attestors.tpm.support import attestation_area, ecc_key, endorsement_area, evidence_of, statement_of
from tests.unit.attestors.tpm.test_selection import selections

BRIEF = settings(PATIENT, max_examples=30)

hashes = st.sampled_from(HashAlgorithm)
rsa_schemes = st.builds(Scheme, st.sampled_from([SignatureAlgorithm.RSASSA, SignatureAlgorithm.RSAPSS]), hashes)
ecc_schemes = st.builds(Scheme, st.just(SignatureAlgorithm.ECDSA), hashes)
rsa_keys = st.builds(RSAKey, st.sampled_from([2048, 3072, 4096]), st.integers(0, 2**32 - 1), st.binary(max_size=512))
ecc_keys = st.sampled_from(Curve).flatmap(
    lambda curve: st.builds(
        ECCKey,
        st.just(curve),
        st.binary(max_size=curve.coordinate_bytes),
        st.binary(max_size=curve.coordinate_bytes),
    )
)


def areas_of(schemes: st.SearchStrategy[Scheme], keys: st.SearchStrategy[Any]) -> st.SearchStrategy[PublicArea]:
    return hashes.flatmap(
        lambda name_algorithm: st.builds(
            PublicArea,
            st.just(name_algorithm),
            st.lists(st.sampled_from(ObjectAttribute)).map(
                lambda attributes: functools.reduce(operator.or_, attributes, ObjectAttribute(0))
            ),
            st.sampled_from([b"", bytes(name_algorithm.digest_bytes)]),
            st.sampled_from([None, 128, 256]),
            st.none() | schemes,
            keys,
        )
    )


areas = areas_of(rsa_schemes, rsa_keys) | areas_of(ecc_schemes, ecc_keys)
quotes = st.builds(
    QuoteStatement,
    st.binary(max_size=66),
    st.binary(max_size=66),
    st.builds(
        ClockInfo, st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.booleans()
    ),
    st.integers(0, 2**64 - 1),
    selections,
    st.binary(max_size=64),
)
signatures = st.builds(Signature, rsa_schemes, st.builds(RSASignature, st.binary(max_size=512))) | st.builds(
    Signature, ecc_schemes, st.builds(ECDSASignature, st.binary(max_size=66), st.binary(max_size=66))
)

DECODERS: list[tuple[Callable[[bytes], Any], bytes]] = [
    (decode_public, attestation_area().encode()),
    (decode_public, attestation_area(ecc_key(), Scheme(SignatureAlgorithm.ECDSA, HashAlgorithm.SHA256)).encode()),
    (decode_public, endorsement_area().encode()),
    (decode_quote, statement_of().encode()),
    (decode_signature, evidence_of().signature),
]
"""With bytes that each reads."""


@BRIEF
@given(areas)
def test_public_areas_round_trip(area: PublicArea) -> None:
    assert decode_public(area.encode()) == area


@BRIEF
@given(quotes)
def test_quotes_round_trip(quote: QuoteStatement) -> None:
    assert decode_quote(quote.encode()) == quote


@BRIEF
@given(signatures)
def test_signatures_round_trip(signature: Signature) -> None:
    assert decode_signature(signature.encode()) == signature


@pytest.mark.parametrize("decode", [decode_public, decode_quote, decode_signature])
@BRIEF
@given(data=st.binary(max_size=1100))
def test_garbage_is_malformed(decode: Callable[[bytes], Any], data: bytes) -> None:
    with pytest.raises(MalformedStructure):
        decode(data)


@pytest.mark.parametrize(("decode", "good"), DECODERS)
@BRIEF
@given(data=st.data())
def test_what_is_read_is_written_the_same(decode: Callable[[bytes], Any], good: bytes, data: st.DataObject) -> None:
    """One reading only: whatever bytes are accepted are the bytes that the value encodes to."""
    changed = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, min(len(good) - 1, 80)))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode(bytes(changed))
    except MalformedStructure:
        return
    assert decoded.encode() == bytes(changed)


@pytest.mark.parametrize(("decode", "good"), DECODERS)
def test_every_beginning_is_malformed(decode: Callable[[bytes], Any], good: bytes) -> None:
    for length in range(len(good)):
        with pytest.raises(MalformedStructure):
            decode(good[:length])


@pytest.mark.parametrize("kind", [AttestationKey, EndorsementKey])
@BRIEF
@given(area=areas)
def test_keys_are_refused_with_their_own_errors(
    kind: type[AttestationKey] | type[EndorsementKey], area: PublicArea
) -> None:
    with pytest.raises((MalformedStructure, UnsuitableKey)):
        kind.decode(area.encode())
