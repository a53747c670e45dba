"""Creation of CertificateSigningRequests: who asked, and what a request must be."""

from __future__ import annotations

import base64

import pytest

from tests.conformance.api import Clients, fields, refused
from tests.support import kubeadm
from tests.support.raw_client import RawClient
from tests.support.signing_requests import (
    BUILTIN_CLIENT_SIGNER,
    COLLECTION,
    condition,
    pem_block,
    request_der,
    request_pem,
    signing_request,
    with_certificate,
    with_conditions,
)


def test_created_request_is_answered_with_server_metadata(admin: RawClient, name: str) -> None:
    answer = admin.post(COLLECTION, signing_request(name))
    created = answer.expect(201)
    metadata = created["metadata"]
    assert (created["apiVersion"], created["kind"]) == ("certificates.k8s.io/v1", "CertificateSigningRequest")
    assert metadata["name"] == name
    assert metadata["uid"]
    assert int(metadata["resourceVersion"]) > 0
    assert metadata["creationTimestamp"].endswith("Z")
    assert "generation" not in metadata
    assert created["status"] == {}
    assert admin.get(f"{COLLECTION}/{name}").expect(200) == created


def test_requester_is_recorded_whatever_the_request_says(admin: RawClient, clients: Clients, name: str) -> None:
    client = clients.user("eve", "system:masters", "testers")
    forged = signing_request(
        name, username="system:node:n1", groups=["system:nodes"], uid="forged", extra={"a": ["forged"]}
    )
    spec = client.post(COLLECTION, forged).expect(201)["spec"]
    assert spec["username"] == "eve"
    assert sorted(spec["groups"]) == ["system:authenticated", "system:masters", "testers"]
    assert "uid" not in spec
    assert "a" not in spec.get("extra", {})


def test_bootstrap_token_is_recorded_with_its_groups(clients: Clients, token: str, name: str) -> None:
    created = clients.bearer(token).post(COLLECTION, signing_request(name)).expect(201)
    assert created["spec"]["username"] == f"system:bootstrap:{token.partition('.')[0]}"
    assert sorted(created["spec"]["groups"]) == [
        "system:authenticated",
        "system:bootstrappers",
        kubeadm.NODE_TOKEN_GROUP,
    ]


def test_node_is_recorded_with_its_name(clients: Clients, name: str) -> None:
    spec = clients.node("n1").post(COLLECTION, signing_request(name)).expect(201)["spec"]
    assert spec["username"] == "system:node:n1"
    assert sorted(spec["groups"]) == ["system:authenticated", "system:nodes"]


def test_status_given_at_creation_is_dropped(admin: RawClient, name: str) -> None:
    forged = with_certificate(with_conditions(signing_request(name), condition("Approved")), b"forged")
    assert admin.post(COLLECTION, forged).expect(201)["status"] == {}


def test_annotations_given_at_creation_stay(clients: Clients, token: str, name: str) -> None:
    request = signing_request(name)
    request["metadata"]["annotations"] = {"cluster-x-k8s-io/tpm-endorsement-key": "forged"}
    created = clients.bearer(token).post(COLLECTION, request).expect(201)
    assert created["metadata"]["annotations"] == {"cluster-x-k8s-io/tpm-endorsement-key": "forged"}


@pytest.mark.parametrize(
    "signer",
    [
        "cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm",
        "cluster.x-k8s.io/kubelet-serving-aws",
        "kubernetes.io/kubelet-serving",
        "example.com/a.b-c",
        "example.com/a.b.c",
        "a.b/" + "c" * 253,
    ],
)
def test_signer_name_is_accepted(admin: RawClient, name: str, signer: str) -> None:
    assert admin.post(COLLECTION, signing_request(name, signer=signer)).expect(201)["spec"]["signerName"] == signer


@pytest.mark.parametrize(
    "signer",
    [
        "",
        "cluster-x-k8s-io/kubelet-serving-tpm",
        "cluster.x-k8s.io",
        "cluster.x-k8s.io/",
        "/kubelet-serving-tpm",
        "cluster.x-k8s.io/a/b",
        "cluster.x-k8s.io/Upper",
        "Cluster.x-k8s.io/lower",
        "cluster..io/a",
        "-a.io/b",
        "a.io/-b",
        "a.io/b_c",
        "a_b.io/c",
        "a.io/b..c",
        "a.b/" + "c" * 568,
        "a." + "b" * 64 + "/c",
        ".".join(["a" * 63] * 4) + ".io/c",
    ],
    ids=lambda signer: signer[:32] or "empty",
)
def test_signer_name_is_refused(admin: RawClient, name: str, signer: str) -> None:
    status = refused(admin.post(COLLECTION, signing_request(name, signer=signer)), 422, "Invalid")
    assert fields(status) == {"spec.signerName"}


def test_missing_signer_name_is_refused(admin: RawClient, name: str) -> None:
    request = signing_request(name)
    del request["spec"]["signerName"]
    assert fields(refused(admin.post(COLLECTION, request), 422, "Invalid")) == {"spec.signerName"}


@pytest.mark.parametrize(
    "usages",
    [
        ["digital signature", "client auth"],
        ["digital signature", "key encipherment", "server auth"],
        ["signing", "any", "netscape sgc", "content commitment", "ocsp signing"],
    ],
)
def test_usages_are_accepted_in_their_order(admin: RawClient, name: str, usages: list[str]) -> None:
    assert admin.post(COLLECTION, signing_request(name, usages=usages)).expect(201)["spec"]["usages"] == usages


@pytest.mark.parametrize(
    ("usages", "field"),
    [
        ([], "spec.usages"),
        (["digital signature", "client authentication"], "spec.usages[1]"),
        (["Client Auth"], "spec.usages[0]"),
        (["client auth", "digital signature", "client auth"], "spec.usages[2]"),
        ([""], "spec.usages[0]"),
    ],
)
def test_usages_are_refused(admin: RawClient, name: str, usages: list[str], field: str) -> None:
    status = refused(admin.post(COLLECTION, signing_request(name, usages=usages)), 422, "Invalid")
    assert fields(status) == {field}


def _broken_signature() -> bytes:
    der = request_der("system:node:n1")
    return pem_block("CERTIFICATE REQUEST", der[:-1] + bytes([der[-1] ^ 1]))


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"no PEM at all", id="no-pem"),
        pytest.param(request_der("system:node:n1"), id="der"),
        pytest.param(pem_block("CERTIFICATE REQUEST", b"no DER"), id="no-der"),
        pytest.param(pem_block("CERTIFICATE REQUEST", request_der("system:node:n1")[:-9]), id="cut"),
        pytest.param(pem_block("CERTIFICATE REQUEST", request_der("system:node:n1") + b"\0"), id="trailing-der"),
        pytest.param(pem_block("NEW CERTIFICATE REQUEST", request_der("system:node:n1")), id="label"),
        pytest.param(pem_block("ATTESTATION DATA", b"evidence") + request_pem(), id="another-block-first"),
        pytest.param(_broken_signature(), id="broken-signature"),
    ],
)
def test_request_that_does_not_parse_is_refused(admin: RawClient, name: str, request_bytes: bytes) -> None:
    status = refused(admin.post(COLLECTION, signing_request(name, request_bytes)), 422, "Invalid")
    assert fields(status) == {"spec.request"}


def test_missing_request_is_refused(admin: RawClient, name: str) -> None:
    request = signing_request(name)
    del request["spec"]["request"]
    assert fields(refused(admin.post(COLLECTION, request), 422, "Invalid")) == {"spec.request"}


def test_request_that_is_no_base64_is_refused_as_a_bad_request(admin: RawClient, name: str) -> None:
    request = signing_request(name)
    request["spec"]["request"] = "*"
    refused(admin.post(COLLECTION, request), 400, "BadRequest")


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(
            request_pem() + pem_block("KUBELET AUTHENTICATOR ATTESTATION DATA", b'{"version":1}'), id="one-block-behind"
        ),
        pytest.param(request_pem() + request_pem("system:node:other"), id="second-request-behind"),
        pytest.param(request_pem() + b"text behind\n\n", id="text-behind"),
        pytest.param(b"text before\n" + request_pem(), id="text-before"),
        pytest.param(
            pem_block("BROKEN", b"x" * 60).replace(b"eHh4", b"!!!!", 1) + request_pem(), id="broken-block-before"
        ),
        pytest.param(request_pem().replace(b"\n", b"\r\n"), id="carriage-returns"),
        pytest.param(request_pem().rstrip(b"\n"), id="no-last-newline"),
        pytest.param(
            request_pem().replace(b"REQUEST-----\n", b"REQUEST-----\nHeader: value\n\n", 1), id="headers-in-the-block"
        ),
    ],
)
def test_first_block_decides_and_the_text_is_kept_verbatim(admin: RawClient, name: str, request_bytes: bytes) -> None:
    created = admin.post(COLLECTION, signing_request(name, request_bytes)).expect(201)
    assert base64.b64decode(created["spec"]["request"]) == request_bytes


@pytest.mark.parametrize("seconds", [600, 3600, 604800])
def test_expiration_is_kept_where_the_version_knows_it(
    admin: RawClient, version: tuple[int, int], name: str, seconds: int
) -> None:
    spec = admin.post(COLLECTION, signing_request(name, expirationSeconds=seconds)).expect(201)["spec"]
    assert spec.get("expirationSeconds") == (seconds if version >= (1, 22) else None)


@pytest.mark.parametrize("seconds", [-1, 0, 599])
def test_short_expiration_is_refused_where_the_version_knows_it(
    admin: RawClient, version: tuple[int, int], name: str, seconds: int
) -> None:
    answer = admin.post(COLLECTION, signing_request(name, expirationSeconds=seconds))
    if version < (1, 22):
        answer.expect(201)
    else:
        assert fields(refused(answer, 422, "Invalid")) == {"spec.expirationSeconds"}


def test_second_request_of_the_same_name_is_refused(admin: RawClient, name: str) -> None:
    admin.post(COLLECTION, signing_request(name)).expect(201)
    status = refused(admin.post(COLLECTION, signing_request(name)), 409, "AlreadyExists")
    assert status["details"] == {"name": name, "group": "certificates.k8s.io", "kind": "certificatesigningrequests"}


@pytest.mark.parametrize("text", ["node-csr-{}-q3S_Vt", "csr:{}", "UPPER {}"])
def test_request_names_need_not_be_dns_names(admin: RawClient, name: str, text: str) -> None:
    own = text.format(name)
    admin.post(COLLECTION, signing_request(own)).expect(201)
    quoted = own.replace(" ", "%20")
    assert admin.get(f"{COLLECTION}/{quoted}").expect(200)["metadata"]["name"] == own


@pytest.mark.parametrize("text", ["a/b", "a%b", ".", ".."])
def test_request_names_must_fit_a_path(admin: RawClient, text: str) -> None:
    status = refused(admin.post(COLLECTION, signing_request(text)), 422, "Invalid")
    assert fields(status) == {"metadata.name"}


def test_generated_name_begins_as_asked(admin: RawClient) -> None:
    request = signing_request("")
    request["metadata"] = {"generateName": "csr-"}
    first, second = (admin.post(COLLECTION, request).expect(201)["metadata"] for _ in range(2))
    assert first["generateName"] == "csr-"
    assert first["name"].startswith("csr-")
    assert len(first["name"]) == len("csr-") + 5
    assert first["name"] != second["name"]


def test_node_may_ask_the_builtin_signer_only_for_itself(clients: Clients, version: tuple[int, int], name: str) -> None:
    node = clients.node("n1")
    own = signing_request(name, request_pem("system:node:n1"), signer=BUILTIN_CLIENT_SIGNER)
    node.post(COLLECTION, own).expect(201)
    foreign = signing_request(f"{name}-2", request_pem("system:node:n2"), signer=BUILTIN_CLIENT_SIGNER)
    answer = node.post(COLLECTION, foreign)
    if version < (1, 31):
        answer.expect(201)
    else:
        refused(answer, 403, "Forbidden")


def test_node_may_ask_a_custom_signer_for_any_name(clients: Clients, name: str) -> None:
    clients.node("n1").post(COLLECTION, signing_request(name, request_pem("system:node:n2"))).expect(201)


def test_nobody_asks_the_client_signer_for_the_administrators_group(admin: RawClient, name: str) -> None:
    request = request_pem("system:admin", ("system:masters",))
    asked = signing_request(name, request, signer="kubernetes.io/kube-apiserver-client")
    refused(admin.post(COLLECTION, asked), 403, "Forbidden")
    # Other signers must look themselves.
    admin.post(COLLECTION, signing_request(name, request)).expect(201)


@pytest.mark.parametrize("size", [1_000, 1_000_000])
def test_large_trailing_text_is_kept(admin: RawClient, name: str, size: int) -> None:
    # The limit is that of a stored object, 1.5 MiB: who reads requests must bound what is parsed.
    text = request_pem() + pem_block("KUBELET AUTHENTICATOR ATTESTATION DATA", b"x" * size)
    created = admin.post(COLLECTION, signing_request(name, text)).expect(201)
    assert base64.b64decode(created["spec"]["request"]) == text
