"""For any content, reading ends in one of four types and judging in Refused, Deferred or nothing; neither warns."""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attestors.wire import pem
from signer.model.decision import Deferred, Refused
from signer.model.signing_request import (
    NO_CLAIM,
    BuiltinServingRequest,
    Malformed,
    MalformedBuiltinServingRequest,
    NotOurs,
    Settled,
    SigningRequest,
    parse_signing_request,
    peek_claimed_provider_id,
)
from signer.rules.checks import CLUSTER_CHECKS, REQUEST_CHECKS, run_checks
from signer.rules.request import claimed_provider_id
from signer.rules.shape import node_name_of
from tests.unit.signer.builders import (
    COMMON_NAME,
    ORGANIZATION,
    PROVIDERS,
    alternative_names,
    attribute,
    blocks,
    builtin_serving_manifest,
    dns,
    ec_key,
    evidence_json,
    extension,
    extension_request,
    ip,
    manifest,
    node_subject,
    oid,
    pkcs10,
    provider_id_extension,
    rdn,
    request_facts,
    rsa_key,
    sequence,
    serving_manifest,
    set_of,
    tlv,
)
from tests.unit.signer.outcomes import assert_printable

pytestmark = pytest.mark.slow
"""Thousands of requests are made and signed."""

fast = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
SPEC_KEYS = ("request", "signerName", "usages", "username", "groups", "expirationSeconds", "extra")
METADATA_KEYS = ("name", "uid", "resourceVersion", "creationTimestamp")
STATUS_KEYS = ("conditions", "certificate")


def claimed(request: SigningRequest) -> str:
    """As the rules see it."""
    try:
        return claimed_provider_id(request)
    except Refused:
        return NO_CLAIM


def survives(csr: Any) -> SigningRequest | None:
    """Parse and judge; the request if it passed every check."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parsed = parse_signing_request(csr, PROVIDERS)
        peeked = peek_claimed_provider_id(csr, PROVIDERS)
        if isinstance(parsed, SigningRequest):
            assert peeked == claimed(parsed)
        if isinstance(parsed, Malformed):
            assert_printable(parsed.message)
        if not isinstance(parsed, SigningRequest):
            assert isinstance(parsed, NotOurs | Settled | Malformed)
            return None
        try:
            run_checks((*CLUSTER_CHECKS, *REQUEST_CHECKS), request_facts(parsed))
        except Refused as refused:
            assert_printable(str(refused))
            assert_printable(refused.deny.message)
            return None
        except Deferred as deferred:
            assert_printable(str(deferred))
            return None
        return parsed


@fast
@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]) | st.text(max_size=5), JSON))
def test_any_object(csr: dict[str, Any]) -> None:
    assert survives(csr) is None


@fast
@given(
    st.dictionaries(st.sampled_from(METADATA_KEYS), JSON),
    st.dictionaries(st.sampled_from(SPEC_KEYS), JSON),
    st.dictionaries(st.sampled_from(STATUS_KEYS), JSON | st.lists(st.fixed_dictionaries({"type": JSON}))),
)
def test_any_value_in_place_of_a_good_one(metadata: dict[str, Any], spec: dict[str, Any], status: Any) -> None:
    good = manifest()
    survives({"metadata": good["metadata"] | metadata, "spec": good["spec"] | spec, "status": status})


@fast
@given(st.binary(max_size=300))
def test_any_bytes_as_request(content: bytes) -> None:
    assert survives(manifest(content)) is None
    assert survives(manifest(blocks(content))) is None
    assert survives(manifest(blocks(evidence=content or b"x"))) is None


REAL: list[Callable[[], bytes]] = [
    pkcs10,
    partial(pkcs10, subject=node_subject("n" * 200)),
    lambda: pkcs10(rsa_key("rsa-2048")),
    lambda: pkcs10(subject=sequence(rdn("2.5.4.6", "DE", 0x13), rdn(COMMON_NAME, "n" * 62), rdn(ORGANIZATION, "x"))),
    lambda: pkcs10(
        extensions=[
            provider_id_extension(),
            alternative_names(dns("a.b"), ip(bytes(4)), tlv(0x81, b"a@b"), tlv(0xA4, sequence(rdn(COMMON_NAME, "x")))),
            extension("2.5.29.15", tlv(0x03, b"\x05\xa0"), critical=True),
            extension("2.5.29.19", sequence(), critical=True),
            extension("2.5.29.37", sequence(oid("1.3.6.1.5.5.7.3.2"))),
            extension("2.5.29.32", sequence(sequence(oid("1.2.3")))),
            extension("2.5.29.31", sequence(sequence(tlv(0xA0, tlv(0xA0, tlv(0x86, b"http://a")))))),
            extension("2.5.29.30", sequence(tlv(0xA0, sequence(sequence(tlv(0x82, b"a")))))),
            extension("1.3.6.1.5.5.7.1.1", sequence(sequence(oid("1.3.6.1.5.5.7.48.1"), tlv(0x86, b"http://a")))),
            extension("1.3.6.1.5.5.7.1.24", sequence(tlv(0x02, b"\x05"))),
        ]
    ),
    lambda: pkcs10(
        attributes=[
            extension_request(provider_id_extension()),
            sequence(oid("1.2.840.113549.1.9.7"), set_of(tlv(0x0C, b"x"))),
        ]
    ),
]
POSITION = st.integers(0, 2**16)
EDITS = st.lists(
    st.tuples(st.sampled_from(["flip", "set", "insert", "delete", "cut"]), POSITION, st.integers(0, 255)),
    min_size=1,
    max_size=4,
)


def edited(data: bytes, edits: list[tuple[str, int, int]]) -> bytes:
    content = bytearray(data)
    for kind, position, value in edits:
        where = position % max(len(content), 1)
        if not content or kind == "insert":
            content.insert(where, value)
        elif kind == "flip":
            content[where] ^= 1 << value % 8
        elif kind == "set":
            content[where] = value
        elif kind == "delete":
            del content[where]
        else:
            del content[where:]
    return bytes(content)


@settings(fast, max_examples=600)
@given(st.sampled_from(REAL), EDITS)
def test_edited_certificate_request(make: Callable[[], bytes], edits: list[tuple[str, int, int]]) -> None:
    original = _made(make)
    changed = edited(original, edits)
    passed = survives(manifest(blocks(changed)))
    if passed is not None and changed != original:
        raise AssertionError("a changed request passed, its signature included")


@fast
@given(EDITS)
def test_edited_blocks(edits: list[tuple[str, int, int]]) -> None:
    survives(manifest(edited(blocks(_made(pkcs10)), edits)))


@fast
@given(st.lists(st.sampled_from(range(5)), max_size=5))
def test_shuffled_blocks(order: list[int]) -> None:
    kinds = (
        pem.Block("CERTIFICATE REQUEST", _made(pkcs10)),
        pem.Block("KUBELET AUTHENTICATOR ATTESTATION PROVIDER", b"tpm"),
        pem.Block("KUBELET AUTHENTICATOR ATTESTATION DATA", evidence_json()),
        pem.Block("ATTESTATION DATA", evidence_json()),
        pem.Block("CERTIFICATE", b"x"),
    )
    passed = survives(manifest(b"".join(pem.encode(kinds[number]) for number in order)))
    assert (passed is not None) == (order[:1] == [0] and sorted(order) in ([0, 1, 2], [0, 1, 3]))


_MADE: dict[Callable[[], bytes], bytes] = {}


def _made(make: Callable[[], bytes]) -> bytes:
    if make not in _MADE:
        _MADE[make] = make()
    return _MADE[make]


# Subjects out of pieces: whatever passes must be exactly a node's in the eyes of the library and of OpenSSL.

VALUES = st.sampled_from(
    ["system:nodes", "system:node:a", "system:node:b.c", "system:node:A", "system:masters", "", "x"]
)
PIECES = st.builds(
    attribute,
    st.sampled_from([COMMON_NAME, ORGANIZATION, "2.5.4.11", "1.2.3.4"]),
    VALUES,
    st.sampled_from([0x0C, 0x13]),
)
LIKELY = st.sampled_from(
    [
        [[attribute(ORGANIZATION, "system:nodes")], [attribute(COMMON_NAME, "system:node:a")]],
        [[attribute(COMMON_NAME, "system:node:b.c")], [attribute(ORGANIZATION, "system:nodes")]],
    ]
)


@settings(fast, max_examples=200)
@given(LIKELY | st.lists(st.lists(PIECES, min_size=1, max_size=2), max_size=4))
def test_what_passes_is_exactly_a_node_to_the_library_too(names: list[list[bytes]]) -> None:
    der = pkcs10(subject=sequence(*(set_of(*name) for name in names)))
    passed = survives(manifest(blocks(der)))
    if passed is None:
        return
    subject = x509.load_der_x509_csr(der).subject
    assert sorted(name.rfc4514_string() for name in subject.rdns) == [
        f"CN=system:node:{node_name_of(passed)}",
        "O=system:nodes",
    ]


def test_what_passes_is_exactly_a_node_to_openssl_too() -> None:
    for name in ("a", "b.c", "ip-10-0-0-1.ec2.internal", "n" * 253):
        for key in (ec_key(), rsa_key("rsa-2048")):
            der = pkcs10(key, subject=node_subject(name))
            passed = survives(manifest(blocks(der)))
            assert passed is not None
            assert node_name_of(passed) == name
            result = subprocess.run(
                ["openssl", "req", "-inform", "DER", "-noout", "-subject", "-verify", "-nameopt", "RFC2253"],
                input=der,
                capture_output=True,
                check=True,
            )
            assert result.stdout.decode().strip() == f"subject=CN=system:node:{name},O=system:nodes"
            assert b"OK" in result.stderr


@fast
@given(st.lists(st.builds(dns, st.binary(max_size=12)) | st.builds(ip, st.binary(max_size=17)), max_size=4))
def test_any_alternative_names(names: list[bytes]) -> None:
    survives(serving_manifest(*names))


@fast
@given(st.text(st.characters(), max_size=60), st.lists(st.text(max_size=20), max_size=3))
def test_any_requester(username: str, groups: list[str]) -> None:
    assert survives(manifest(requester=(username, groups))) is None


@fast
@given(EDITS, JSON)
def test_edited_builtin_serving_request(edits: list[tuple[str, int, int]], extra: Any) -> None:
    csr = builtin_serving_manifest(edited(_made(pkcs10), edits))
    csr["spec"]["extra"] = extra
    parsed = parse_signing_request(csr, PROVIDERS)
    assert isinstance(parsed, BuiltinServingRequest | MalformedBuiltinServingRequest | NotOurs), parsed
    if isinstance(parsed, MalformedBuiltinServingRequest):
        assert_printable(parsed.message)


def test_the_library_reads_back_what_passes() -> None:
    passed = survives(manifest())
    assert passed is not None
    library = passed.certificate_request.library
    again = replace(passed.certificate_request, library=x509.load_der_x509_csr(library.public_bytes(Encoding.DER)))
    assert again == passed.certificate_request
