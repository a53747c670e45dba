from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from attestors.wire.names import PROVIDER_ID_OID
from signer.model.reasons import Reason
from signer.model.signing_request import parse_signing_request
from signer.rules.checks import CLUSTER_CHECKS, REQUEST_CHECKS
from signer.rules.request import RequestFacts
from tests.unit.signer.builders import (
    CLIENT_USAGES,
    COMMON_NAME,
    NODE,
    PROVIDER_ID,
    PROVIDERS,
    SERVING_USAGES,
    UTF8_STRING,
    alternative_names,
    blocks,
    der_request,
    dns,
    extension,
    extension_request,
    ip,
    manifest,
    oid,
    pkcs10,
    provider_id_extension,
    rdn,
    request_facts,
    sequence,
    serving_manifest,
    set_of,
    signing_request,
    tlv,
)
from tests.unit.signer.outcomes import all_of, refused

judge: Callable[[RequestFacts], None] = all_of((*CLUSTER_CHECKS, *REQUEST_CHECKS))


def denied(der: bytes) -> str:
    """Why a client request with that PKCS#10 content is denied."""
    return refused(judge, request_facts(der_request(der))).reason


def accepted(der: bytes) -> None:
    judge(request_facts(der_request(der)))


CA_TRUE = sequence(tlv(0x01, b"\xff"))
AUTHORITY = {
    "basicConstraints": extension("2.5.29.19", CA_TRUE),
    "critical basicConstraints": extension("2.5.29.19", CA_TRUE, critical=True),
    "keyCertSign": extension("2.5.29.15", tlv(0x03, b"\x02\x04")),
    "cRLSign": extension("2.5.29.15", tlv(0x03, b"\x01\x02")),
    "nameConstraints": extension("2.5.29.30", sequence(tlv(0xA0, sequence(tlv(0x82, b"a"))))),
    "policyConstraints": extension("2.5.29.36", sequence(tlv(0x80, b"\0"))),
    "policyMappings": extension("2.5.29.33", sequence(sequence(oid("2.5.29.32.0"), oid("1.2.3")))),
    "inhibitAnyPolicy": extension("2.5.29.54", tlv(0x02, b"\0")),
    "unknown critical": extension("1.2.3.4", b"\x05\0", critical=True),
    "critical certificatePolicies": extension("2.5.29.32", sequence(sequence(oid("1.2.3"))), critical=True),
}
HARMLESS = {
    "CA:FALSE": extension("2.5.29.19", sequence(), critical=True),
    "digitalSignature": extension("2.5.29.15", tlv(0x03, b"\x07\x80"), critical=True),
    "extendedKeyUsage": extension("2.5.29.37", sequence(oid("1.3.6.1.5.5.7.3.2")), critical=True),
    "subjectKeyIdentifier": extension("2.5.29.14", tlv(0x04, b"x"), critical=True),
    "unknown": extension("1.2.3.4", b"\x05\0"),
}


class TestExtensions:
    @pytest.mark.parametrize("unwanted", AUTHORITY.values(), ids=AUTHORITY.keys())
    def test_of_authorities(self, unwanted: bytes) -> None:
        for extensions in ([provider_id_extension(), unwanted], [unwanted, provider_id_extension()]):
            assert denied(pkcs10(extensions=extensions)) == Reason.FORBIDDEN_EXTENSION

    @pytest.mark.parametrize("harmless", HARMLESS.values(), ids=HARMLESS.keys())
    def test_harmless(self, harmless: bytes) -> None:
        accepted(pkcs10(extensions=[harmless, provider_id_extension()]))

    def test_critical_provider_id(self) -> None:
        accepted(pkcs10(extensions=[provider_id_extension(critical=True)]))

    def test_critical_provider_id_of_a_configured_identifier(self) -> None:
        value = tlv(UTF8_STRING, PROVIDER_ID.encode())
        csr = manifest(blocks(pkcs10(extensions=[extension("1.3.6.1.4.1.99999.1", value, critical=True)])))
        for oids in (("1.3.6.1.4.1.99999.1",), (PROVIDER_ID_OID, "1.3.6.1.4.1.99999.1")):
            judge(request_facts(parse_signing_request(csr, PROVIDERS, oids)))  # type: ignore[arg-type]
        unread = request_facts(parse_signing_request(csr, PROVIDERS))  # type: ignore[arg-type]
        assert refused(judge, unread).reason == Reason.FORBIDDEN_EXTENSION

    @pytest.mark.parametrize(
        "unwanted",
        [
            sequence(oid("1.2.840.113549.1.9.7"), set_of(tlv(UTF8_STRING, b"secret"))),
            sequence(oid("1.2.840.113549.1.9.2"), set_of(tlv(UTF8_STRING, b"name"))),
            sequence(oid("1.3.6.1.4.1.311.2.1.14"), set_of(sequence(extension("2.5.29.19", CA_TRUE)))),
            sequence(oid("1.2.3.4"), set_of(sequence())),
        ],
        ids=["challengePassword", "unstructuredName", "Microsoft's extension request", "unknown"],
    )
    def test_other_attributes(self, unwanted: bytes) -> None:
        wanted = extension_request(provider_id_extension())
        assert denied(pkcs10(attributes=[unwanted, wanted])) == Reason.FORBIDDEN_EXTENSION
        assert denied(pkcs10(attributes=[unwanted])) == Reason.FORBIDDEN_EXTENSION


class TestAlternativeNames:
    @pytest.mark.parametrize("names", [[dns(NODE)], [ip(bytes(4))], [dns(NODE), ip(bytes(4))], []])
    def test_none_in_client_requests(self, names: list[bytes]) -> None:
        der = pkcs10(extensions=[provider_id_extension(), alternative_names(*names)])
        assert denied(der) == Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES

    @pytest.mark.parametrize(
        ("kind", "name"),
        [
            ("OtherName", tlv(0xA0, oid("1.2.3") + tlv(0xA0, tlv(UTF8_STRING, b"x")))),
            ("RFC822Name", tlv(0x81, b"a@b")),
            ("DirectoryName", tlv(0xA4, sequence(rdn(COMMON_NAME, "x" * 70)))),
            ("UniformResourceIdentifier", tlv(0x86, b"spiffe://a/b")),
            ("RegisteredID", tlv(0x88, b"\x2a\x03")),
            ("IPAddress", ip(bytes((10, 0, 0, 0, 255, 0, 0, 0)))),
            ("IPAddress", ip(bytes(16) + bytes((255,)) + bytes(15))),
        ],
    )
    def test_of_another_kind(self, kind: str, name: bytes) -> None:
        for names in ([name], [dns(NODE), name]):
            deny = refused(judge, request_facts(signing_request(serving_manifest(*names))))
            assert deny.reason == Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES
            assert deny.message.endswith(f"not {kind}")

    def test_may_be_critical(self) -> None:
        extensions = [provider_id_extension(), alternative_names(dns(NODE), critical=True)]
        judge(request_facts(signing_request(serving_manifest(extensions=extensions))))

    @pytest.mark.parametrize("extensions", [[provider_id_extension()], [provider_id_extension(), alternative_names()]])
    def test_serving_needs_one(self, extensions: list[bytes]) -> None:
        deny = refused(judge, request_facts(signing_request(serving_manifest(extensions=extensions))))
        assert deny.reason == Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES


def usage_facts(csr: dict[str, Any]) -> RequestFacts:
    return request_facts(signing_request(csr))


class TestUsages:
    @pytest.mark.parametrize(
        "usages", [*permutations(CLIENT_USAGES), *permutations((*CLIENT_USAGES, "key encipherment"))]
    )
    def test_client(self, usages: tuple[str, ...]) -> None:
        judge(usage_facts(manifest(usages=usages)))

    @pytest.mark.parametrize("usages", [SERVING_USAGES, *permutations((*SERVING_USAGES, "key encipherment"))])
    def test_serving(self, usages: tuple[str, ...]) -> None:
        judge(usage_facts(serving_manifest(dns(NODE), usages=usages)))

    @pytest.mark.parametrize(
        "usages",
        [
            (),
            ("digital signature",),
            ("client auth",),
            ("key encipherment",),
            ("digital signature", "key encipherment"),
            ("digital signature", "server auth"),
            (*CLIENT_USAGES, "server auth"),
            (*CLIENT_USAGES, "any"),
            (*CLIENT_USAGES, "cert sign"),
            (*CLIENT_USAGES, "client auth"),
            (*CLIENT_USAGES, "digital signature"),
            (*CLIENT_USAGES, "key encipherment", "key encipherment"),
            ("Digital Signature", "client auth"),
            ("digital signature", "client auth "),
        ],
    )
    def test_refused_for_clients(self, usages: tuple[str, ...]) -> None:
        assert refused(judge, usage_facts(manifest(usages=usages))).reason == Reason.INVALID_USAGES

    @pytest.mark.parametrize("usages", [CLIENT_USAGES, (*SERVING_USAGES, "client auth"), ("server auth",), ()])
    def test_refused_for_servers(self, usages: tuple[str, ...]) -> None:
        assert refused(judge, usage_facts(serving_manifest(dns(NODE), usages=usages))).reason == Reason.INVALID_USAGES
