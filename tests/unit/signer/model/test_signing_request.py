from __future__ import annotations

import base64
from typing import Any

import pytest

from attestors.wire import pem
from attestors.wire.names import (
    ATTESTATION_DATA_LABEL,
    ATTESTATION_DATA_LABEL_ALIAS,
    ATTESTATION_PROVIDER_LABEL,
    CERTIFICATE_REQUEST_LABEL,
    MAXIMUM_REQUEST_BYTES,
)
from signer.model.certificate_request import NoProviderID
from signer.model.reasons import Reason
from signer.model.signing_request import (
    _MAXIMUM_KEPT_TEXT,
    Malformed,
    Settled,
    SigningRequest,
    _kept_content,
    parse_signing_request,
)
from tests.unit.signer.builders import (
    CLIENT_SIGNER,
    PROVIDERS,
    SERVING_SIGNER,
    blocks,
    evidence_json,
    extension,
    manifest,
    pkcs10,
    provider_id_extension,
)
from tests.unit.signer.outcomes import assert_printable

CSR_BLOCK = (CERTIFICATE_REQUEST_LABEL, pkcs10())
PROVIDER_BLOCK = (ATTESTATION_PROVIDER_LABEL, b"tpm")
DATA_BLOCK = (ATTESTATION_DATA_LABEL, evidence_json())


def pem_text(*given: tuple[str, bytes]) -> bytes:
    return b"".join(pem.encode(pem.Block(*block)) for block in given)


GOOD = pem_text(CSR_BLOCK, PROVIDER_BLOCK, DATA_BLOCK)


def parse(csr: dict[str, Any]) -> Any:
    return parse_signing_request(csr, PROVIDERS)


def malformed(request: bytes) -> Malformed:
    parsed = parse(manifest(request))
    assert isinstance(parsed, Malformed), parsed
    assert_printable(parsed.message)
    assert parsed.header.name == "csr-x1"
    return parsed


class TestSettled:
    @pytest.mark.parametrize("request_bytes", [GOOD, b"nonsense"])
    @pytest.mark.parametrize(
        "status",
        [
            {"certificate": "LS0t"},
            {"conditions": [{"type": "Denied"}]},
            {"conditions": [{"type": "Failed"}]},
            {"conditions": [{"type": "Approved"}, {"type": "Failed"}]},
            {"conditions": [{"type": "Approved"}], "certificate": "LS0t"},
        ],
    )
    def test_settled(self, request_bytes: bytes, status: Any) -> None:
        parsed = parse(manifest(request_bytes, **status))
        assert isinstance(parsed, Settled)
        assert parsed.header.name == "csr-x1"

    @pytest.mark.parametrize(
        "status",
        [
            {"conditions": [{"type": "Approved"}]},
            {"conditions": [{"type": "denied"}]},
            {"conditions": [{"type": ["Denied"]}, {"type": {}}, {"type": None}, "Denied", None, 5, {}]},
            {"conditions": {"type": "Denied"}},
            {"conditions": "Denied"},
            {"conditions": None, "certificate": ""},
            {"certificate": None},
        ],
    )
    def test_pending(self, status: Any) -> None:
        assert isinstance(parse(manifest(**status)), SigningRequest)

    @pytest.mark.parametrize("status", [None, 5, "x", []])
    def test_status_of_another_type(self, status: Any) -> None:
        assert isinstance(parse(manifest() | {"status": status}), SigningRequest)


WITH_HEADERS = GOOD.replace(b"REQUEST-----\n", b"REQUEST-----\nProc-Type: 4,ENCRYPTED\n\n", 1)
REQUESTS = {
    "CSR alone": pem_text(CSR_BLOCK),
    "no provider": pem_text(CSR_BLOCK, DATA_BLOCK),
    "no data": pem_text(CSR_BLOCK, PROVIDER_BLOCK),
    "CSR not first": pem_text(PROVIDER_BLOCK, CSR_BLOCK, DATA_BLOCK),
    "CSR last": pem_text(PROVIDER_BLOCK, DATA_BLOCK, CSR_BLOCK),
    "two CSRs": pem_text(CSR_BLOCK, CSR_BLOCK, PROVIDER_BLOCK),
    "four blocks": GOOD + pem_text(CSR_BLOCK),
    "provider twice": pem_text(CSR_BLOCK, PROVIDER_BLOCK, PROVIDER_BLOCK),
    "data twice": pem_text(CSR_BLOCK, DATA_BLOCK, DATA_BLOCK),
    "data twice by its alias": pem_text(CSR_BLOCK, DATA_BLOCK, (ATTESTATION_DATA_LABEL_ALIAS, evidence_json())),
    "unknown block": pem_text(CSR_BLOCK, PROVIDER_BLOCK, ("CERTIFICATE", b"x")),
    "NEW CERTIFICATE REQUEST": pem_text(("NEW CERTIFICATE REQUEST", pkcs10()), PROVIDER_BLOCK, DATA_BLOCK),
    "text before": b"hello\n" + GOOD,
    "text between": pem_text(CSR_BLOCK) + b"hello\n" + pem_text(PROVIDER_BLOCK, DATA_BLOCK),
    "empty line between": pem_text(CSR_BLOCK) + b"\n" + pem_text(PROVIDER_BLOCK, DATA_BLOCK),
    "text behind": GOOD + b"hello",
    "empty line behind": GOOD + b"\n",
    "headers": WITH_HEADERS,
    "CRLF": GOOD.replace(b"\n", b"\r\n"),
    "white space behind a line": GOOD.replace(b"-----\n", b"----- \n", 1),
    "bare DER": pkcs10(),
    "not PEM": b"\0",
    "bad provider": pem_text(CSR_BLOCK, (ATTESTATION_PROVIDER_LABEL, b"TPM"), DATA_BLOCK),
    "provider not UTF-8": pem_text(CSR_BLOCK, (ATTESTATION_PROVIDER_LABEL, b"\xff"), DATA_BLOCK),
    "truncated DER": blocks(pkcs10()[:-1]),
    "trailing byte": blocks(pkcs10() + b"\0"),
    "an extension twice": blocks(pkcs10(extensions=[provider_id_extension(), provider_id_extension()])),
    "PKCS#10 of version 2": blocks(pkcs10(version=1)),
    "too large": blocks(pkcs10(extensions=[extension("1.2.3", bytes(MAXIMUM_REQUEST_BYTES))])),
}


class TestMalformed:
    @pytest.mark.parametrize("request_bytes", REQUESTS.values(), ids=REQUESTS.keys())
    def test_request(self, request_bytes: bytes) -> None:
        assert malformed(request_bytes).reason == Reason.MALFORMED_REQUEST

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (None, "the request is empty"),
            ("", "the request is empty"),
            (5, "the request is empty"),
            (["LS0t"], "the request is empty"),
            ("!!!!", "the request is not base64"),
            ("LS0tLQ", "the request is not base64"),
            ("LS0t\nLS0t", "the request is not base64"),
            ("LS0t LS0t", "the request is not base64"),
            ("LS-_", "the request is not base64"),
            ("LS0\u00e9", "the request is not base64"),
            ("A" * 87380, "line 1: expected -----BEGIN label-----"),
            ("A" * 87384, "larger than 65536 bytes"),
            ("A" * 87388, "the request is larger than 65536 bytes"),
        ],
    )
    def test_base64(self, text: Any, message: str) -> None:
        csr = manifest()
        csr["spec"]["request"] = text
        parsed = parse(csr)
        assert isinstance(parsed, Malformed)
        assert (parsed.reason, parsed.message) == (Reason.MALFORMED_REQUEST, message)

    def test_missing_request(self) -> None:
        csr = manifest()
        del csr["spec"]["request"]
        assert parse(csr).reason == Reason.MALFORMED_REQUEST

    @pytest.mark.parametrize("signer_name", [CLIENT_SIGNER, SERVING_SIGNER])
    def test_of_either_signer(self, signer_name: str) -> None:
        assert isinstance(parse(manifest(b"nonsense", signer_name=signer_name)), Malformed)

    @pytest.mark.parametrize(
        "evidence",
        [
            b"{",
            b"[]",
            b"{}",
            b"\xff",
            evidence_json()[:-1],
            evidence_json() + b"{}",
            b'{"caCertHash":"x","version":"v1"}',
            b'{"version":"v1","version":"v1"}',
            b'{"version":1}',
            b"[" * 5000,
        ],
    )
    def test_evidence(self, evidence: bytes) -> None:
        assert malformed(blocks(evidence=evidence)).reason == Reason.MALFORMED_EVIDENCE

    @pytest.mark.parametrize("version", ["v2", "v9999"])
    def test_version(self, version: str) -> None:
        assert malformed(blocks(evidence=evidence_json(version))).reason == Reason.UNSUPPORTED_VERSION


class TestOtherForms:
    @pytest.mark.parametrize(
        "request_bytes",
        [
            GOOD[:-1],
            pem_text(CSR_BLOCK, DATA_BLOCK, PROVIDER_BLOCK),
            pem_text(CSR_BLOCK, PROVIDER_BLOCK, (ATTESTATION_DATA_LABEL_ALIAS, evidence_json())),
        ],
    )
    def test_read(self, request_bytes: bytes) -> None:
        parsed = parse(manifest(request_bytes))
        assert isinstance(parsed, SigningRequest)
        assert parsed.provider == "tpm"

    def test_configured_provider_id(self) -> None:
        csr = manifest(blocks(pkcs10(extensions=[extension("1.2.3.4", b"x")])))
        parsed = parse_signing_request(csr, PROVIDERS, ("1.2.3.4",))
        assert isinstance(parsed, SigningRequest)
        assert parsed.certificate_request.provider_id == NoProviderID(b"x", "the extension's value is not a UTF8String")

    def test_largest(self) -> None:
        largest = blocks(evidence=evidence_json().replace(b"AAAA", b"A" * 47_500))
        assert len(base64.b64encode(largest)) > 80_000
        assert isinstance(parse(manifest(largest)), SigningRequest)


class TestReadOnce:
    """The same text is the same value, whoever posts it; what stands beside it is read each time."""

    def test_a_copy_is_not_read_again_and_has_an_envelope_of_its_own(self) -> None:
        first, copy = manifest(GOOD), manifest(GOOD)
        copy["metadata"]["uid"], copy["spec"]["username"] = "uid-of-the-copy", "system:bootstrap:thief1"
        read, again = parse(first), parse(copy)
        assert again.certificate_request is read.certificate_request
        assert (again.header.uid, again.header.username) == ("uid-of-the-copy", "system:bootstrap:thief1")
        assert again.header.spec_digest != read.header.spec_digest

    def test_under_another_provider_id_extension_it_is_read_again(self) -> None:
        csr = manifest(GOOD)
        read, again = parse(csr), parse_signing_request(csr, PROVIDERS, ("1.3.6.1.4.1.99999.1",))
        assert isinstance(again, SigningRequest)
        assert isinstance(read.certificate_request.provider_id, str)
        assert again.certificate_request.provider_id == NoProviderID(b"", "")

    @pytest.mark.parametrize("longer", [0, 1])
    def test_long_texts_are_not_kept(self, longer: int) -> None:
        """A flood of them would take more memory than reading them again is worth."""
        csr = manifest(GOOD)
        csr["spec"]["request"] = "A" * (_MAXIMUM_KEPT_TEXT + longer)
        _kept_content.cache_clear()
        assert isinstance(parse(csr), Malformed)
        assert _kept_content.cache_info().currsize == (0 if longer else 1)
