"""What the two plugins agree on: nodes of every released version send and read exactly this."""

from __future__ import annotations

import hashlib

from attestors.tpm import wire


def test_a_first_request() -> None:
    assert wire.EVIDENCE_VERSION == "v1"
    assert wire.IDENTITY_FIELDS == ("ekPublic", "akPublic")
    assert (wire.ENDORSEMENT_PUBLIC_FIELD, wire.ATTESTATION_PUBLIC_FIELD) == wire.IDENTITY_FIELDS
    assert wire.OPTIONAL_FIELDS == ("ekCertificate", "ekCertificateChain")
    assert (wire.ENDORSEMENT_CERTIFICATE_FIELD, wire.ENDORSEMENT_CHAIN_FIELD) == wire.OPTIONAL_FIELDS


def test_an_answer() -> None:
    assert wire.ANSWER_FIELDS == ("challengeToken", "quote", "quoteSignature", "pcrValues")
    assert wire.ANSWER_FIELDS == (
        wire.CHALLENGE_TOKEN_FIELD,
        wire.QUOTE_FIELD,
        wire.QUOTE_SIGNATURE_FIELD,
        wire.PCR_VALUES_FIELD,
    )
    assert wire.qualifying_data(b"secret", b"binding") == hashlib.sha256(b"secretbinding").digest()


def test_a_challenge() -> None:
    assert wire.CHALLENGE_VERSION == "v1"
    assert (
        wire.VERSION_KEY,
        wire.TOKEN_KEY,
        wire.CREDENTIAL_BLOB_KEY,
        wire.ENCRYPTED_SECRET_KEY,
        wire.PCR_SELECTION_KEY,
    ) == ("version", "token", "credentialBlob", "encryptedSecret", "pcrSelection")


def test_bounds() -> None:
    assert {
        "public": wire.MAXIMUM_PUBLIC_BYTES,
        "certificate": wire.MAXIMUM_CERTIFICATE_BYTES,
        "chain": wire.MAXIMUM_CHAIN_BYTES,
        "quote": wire.MAXIMUM_QUOTE_BYTES,
        "signature": wire.MAXIMUM_SIGNATURE_BYTES,
        "pcr values": wire.MAXIMUM_PCR_VALUES_BYTES,
        "token": wire.MAXIMUM_TOKEN_CHARACTERS,
    } == {
        "public": 1024,
        "certificate": 8192,
        "chain": 16384,
        "quote": 1024,
        "signature": 1024,
        "pcr values": 6144,
        "token": 256,
    }
