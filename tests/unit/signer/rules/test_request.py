from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from attestors.wire.names import SUPPORTED_VERSIONS_ANNOTATION
from signer.model.cluster import ClusterKey
from signer.model.reasons import Reason
from signer.model.signing_request import parse_signing_request
from signer.rules.checks import REQUEST_CHECKS
from signer.rules.request import RequestFacts, claimed_provider_id, node_name_of
from tests.unit.signer.builders import (
    AS_NODE,
    BMP_STRING,
    BOOTSTRAP,
    CA_CERT_HASH,
    CLIENT_USAGES,
    CLUSTER,
    COMMON_NAME,
    INSECURE,
    NODE,
    ORGANIZATION,
    PROVIDER_ID,
    PROVIDERS,
    SERVING_USAGES,
    TPM,
    UNIVERSAL_STRING,
    UTF8_STRING,
    alternative_names,
    attribute,
    blocks,
    cluster_view,
    der_request,
    dns,
    extension,
    extension_request,
    ip,
    manifest,
    node_subject,
    oid,
    pkcs10,
    policy,
    provider_id_extension,
    rdn,
    request_facts,
    sequence,
    serving_manifest,
    set_of,
    signing_request,
    tlv,
)
from tests.unit.signer.outcomes import all_of, deferred, refused

judge: Callable[[RequestFacts], None] = all_of(REQUEST_CHECKS)


def denied(der: bytes) -> str:
    """Why a client request with that PKCS#10 content is denied."""
    return refused(judge, request_facts(der_request(der))).reason


def accepted(der: bytes) -> None:
    judge(request_facts(der_request(der)))


class TestHonest:
    @pytest.mark.parametrize("requester", [BOOTSTRAP, AS_NODE])
    def test_client(self, requester: tuple[str, tuple[str, ...]]) -> None:
        request = signing_request(manifest(requester=requester))
        judge(request_facts(request))
        assert node_name_of(request) == NODE
        assert claimed_provider_id(request) == PROVIDER_ID

    @pytest.mark.parametrize("names", [[dns(NODE)], [ip(bytes((10, 0, 0, 1)))], [dns(NODE), dns("a.b"), ip(bytes(16))]])
    def test_serving(self, names: list[bytes]) -> None:
        judge(request_facts(signing_request(serving_manifest(*names))))

    def test_insecure(self) -> None:
        signer = "cluster.x-k8s.io/kube-apiserver-client-kubelet-insecure"
        request = signing_request(manifest(blocks(provider="insecure"), signer_name=signer))
        allowed = policy(authorizedAttestors=[{"name": "insecure"}])
        judge(request_facts(request, attestor=INSECURE, policy=allowed, insecure_allowed=True))

    def test_one_of_several_authorized_attestors(self) -> None:
        judge(request_facts(policy=policy(authorizedAttestors=[{"name": "aws"}, {"name": "tpm"}])))

    def test_one_of_several_ca_hashes(self) -> None:
        judge(request_facts(ca_cert_hashes=frozenset({"sha256:" + "00" * 32, CA_CERT_HASH})))


class TestFactsBelongTogether:
    def test_another_clusters_policy(self) -> None:
        other = replace(policy(), cluster=ClusterKey(CLUSTER.namespace, "other"))
        assert deferred(judge, request_facts(policy=other)).reason == Reason.INTERNAL_ERROR

    def test_another_signers_attestor(self) -> None:
        other = replace(TPM, provider="aws")
        authorized = policy(authorizedAttestors=[{"name": "aws"}, {"name": "tpm"}])
        facts = request_facts(attestor=other, policy=authorized)
        assert deferred(judge, facts).reason == Reason.INTERNAL_ERROR


class TestPaused:
    def test_a_paused_cluster_waits(self) -> None:
        defer = deferred(judge, request_facts(cluster=cluster_view(paused=True)))
        assert defer.reason == Reason.CLUSTER_PAUSED
        assert "team-a/prod" in defer.message

    def test_before_anything_is_denied(self) -> None:
        stranger = signing_request(manifest(requester=("eve", ())))
        assert deferred(judge, request_facts(stranger, cluster=cluster_view(paused=True))).reason == "ClusterPaused"


NODES = ("system:nodes", "system:authenticated")
BOOTSTRAPPERS = ("system:bootstrappers", "system:authenticated")


class TestRequester:
    @pytest.mark.parametrize(
        ("username", "groups"),
        [
            ("", ()),
            ("", (*NODES, *BOOTSTRAPPERS)),
            ("eve", ("system:masters", *NODES, *BOOTSTRAPPERS)),
            ("system:bootstrap:abc123", ("system:authenticated",)),
            ("system:bootstrap:abc123", ()),
            ("system:bootstrap:abc123", NODES),
            ("system:bootstrap:abc123", ("system:bootstrappers:kubeadm:default-node-token",)),
            ("system:bootstrap:", BOOTSTRAPPERS),
            ("system:bootstrap:abc12", BOOTSTRAPPERS),
            ("system:bootstrap:abc1234", BOOTSTRAPPERS),
            ("system:bootstrap:ABC123", BOOTSTRAPPERS),
            ("system:bootstrap:abc123\n", BOOTSTRAPPERS),
            ("x-system:bootstrap:abc123", BOOTSTRAPPERS),
            ("abc123", BOOTSTRAPPERS),
            (f"system:node:{NODE}", BOOTSTRAPPERS),
            (f"system:node:{NODE}", ()),
            (f"system:node:{NODE}", ("system:nodes-other",)),
            ("system:serviceaccount:kube-system:node-controller", NODES),
            ("system:node", NODES),
            ("system:nodes:a", NODES),
            ("SYSTEM:NODE:a", NODES),
        ],
    )
    def test_nobody_else(self, username: str, groups: tuple[str, ...]) -> None:
        facts = request_facts(signing_request(manifest(requester=(username, groups))))
        deny = refused(judge, facts)
        assert deny.reason == Reason.REQUESTER_NOT_ALLOWED
        assert (
            "system:bootstrap:<token id> in system:bootstrappers, or system:node:<name> in system:nodes" in deny.message
        )

    def test_no_bootstrap_token_for_serving_certificates(self) -> None:
        deny = refused(judge, request_facts(signing_request(serving_manifest(dns(NODE), requester=BOOTSTRAP))))
        assert deny.reason == Reason.REQUESTER_NOT_ALLOWED
        assert deny.message.endswith("only system:node:<name> in system:nodes may ask")

    @pytest.mark.parametrize(
        "username", ["system:node:other", "system:node:", f"system:node:{NODE}.", "system:node:\n"]
    )
    def test_a_node_for_itself_only(self, username: str) -> None:
        for csr in (manifest(requester=(username, NODES)), serving_manifest(dns(NODE), requester=(username, NODES))):
            deny = refused(judge, request_facts(signing_request(csr)))
            assert deny.reason == Reason.REQUESTER_NOT_ALLOWED
            assert deny.message.endswith(f"asks for a certificate of system:node:{NODE}")

    def test_hostile_name_is_escaped(self) -> None:
        facts = request_facts(signing_request(manifest(requester=("\x1b[31m\u202e\n" + "x" * 5000, ()))))
        assert r"\x1b[31m\u202e\n" in refused(judge, facts).message


class TestAttestor:
    @pytest.mark.parametrize("block", ["insecure", "aws", "tpm2", "tp"])
    def test_block_disagrees_with_the_signer(self, block: str) -> None:
        facts = request_facts(signing_request(manifest(blocks(provider=block))))
        assert refused(judge, facts).reason == Reason.PROVIDER_MISMATCH

    @pytest.mark.parametrize("authorized", [[], [{"name": "aws"}], [{"name": "tpm2"}, {"name": "insecure"}]])
    def test_not_authorized(self, authorized: list[dict[str, str]]) -> None:
        deny = refused(judge, request_facts(policy=policy(authorizedAttestors=authorized)))
        assert deny.reason == Reason.ATTESTOR_NOT_AUTHORIZED
        assert "team-a/prod" in deny.message

    def test_not_allowed_by_the_operator(self) -> None:
        deny = refused(judge, request_facts(operator_allows=False))
        assert deny.reason == Reason.ATTESTOR_NOT_AUTHORIZED
        assert "namespace team-a" in deny.message

    def test_insecure_needs_the_controllers_consent(self) -> None:
        signer = "cluster.x-k8s.io/kube-apiserver-client-kubelet-insecure"
        request = signing_request(manifest(blocks(provider="insecure"), signer_name=signer))
        allowed = policy(authorizedAttestors=[{"name": "insecure"}])
        deny = refused(judge, request_facts(request, attestor=INSECURE, policy=allowed))
        assert deny.reason == Reason.ATTESTOR_NOT_AUTHORIZED

    def test_no_serving(self) -> None:
        facts = request_facts(signing_request(serving_manifest(dns(NODE))), attestor=replace(TPM, serves=False))
        assert refused(judge, facts).reason == Reason.SERVING_NOT_SUPPORTED

    def test_no_renewal(self) -> None:
        facts = request_facts(signing_request(manifest(requester=AS_NODE)), attestor=replace(TPM, renews=False))
        assert refused(judge, facts).reason == Reason.RENEWAL_NOT_SUPPORTED

    def test_first_join_without_renewal(self) -> None:
        judge(request_facts(attestor=replace(TPM, renews=False, serves=False)))

    def test_version(self) -> None:
        attestor = replace(TPM, evidence_versions=("v2", "v3"))
        deny = refused(judge, request_facts(attestor=attestor))
        assert deny.reason == Reason.UNSUPPORTED_VERSION
        assert dict(deny.annotations) == {SUPPORTED_VERSIONS_ANNOTATION: "v2,v3"}


SYSTEM_NODES = rdn(ORGANIZATION, "system:nodes")
NODE_COMMON_NAME = rdn(COMMON_NAME, f"system:node:{NODE}")
SUBJECTS = {
    "nothing": sequence(),
    "no organization": sequence(NODE_COMMON_NAME),
    "no common name": sequence(SYSTEM_NODES),
    "common name twice": sequence(SYSTEM_NODES, NODE_COMMON_NAME, NODE_COMMON_NAME),
    "two common names": sequence(SYSTEM_NODES, rdn(COMMON_NAME, "system:node:other"), NODE_COMMON_NAME),
    "organization twice": sequence(SYSTEM_NODES, SYSTEM_NODES, NODE_COMMON_NAME),
    "masters too": sequence(SYSTEM_NODES, rdn(ORGANIZATION, "system:masters"), NODE_COMMON_NAME),
    "masters": sequence(rdn(ORGANIZATION, "system:masters"), NODE_COMMON_NAME),
    "masters as a multi-valued name": sequence(
        set_of(attribute(ORGANIZATION, "system:nodes"), attribute(ORGANIZATION, "system:masters")), NODE_COMMON_NAME
    ),
    "one multi-valued name": sequence(
        set_of(attribute(COMMON_NAME, f"system:node:{NODE}"), attribute(ORGANIZATION, "system:nodes"))
    ),
    "unmapped attribute": sequence(SYSTEM_NODES, NODE_COMMON_NAME, rdn("1.2.3.4", "x")),
    "unmapped multi-valued attribute": sequence(
        SYSTEM_NODES, set_of(attribute(COMMON_NAME, f"system:node:{NODE}"), attribute("1.2.3.4", "x"))
    ),
    "country of three letters": sequence(SYSTEM_NODES, NODE_COMMON_NAME, rdn("2.5.4.6", "XXX")),
    "serial number": sequence(SYSTEM_NODES, NODE_COMMON_NAME, rdn("2.5.4.5", "1")),
    "organizational unit": sequence(rdn("2.5.4.11", "system:nodes"), NODE_COMMON_NAME),
    "organization with a prefix": sequence(rdn(ORGANIZATION, "xsystem:nodes"), NODE_COMMON_NAME),
    "organization with a suffix": sequence(rdn(ORGANIZATION, "system:nodes "), NODE_COMMON_NAME),
    "organization's value as common name": sequence(
        rdn(ORGANIZATION, f"system:node:{NODE}"), rdn(COMMON_NAME, "system:nodes")
    ),
    "BMP common name of another": sequence(
        SYSTEM_NODES, rdn(COMMON_NAME, "system:node:\u0430".encode("utf-16-be"), BMP_STRING)
    ),
    "universal common name of another": sequence(
        SYSTEM_NODES, rdn(COMMON_NAME, "system:node:\u0430".encode("utf-32-be"), UNIVERSAL_STRING)
    ),
}


class TestSubject:
    @pytest.mark.parametrize(
        ("subject", "message"),
        [
            ("nothing", "the subject must hold one common name, one organization, nothing else"),
            ("one multi-valued name", "the subject has a multi-valued relative distinguished name"),
            ("masters", "the subject's organization is not system:nodes"),
        ],
    )
    def test_message(self, subject: str, message: str) -> None:
        assert refused(judge, request_facts(der_request(pkcs10(subject=SUBJECTS[subject])))).message == message

    @pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS.keys())
    def test_of_another_shape(self, subject: bytes) -> None:
        assert denied(pkcs10(subject=subject)) == Reason.INVALID_SUBJECT

    @pytest.mark.parametrize(
        "common_name",
        [
            "",
            "system:node:",
            "system:node",
            NODE,
            f"system:nodes:{NODE}",
            f"system:node: {NODE}",
            f"xsystem:node:{NODE}",
            f"system:node:system:node:{NODE}",
            f"system:node:{NODE}\0",
            "system:node:a\0.ec2.internal",
            f"system:node:{NODE}\n",
            f"system:node:{NODE}.",
            f"system:node:.{NODE}",
            "system:node:a..b",
            "system:node:a-.b",
            "system:node:a.-b",
            "system:node:-a",
            "system:node:a-",
            "system:node:A",
            f"system:node:{NODE.upper()}",
            "system:node:a_b",
            "system:node:a/b",
            "system:node:*",
            "system:node:\u0131",
            "system:node:\uff41",
            "system:node:\u00b2",
            "system:node:" + "a" * 254,
            "system:node:" + "\u20ac" * 30,
            "kubernetes-admin",
        ],
    )
    def test_not_a_nodes_common_name(self, common_name: str) -> None:
        subject = sequence(SYSTEM_NODES, rdn(COMMON_NAME, common_name))
        assert denied(pkcs10(subject=subject)) == Reason.INVALID_SUBJECT

    @pytest.mark.parametrize("length", [1, 2, 51, 52, 53, 54, 115, 116, 117, 243, 244, 245, 252, 253])
    def test_node_names_of_any_length(self, length: int) -> None:
        der = pkcs10(subject=node_subject("n" * length))
        accepted(der)
        assert node_name_of(der_request(der)) == "n" * length

    @pytest.mark.parametrize("tag", [UTF8_STRING, 0x13])
    def test_order_and_string_type_do_not_matter(self, tag: int) -> None:
        accepted(pkcs10(subject=sequence(rdn(COMMON_NAME, f"system:node:{NODE}", tag), SYSTEM_NODES)))


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
        parsed = parse_signing_request(csr, PROVIDERS, "1.3.6.1.4.1.99999.1")
        judge(request_facts(parsed))  # type: ignore[arg-type]

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
