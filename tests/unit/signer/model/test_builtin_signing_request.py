"""Kubelets' own serving requests as they are read, and the credential that any request names."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from attestors.wire import pem
from attestors.wire.names import (
    ATTESTATION_DATA_LABEL,
    ATTESTATION_PROVIDER_LABEL,
    CERTIFICATE_REQUEST_LABEL,
    CREDENTIAL_ID_KEY,
    PROVIDER_ID_OID,
    BuiltinSigner,
    Purpose,
)
from signer.model.signing_request import (
    BuiltinServingRequest,
    CertificateCredential,
    MalformedBuiltinServingRequest,
    NoCredentialNamed,
    NotOurs,
    OtherCredential,
    Settled,
    parse_signing_request,
)
from tests.unit.signer.builders import (
    AS_NODE,
    PROVIDERS,
    SERVING_USAGES,
    builtin_serving_manifest,
    builtin_serving_request,
    evidence_json,
    extension,
    manifest,
    pkcs10,
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


DIGEST = "0123456789abcdef" * 4


class TestCredential:
    @pytest.mark.parametrize("make", [manifest, builtin_serving_manifest])
    def test_of_either_kind_of_signer(self, make: Any) -> None:
        csr = make()
        csr["spec"]["extra"] = {CREDENTIAL_ID_KEY: [f"X509SHA256={DIGEST}"], "other": ["x", "y"]}
        assert parse(csr).header.credential == CertificateCredential(DIGEST)

    @pytest.mark.parametrize("extra", [None, {}, {"other": [f"X509SHA256={DIGEST}"]}])
    def test_none_named(self, extra: Any) -> None:
        csr = manifest()
        assert parse(csr).header.credential == NoCredentialNamed()
        csr["spec"]["extra"] = extra
        assert parse(csr).header.credential == NoCredentialNamed()

    @pytest.mark.parametrize("extra", [5, "x", [], [CREDENTIAL_ID_KEY]])
    def test_extra_of_another_type(self, extra: Any) -> None:
        csr = manifest()
        csr["spec"]["extra"] = extra
        assert parse(csr).header.credential == OtherCredential()

    @pytest.mark.parametrize(
        "values",
        [
            None,
            [],
            f"X509SHA256={DIGEST}",
            {"0": f"X509SHA256={DIGEST}"},
            [5],
            [[f"X509SHA256={DIGEST}"]],
            [f"X509SHA256={DIGEST}", f"X509SHA256={DIGEST}"],
            [f"X509SHA256={DIGEST}", "JTI=0f1e"],
            ["JTI=0f1e"],
            [DIGEST],
            [f"X509SHA256={DIGEST.upper()}"],
            [f"x509sha256={DIGEST}"],
            [f"X509SHA256={DIGEST[1:]}"],
            [f"X509SHA256={DIGEST}0"],
            [f"X509SHA256={DIGEST}\n"],
            [f" X509SHA256={DIGEST}"],
            ["X509SHA256="],
            [""],
        ],
    )
    def test_other(self, values: Any) -> None:
        csr = manifest()
        csr["spec"]["extra"] = {CREDENTIAL_ID_KEY: values}
        assert parse(csr).header.credential == OtherCredential()


class TestBuiltinServing:
    def test_everything(self) -> None:
        parsed = builtin_serving_request()
        header = parsed.header
        assert (header.name, header.uid) == ("csr-x1", "7f9c1f5e-0000-4000-8000-000000000001")
        assert header.signer is BuiltinSigner.KUBELET_SERVING
        assert header.signer.purpose is Purpose.SERVING
        assert (header.username, header.usages) == (AS_NODE[0], SERVING_USAGES)
        assert header.conditions == frozenset()
        assert parsed.certificate_request.dns_names == ("ip-10-0-0-1.ec2.internal",)
        assert [str(address) for address in parsed.certificate_request.ip_addresses] == ["10.0.0.1"]

    def test_is_nobodys_without_any_attestor(self) -> None:
        assert isinstance(parse_signing_request(builtin_serving_manifest(), frozenset()), BuiltinServingRequest)

    def test_object_without_name(self) -> None:
        assert parse(builtin_serving_manifest() | {"metadata": {}}) == NotOurs()

    @pytest.mark.parametrize(
        "status",
        [
            {"certificate": "LS0t"},
            *({"conditions": [{"type": kind}]} for kind in ("Approved", "Denied", "Failed")),
        ],
    )
    @pytest.mark.parametrize("der", [None, b"nonsense"])
    def test_settled_by_anybody(self, status: Any, der: bytes | None) -> None:
        assert isinstance(parse(builtin_serving_manifest(der, **status)), Settled)

    @pytest.mark.parametrize(
        "request_bytes",
        [
            GOOD,
            pem_text(CSR_BLOCK, CSR_BLOCK),
            pem_text(CSR_BLOCK, PROVIDER_BLOCK),
            pem_text(CSR_BLOCK, ("CERTIFICATE", b"x")),
            pem_text(("NEW CERTIFICATE REQUEST", pkcs10())),
            pem_text((ATTESTATION_PROVIDER_LABEL, pkcs10())),
            pem_text(CSR_BLOCK) + b"hello",
            pem_text(CSR_BLOCK) + b"\n",
            b"hello\n" + pem_text(CSR_BLOCK),
            pem_text(CSR_BLOCK).replace(b"\n", b"\r\n"),
            pem_text((CERTIFICATE_REQUEST_LABEL, pkcs10() + b"\0")),
            pem_text((CERTIFICATE_REQUEST_LABEL, b"x")),
            pkcs10(),
            b"",
        ],
    )
    def test_malformed(self, request_bytes: bytes) -> None:
        csr = builtin_serving_manifest()
        csr["spec"]["request"] = base64.b64encode(request_bytes).decode()
        parsed = parse(csr)
        assert isinstance(parsed, MalformedBuiltinServingRequest), parsed
        assert_printable(parsed.message)

    def test_provider_ids_under_the_oids_of_the_configuration(self) -> None:
        """A kubelet writes none. Who writes one is judged by the same OIDs as with our own signers."""
        oids = (PROVIDER_ID_OID, "1.2.3.4")
        one, other = (extension(oid, b"x", critical=True) for oid in oids)
        for extensions in ([one], [other]):
            parsed = parse_signing_request(builtin_serving_manifest(pkcs10(extensions=extensions)), PROVIDERS, oids)
            assert isinstance(parsed, BuiltinServingRequest)
            assert parsed.certificate_request.provider_id_oids == oids
        both = parse_signing_request(builtin_serving_manifest(pkcs10(extensions=[one, other])), PROVIDERS, oids)
        assert isinstance(both, MalformedBuiltinServingRequest)

    @pytest.mark.parametrize("text", [None, 5, "!!!!", "A" * 87388])
    def test_not_base64(self, text: Any) -> None:
        csr = builtin_serving_manifest()
        csr["spec"]["request"] = text
        assert isinstance(parse(csr), MalformedBuiltinServingRequest)
