"""A glance sees the claim that a whole reading sees, and does not mind what is behind it."""

from __future__ import annotations

import base64
import warnings
from typing import Any

import pytest

from attestors.wire import pem
from attestors.wire.names import MAXIMUM_REQUEST_BYTES
from signer.model.signing_request import NO_CLAIM, Malformed, parse_signing_request, peek_claimed_provider_id
from tests.unit.signer.builders import (
    COMMON_NAME,
    PROVIDER_ID,
    PROVIDERS,
    blocks,
    builtin_serving_manifest,
    extension,
    manifest,
    node_subject,
    pkcs10,
    provider_id_extension,
    rdn,
    sequence,
    serving_manifest,
    tlv,
)

OTHER_OID = "1.2.3.4.5"


def peek(csr: dict[str, Any]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return peek_claimed_provider_id(csr, PROVIDERS)


@pytest.mark.parametrize("csr", [manifest(), serving_manifest()], ids=["client", "serving"])
def test_what_is_claimed(csr: dict[str, Any]) -> None:
    assert peek(csr) == PROVIDER_ID


def test_the_extension_has_the_oid_of_the_configuration() -> None:
    csr = manifest(blocks(pkcs10(extensions=[extension(OTHER_OID, provider_id_extension()[-2 - len(PROVIDER_ID) :])])))
    assert peek(csr) == NO_CLAIM
    assert peek_claimed_provider_id(csr, PROVIDERS, (OTHER_OID,)) == PROVIDER_ID


@pytest.mark.parametrize(
    "content",
    [
        blocks(evidence=b"no evidence"),
        blocks(provider="TPM"),
        pem.encode(pem.Block("CERTIFICATE REQUEST", pkcs10())),
        pem.encode(pem.Block("CERTIFICATE REQUEST", pkcs10())).removesuffix(b"\n"),
        pem.encode(pem.Block("CERTIFICATE REQUEST", pkcs10())) + b"\0 anything",
    ],
    ids=["evidence", "provider", "no evidence", "nothing", "no block"],
)
def test_what_is_behind_the_certificate_request_is_not_read(content: bytes) -> None:
    csr = manifest(content)
    assert isinstance(parse_signing_request(csr, PROVIDERS), Malformed)
    assert peek(csr) == PROVIDER_ID


def test_what_the_library_warns_of() -> None:
    """A long name, and an authority key's serial number that is none."""
    issuer = tlv(0xA1, tlv(0xA4, sequence(rdn(COMMON_NAME, "x"))))
    authority_key = extension("2.5.29.35", sequence(issuer, tlv(0x82, b"\0")))
    for changed in ({"subject": node_subject("n" * 200)}, {"extensions": [provider_id_extension(), authority_key]}):
        assert peek(manifest(blocks(pkcs10(**changed)))) == PROVIDER_ID


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no block",
        blocks(b"no DER"),
        blocks(pkcs10() + b"\0"),
        blocks(pkcs10(extensions=[])),
        blocks(pkcs10(extensions=[provider_id_extension(), provider_id_extension()])),
        blocks(pkcs10(extensions=[provider_id_extension(b"aws:///no/DER")])),
        blocks(pkcs10(extensions=[provider_id_extension(tlv(0x0C, b"no provider ID\n"))])),
        blocks(pkcs10(extensions=[provider_id_extension(), extension("2.5.29.19", b"no DER")])),
        blocks(pkcs10(subject=node_subject("n" * 200), extensions=[extension("2.5.29.19", sequence(b"no DER"))])),
        pem.encode(pem.Block("CERTIFICATE", b"x")) + blocks(),
        b"-----BEGIN CERTIFICATE REQUEST-----\n" + blocks(),
        blocks(evidence=bytes(MAXIMUM_REQUEST_BYTES)),
    ],
    ids=[
        "empty",
        "no block",
        "no DER",
        "bytes behind",
        "none",
        "two",
        "no text",
        "no provider ID",
        "another extension",
        "another extension, and the library warns",
        "not the first block",
        "no block's end",
        "too large",
    ],
)
def test_no_claim(content: bytes) -> None:
    assert peek(manifest(content)) == NO_CLAIM


@pytest.mark.parametrize(
    "csr",
    [
        builtin_serving_manifest(),
        manifest(signer_name="cluster.x-k8s.io/kube-apiserver-client-kubelet-elsewhere"),
        manifest(signer_name="kubernetes.io/legacy-unknown"),
        {},
        {"spec": "no object"},
        {"spec": {**manifest()["spec"], "request": 5}},
        {"spec": {**manifest()["spec"], "request": "no base64"}},
        {"spec": {**manifest()["spec"], "request": base64.b64encode(b"\xff").decode() + "\u20ac"}},
    ],
    ids=["stock", "not installed", "foreign", "empty", "no spec", "no text", "no base64", "no ASCII"],
)
def test_what_is_not_ours_claims_nothing(csr: dict[str, Any]) -> None:
    assert peek(csr) == NO_CLAIM
