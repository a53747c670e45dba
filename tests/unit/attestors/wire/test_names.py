from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire import names
from attestors.wire.names import (
    BuiltinSigner,
    ForeignSigner,
    InvalidProviderName,
    Purpose,
    SignerName,
    check_provider_name,
    parse_signer_name,
)
from tests.unit.attestors.support import PATIENT

LONGEST = "a" + "-" * 38 + "a"
VALID = ["tpm", "aws", "insecure", "keyed-mac", "a", "0", "a0", "a--b", LONGEST]
INVALID = [
    "",
    "-",
    "-tpm",
    "tpm-",
    "TPM",
    "tpm.",
    "t.pm",
    "t_pm",
    "tpm ",
    " tpm",
    "tpm\n",
    "t/pm",
    "tpm\0",
    "tp\u00b2",
    "\u0442pm",
    "tp\uff4d",
    LONGEST + "a",
]
DNS_1123_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")

provider_names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True)


def an_api_server_accepts(signer_name: str) -> bool:
    """``ValidateSignerName`` of kube-apiserver, ``pkg/apis/core/validation/names.go``, for names without dots in paths.

    One slash, a domain of at least two DNS-1123 labels of at most 63 characters, a path of DNS-1123 characters.
    """
    domain, slash, path = signer_name.partition("/")
    labels = domain.split(".")
    return (
        slash == "/"
        and len(domain) <= 253
        and len(labels) >= 2
        and all(len(label) <= 63 and DNS_1123_LABEL.fullmatch(label) for label in labels)
        and len(path) <= 253
        and DNS_1123_LABEL.fullmatch(path) is not None
    )


class TestProviderNames:
    @pytest.mark.parametrize("name", VALID)
    def test_accepts(self, name: str) -> None:
        assert check_provider_name(name) == name
        assert SignerName(Purpose.CLIENT, name).provider == name

    @pytest.mark.parametrize("name", INVALID)
    def test_refuses(self, name: str) -> None:
        with pytest.raises(InvalidProviderName):
            check_provider_name(name)
        with pytest.raises(InvalidProviderName):
            SignerName(Purpose.CLIENT, name)


class TestSignerNames:
    @PATIENT
    @given(st.sampled_from(Purpose), provider_names)
    def test_every_one_is_valid_on_an_api_server_and_read_back(self, purpose: Purpose, provider: str) -> None:
        signer = SignerName(purpose, provider)
        assert an_api_server_accepts(str(signer))
        assert parse_signer_name(str(signer)) == signer

    @pytest.mark.parametrize(
        ("text", "signer"),
        [
            ("cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm", SignerName(Purpose.CLIENT, "tpm")),
            ("cluster.x-k8s.io/kubelet-serving-tpm", SignerName(Purpose.SERVING, "tpm")),
            ("cluster.x-k8s.io/kubelet-serving-keyed-mac", SignerName(Purpose.SERVING, "keyed-mac")),
            ("cluster.x-k8s.io/kubelet-serving-kubelet-serving", SignerName(Purpose.SERVING, "kubelet-serving")),
        ],
    )
    def test_are_those_of_the_proposal_with_a_domain(self, text: str, signer: SignerName) -> None:
        assert str(signer) == text
        assert parse_signer_name(text) == signer

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "kubernetes.io/kube-apiserver-client-kubelet",
            "kubernetes.io/kubelet-serving",
            "cluster.x-k8s.io/",
            "cluster.x-k8s.io/kube-apiserver-client-kubelet",
            "cluster.x-k8s.io/kube-apiserver-client-kubelet-",
            "cluster.x-k8s.io/kubelet-serving-",
            "cluster.x-k8s.io/kubelet-serving-TPM",
            "cluster.x-k8s.io/kubelet-serving-tpm/x",
            "cluster.x-k8s.io/kubelet-serving-tpm\n",
            "cluster.x-k8s.io/kubelet-serving-tpm.aws",
            "cluster.x-k8s.io/kubelet-serving--tpm",
            "cluster.x-k8s.io/kubelet-serving-" + LONGEST + "a",
            "Cluster.x-k8s.io/kubelet-serving-tpm",
            " cluster.x-k8s.io/kubelet-serving-tpm",
            "evil.cluster.x-k8s.io/kubelet-serving-tpm",
            "cluster.x-k8s.io.evil/kubelet-serving-tpm",
            "cluster-x-k8s-io/kubelet-serving-tpm",
        ],
    )
    def test_others_are_foreign(self, name: str) -> None:
        assert parse_signer_name(name) == ForeignSigner(name)

    @PATIENT
    @given(
        st.text(max_size=80)
        | st.text(max_size=9).map(lambda rest: names.CLIENT_SIGNER_PREFIX + rest)
        | st.text(max_size=9).map(lambda rest: names.SERVING_SIGNER_PREFIX + rest)
    )
    def test_any_text_is_foreign_or_exactly_what_would_be_written(self, text: str) -> None:
        signer = parse_signer_name(text)
        assert (signer.name if isinstance(signer, ForeignSigner) else str(signer)) == text

    def test_the_dashed_domain_of_the_proposals_text_would_be_refused(self) -> None:
        assert not an_api_server_accepts("cluster-x-k8s-io/kube-apiserver-client-kubelet-tpm")


def test_annotations_of_ours_are_valid_keys() -> None:
    """A qualified name: a DNS subdomain, a slash, and 1 to 63 characters (``IsQualifiedName``)."""
    for annotation in (
        names.CHALLENGE_ANNOTATION,
        names.SUPPORTED_VERSIONS_ANNOTATION,
        names.ENDORSEMENT_KEY_ANNOTATION,
    ):
        prefix, _, name = annotation.partition("/")
        assert all(DNS_1123_LABEL.fullmatch(label) for label in prefix.split("."))
        assert re.fullmatch(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,61}[A-Za-z0-9]", name)


def test_the_wire_names_stay() -> None:
    """Every released node uses these: to change one is a new version of the protocol."""
    assert names.CERTIFICATE_REQUEST_LABEL == "CERTIFICATE REQUEST"
    assert names.ATTESTATION_PROVIDER_LABEL == "KUBELET AUTHENTICATOR ATTESTATION PROVIDER"
    assert names.ATTESTATION_DATA_LABEL == "KUBELET AUTHENTICATOR ATTESTATION DATA"
    assert names.ATTESTATION_DATA_LABEL_ALIAS == "ATTESTATION DATA"
    assert names.PROVIDER_ID_OID == "1.3.6.1.4.1.11129.2.1.21"
    assert names.ENTRY_POINT_GROUP == "node_attestation.attestors"
    assert (names.EVIDENCE_VERSION, names.EVIDENCE_EXPIRED) == ("v1", "EvidenceExpired")
    assert (names.MAXIMUM_REQUEST_BYTES, names.MAXIMUM_CERTIFICATE_REQUEST_BYTES) == (65536, 8192)
    assert [purpose.value for purpose in Purpose] == ["client", "serving"]


def test_the_names_of_kubernetes() -> None:
    assert (names.BOOTSTRAP_USER_PREFIX, names.BOOTSTRAPPERS_GROUP) == ("system:bootstrap:", "system:bootstrappers")
    assert (names.NODE_USER_PREFIX, names.NODES_GROUP) == ("system:node:", "system:nodes")
    assert names.CREDENTIAL_ID_KEY == "authentication.kubernetes.io/credential-id"
    assert names.CERTIFICATE_CREDENTIAL_PREFIX == "X509SHA256="


def test_the_builtin_signers_are_not_ours() -> None:
    assert {str(signer): signer.purpose for signer in BuiltinSigner} == {
        "kubernetes.io/kube-apiserver-client-kubelet": Purpose.CLIENT,
        "kubernetes.io/kubelet-serving": Purpose.SERVING,
    }
    for signer in BuiltinSigner:
        assert parse_signer_name(str(signer)) == ForeignSigner(str(signer))
        assert an_api_server_accepts(str(signer))
