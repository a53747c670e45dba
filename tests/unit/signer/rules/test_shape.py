from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

from signer.model.reasons import Reason
from signer.rules.checks import CLUSTER_CHECKS, REQUEST_CHECKS
from signer.rules.request import RequestFacts
from signer.rules.shape import node_name_of
from tests.unit.signer.builders import (
    BMP_STRING,
    BOOTSTRAP,
    COMMON_NAME,
    NODE,
    ORGANIZATION,
    UNIVERSAL_STRING,
    UTF8_STRING,
    attribute,
    cluster_view,
    der_request,
    dns,
    manifest,
    node_subject,
    pkcs10,
    rdn,
    request_facts,
    sequence,
    serving_manifest,
    set_of,
    signing_request,
)
from tests.unit.signer.outcomes import all_of, deferred, refused

judge: Callable[[RequestFacts], None] = all_of((*CLUSTER_CHECKS, *REQUEST_CHECKS))


def denied(der: bytes) -> str:
    """Why a client request with that PKCS#10 content is denied."""
    return refused(judge, request_facts(der_request(der))).reason


def accepted(der: bytes) -> None:
    judge(request_facts(der_request(der)))


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
        assert deny.message.endswith("the requester must be system:node:<name> in system:nodes")

    @pytest.mark.parametrize(
        "username", ["system:node:other", "system:node:", f"system:node:{NODE}.", "system:node:\n"]
    )
    def test_a_node_for_itself_only(self, username: str) -> None:
        for csr in (manifest(requester=(username, NODES)), serving_manifest(dns(NODE), requester=(username, NODES))):
            deny = refused(judge, request_facts(signing_request(csr)))
            assert deny.reason == Reason.REQUESTER_NOT_ALLOWED
            assert deny.message.endswith(f"requests a certificate for system:node:{NODE}")

    def test_hostile_name_is_escaped(self) -> None:
        facts = request_facts(signing_request(manifest(requester=("\x1b[31m\u202e\n" + "x" * 5000, ()))))
        assert r"\x1b[31m\u202e\n" in refused(judge, facts).message


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


def test_no_common_name_has_no_node_name() -> None:
    assert refused(node_name_of, der_request(pkcs10(subject=sequence()))).reason == Reason.INVALID_SUBJECT


def test_long_names_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        judge(request_facts(der_request(pkcs10(subject=node_subject("n" * 253)))))
