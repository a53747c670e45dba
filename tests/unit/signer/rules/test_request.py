from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from attestors.wire.names import MAXIMUM_PROVIDER_ID_CHARACTERS, SUPPORTED_VERSIONS_ANNOTATION
from signer.model.authority_sharing import SharedAuthorities
from signer.model.cluster import ClusterKey
from signer.model.reasons import Reason
from signer.rules.checks import CLUSTER_CHECKS, REQUEST_CHECKS
from signer.rules.request import RequestFacts, claimed_provider_id
from signer.rules.shape import node_name_of
from tests.unit.signer.builders import (
    AS_NODE,
    BMP_STRING,
    BOOTSTRAP,
    CA_CERT_HASH,
    CLUSTER,
    INSECURE,
    NODE,
    PROVIDER_ID,
    TPM,
    UTF8_STRING,
    blocks,
    der_request,
    dns,
    evidence_json,
    ip,
    manifest,
    pkcs10,
    policy,
    provider_id_extension,
    request_facts,
    sequence,
    serving_manifest,
    signing_request,
    tlv,
)
from tests.unit.signer.outcomes import all_of, deferred, refused

judge: Callable[[RequestFacts], None] = all_of((*CLUSTER_CHECKS, *REQUEST_CHECKS))


def denied(der: bytes) -> str:
    """Why a client request with that PKCS#10 content is denied."""
    return refused(judge, request_facts(der_request(der))).reason


def insecure_manifest(requester: tuple[str, tuple[str, ...]]) -> dict[str, Any]:
    """A client request to the signer of the insecure attestor."""
    signer = "cluster.x-k8s.io/kube-apiserver-client-kubelet-insecure"
    return manifest(blocks(provider="insecure"), signer_name=signer, requester=requester)


def to_insecure(csr: dict[str, Any], **changes: Any) -> RequestFacts:
    """A request to the insecure attestor, which operator and policy allow."""
    request = replace(signing_request(csr), **changes)
    allowed = policy(authorizedAttestors=[{"name": "insecure"}])
    return request_facts(request, attestor=INSECURE, policy=allowed, insecure_allowed=True)


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
        csr = serving_manifest(dns(NODE), signer_name="cluster.x-k8s.io/kubelet-serving-insecure")
        assert refused(judge, to_insecure(csr, provider="insecure")).reason == Reason.SERVING_NOT_SUPPORTED

    def test_no_renewal(self) -> None:
        assert refused(judge, to_insecure(insecure_manifest(AS_NODE))).reason == Reason.RENEWAL_NOT_SUPPORTED

    def test_first_join_without_renewal(self) -> None:
        judge(to_insecure(insecure_manifest(BOOTSTRAP)))

    def test_version(self) -> None:
        attestor = replace(TPM, evidence_versions=("v2", "v3"))
        deny = refused(judge, request_facts(attestor=attestor))
        assert deny.reason == Reason.UNSUPPORTED_VERSION
        assert dict(deny.annotations) == {SUPPORTED_VERSIONS_ANNOTATION: "v2,v3"}


def text(value: str, tag: int = UTF8_STRING) -> bytes:
    return tlv(tag, value.encode())


LONGEST = "aws://" + "x" * (MAXIMUM_PROVIDER_ID_CHARACTERS - 6)
PROVIDER_IDS = {
    "empty extension": b"",
    "empty": text(""),
    "PrintableString": text("aws:///a/i-1", 0x13),
    "IA5String": text("aws:///a/i-1", 0x16),
    "BMPString": tlv(BMP_STRING, "aws:///a/i-1".encode("utf-16-be")),
    "OCTET STRING": text("aws:///a/i-1", 0x04),
    "SEQUENCE": sequence(text("aws:///a/i-1")),
    "bare text": b"aws:///a/i-1",
    "BER length": b"\x0c\x81\x0c" + b"aws:///a/i-1",
    "BER indefinite length": b"\x2c\x80" + text("aws:///a/i-1") + b"\0\0",
    "constructed": tlv(0x2C, text("aws:///a/i-1")),
    "trailing byte": text("aws:///a/i-1") + b"\0",
    "trailing string": text("aws:///a/i-1") + text("aws:///a/i-2"),
    "cut short": text("aws:///a/i-1")[:-1],
    "bad UTF-8": tlv(UTF8_STRING, b"aws:///\xff"),
    "513 characters": text(LONGEST + "x"),
    "5000 characters": text("aws://" + "x" * 5000),
    "space": text(" "),
    "space behind": text("aws:///a/i-1 "),
    "space before": text(" aws:///a/i-1"),
    "newline": text("aws:///a/i-1\n"),
    "NUL": text("aws:///a/i-1\0"),
    "beyond ASCII": text("aws:///\u0430"),
}


class TestProviderID:
    @pytest.mark.parametrize("value", PROVIDER_IDS.values(), ids=PROVIDER_IDS.keys())
    def test_not_well_formed(self, value: bytes) -> None:
        assert denied(pkcs10(extensions=[provider_id_extension(value)])) == Reason.INVALID_PROVIDER_ID

    @pytest.mark.parametrize("der", [pkcs10(extensions=[]), pkcs10(attributes=[])])
    def test_missing(self, der: bytes) -> None:
        deny = refused(judge, request_facts(der_request(der)))
        assert deny.reason == Reason.INVALID_PROVIDER_ID
        assert deny.message == "the request has no provider-ID extension (1.3.6.1.4.1.11129.2.1.21)"

    @pytest.mark.parametrize(
        "value", ["aws:///eu-west-1a/i-1", "docker:////c", "cn-hangzhou.i-bp1", "maas:///Rack 1/abc123", LONGEST]
    )
    def test_well_formed(self, value: str) -> None:
        request = der_request(pkcs10(extensions=[provider_id_extension(text(value))]))
        judge(request_facts(request))
        assert claimed_provider_id(request) == value


class TestEvidence:
    def test_of_another_cluster(self) -> None:
        other = "sha256:" + "cd" * 32
        request = signing_request(manifest(blocks(evidence=evidence_json(ca_cert_hash=other))))
        assert refused(judge, request_facts(request)).reason == Reason.CLUSTER_MISMATCH
        judge(request_facts(request, ca_cert_hashes=frozenset({CA_CERT_HASH, other})))

    def test_of_a_ca_that_is_coming_in_or_going_out(self) -> None:
        """It waits: a denial would be final, and the node is one of this cluster's."""
        other = "sha256:" + "cd" * 32
        request = signing_request(manifest(blocks(evidence=evidence_json(ca_cert_hash=other))))
        defer = deferred(judge, request_facts(request, waiting_ca_cert_hashes=frozenset({other})))
        assert defer.reason == Reason.CERTIFICATE_AUTHORITY_CHANGING
        waiting = frozenset({"sha256:" + "ef" * 32})
        assert refused(judge, request_facts(request, waiting_ca_cert_hashes=waiting)).reason == Reason.CLUSTER_MISMATCH
        judge(request_facts(request, ca_cert_hashes=frozenset({other}), waiting_ca_cert_hashes=frozenset({other})))

    def test_a_ca_whose_key_another_cluster_has(self) -> None:
        """Whatever CA of the cluster the evidence names; also evidence of another cluster waits."""
        shared = SharedAuthorities(keys=frozenset({"sha256:" + "cd" * 32}))
        for facts in (request_facts(shared=shared), request_facts(shared=shared, ca_cert_hashes=frozenset({"other"}))):
            defer = deferred(judge, facts)
            assert defer.reason == Reason.CERTIFICATE_AUTHORITY_SHARED
            assert "another Cluster has the private key of CA sha256:cdcd" in defer.message

    def test_an_issuer_that_another_cluster_has(self) -> None:
        """Only the CA that signs counts then."""
        defer = deferred(judge, request_facts(shared=SharedAuthorities(issuers=frozenset({CA_CERT_HASH}))))
        assert defer.reason == Reason.CERTIFICATE_AUTHORITY_SHARED
        judge(request_facts(shared=SharedAuthorities(issuers=frozenset({"sha256:" + "cd" * 32}))))

    def test_no_ca_known_is_our_fault(self) -> None:
        defer = deferred(judge, request_facts(ca_cert_hashes=frozenset()))
        assert defer.reason == Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE
