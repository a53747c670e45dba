"""status.certificate: how often it can be set, where, and what it must be."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from attestors.wire.ssh.signatures import public_key_of
from tests.conformance.api import Api, fields, refused
from tests.support.node_access import certificate as ssh_certificate
from tests.support.node_access import text_of
from tests.support.openssh import private_key
from tests.support.raw_client import RawClient
from tests.support.signing_requests import (
    COLLECTION,
    condition,
    pem_block,
    signing_request,
    with_certificate,
    with_conditions,
)

_FIELD = "status.certificate"


@pytest.fixture
def approved(admin: RawClient, name: str) -> dict[str, Any]:
    created = admin.post(COLLECTION, signing_request(name)).expect(201)
    request: dict[str, Any] = admin.put(
        f"{COLLECTION}/{name}/approval", with_conditions(created, condition("Approved"))
    ).expect(200)
    return request


@pytest.fixture(scope="module")
def certificate(api: Api) -> bytes:
    """Some certificate, PEM."""
    found = api.connection("somebody", ()).client_certificate
    assert found is not None
    return found


def test_certificate_is_set_through_status(
    admin: RawClient, approved: dict[str, Any], certificate: bytes, name: str
) -> None:
    metadata = {**approved["metadata"], "annotations": {"a": "b"}}
    answer = admin.put(f"{COLLECTION}/{name}/status", with_certificate({**approved, "metadata": metadata}, certificate))
    stored = admin.get(f"{COLLECTION}/{name}").expect(200)
    assert answer.expect(200) == stored
    assert base64.b64decode(stored["status"]["certificate"]) == certificate
    assert stored["status"]["conditions"] == approved["status"]["conditions"]
    assert stored["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize("written", [{"a": "ours"}, {}])
def test_annotations_are_overwritten_and_removed_with_the_certificate(
    admin: RawClient, certificate: bytes, name: str, written: dict[str, str]
) -> None:
    request = signing_request(name)
    request["metadata"]["annotations"] = {"a": "forged", "b": "forged"}
    created = admin.post(COLLECTION, request).expect(201)
    approved = admin.put(f"{COLLECTION}/{name}/approval", with_conditions(created, condition("Approved"))).expect(200)
    body = with_certificate({**approved, "metadata": {**approved["metadata"], "annotations": written}}, certificate)
    admin.put(f"{COLLECTION}/{name}/status", body).expect(200)
    stored = admin.get(f"{COLLECTION}/{name}").expect(200)
    assert stored["metadata"].get("annotations", {}) == written
    assert base64.b64decode(stored["status"]["certificate"]) == certificate


def test_certificate_is_set_by_a_patch_of_status(
    admin: RawClient, approved: dict[str, Any], certificate: bytes, name: str
) -> None:
    version = approved["metadata"]["resourceVersion"]
    encoded = base64.b64encode(certificate).decode()
    patch = {"metadata": {"resourceVersion": version}, "status": {"certificate": encoded}}
    patched = admin.patch(f"{COLLECTION}/{name}/status", patch).expect(200)
    assert patched["status"] == {**approved["status"], "certificate": encoded}


def test_certificate_can_be_set_without_an_approval(admin: RawClient, certificate: bytes, name: str) -> None:
    created = admin.post(COLLECTION, signing_request(name)).expect(201)
    answer = admin.put(f"{COLLECTION}/{name}/status", with_certificate(created, certificate))
    assert "certificate" in answer.expect(200)["status"]


@pytest.mark.parametrize("changed", ["text-added", "text-changed", "text-removed"])
def test_text_behind_the_certificate_never_changes(
    admin: RawClient, approved: dict[str, Any], certificate: bytes, name: str, changed: str
) -> None:
    """Whoever may write the field later cannot hand out another CA."""
    before = certificate if changed == "text-added" else certificate + b"text\n"
    stored = admin.put(f"{COLLECTION}/{name}/status", with_certificate(approved, before)).expect(200)
    after = {"text-added": certificate + b"text\n", "text-changed": certificate + b"test\n"}.get(changed, certificate)
    answer = admin.put(f"{COLLECTION}/{name}/status", with_certificate(stored, after))
    assert _FIELD in fields(refused(answer, 422, "Invalid"))


def test_certificate_never_changes(admin: RawClient, approved: dict[str, Any], certificate: bytes, name: str) -> None:
    path = f"{COLLECTION}/{name}/status"
    issued = admin.put(path, with_certificate(approved, certificate)).expect(200)
    changed = admin.put(path, with_certificate(issued, certificate + b"\n"))
    assert fields(refused(changed, 422, "Invalid")) == {_FIELD}
    removed = admin.put(path, {**issued, "status": approved["status"]})
    assert fields(refused(removed, 422, "Invalid")) == {_FIELD}
    assert admin.get(f"{COLLECTION}/{name}").expect(200) == issued


def test_approval_write_keeps_the_certificate(
    admin: RawClient, approved: dict[str, Any], certificate: bytes, name: str
) -> None:
    issued = admin.put(f"{COLLECTION}/{name}/status", with_certificate(approved, certificate)).expect(200)
    answer = admin.put(f"{COLLECTION}/{name}/approval", {**issued, "status": approved["status"]})
    assert answer.expect(200)["status"] == issued["status"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{chain}", id="two-certificates"),
        pytest.param("comment\n{certificate}", id="text-before"),
        pytest.param("{certificate}comment\n", id="text-behind"),
        pytest.param("{certificate}\n\n{certificate}\n", id="empty-lines"),
        pytest.param("{certificate}{access}", id="node-access"),
        pytest.param("{certificate}node-attestation statement: {{}}\n{access}", id="statement-and-node-access"),
        pytest.param("{certificate}{large}", id="60-KiB-behind"),
        pytest.param("{certificate}\u00e9\u0000\n", id="other-characters"),
        pytest.param("{certificate} -----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n", id="indented"),
        pytest.param("{certificate}-----BEGIN PRIVATE KEY-----\nAA==\n", id="without-an-end"),
    ],
)
def test_certificate_text_is_accepted_and_kept_verbatim(
    admin: RawClient, approved: dict[str, Any], certificate: bytes, name: str, text: str
) -> None:
    pem = certificate.decode()
    access = text_of(ssh_certificate(public_key_of(private_key("ed25519")))).decode()
    content = text.format(chain=pem + pem, certificate=pem, access=access, large="x" * 60 * 1024).encode()
    answer = admin.put(f"{COLLECTION}/{name}/status", with_certificate(approved, content))
    assert base64.b64decode(answer.expect(200)["status"]["certificate"]) == content


@pytest.mark.parametrize("kind", ["text", "label", "der", "key-behind", "headers", "no-der"])
def test_certificate_of_another_form_is_refused(
    admin: RawClient, approved: dict[str, Any], certificate: bytes, name: str, kind: str
) -> None:
    der = base64.b64decode(b"".join(certificate.strip().splitlines()[1:-1]))
    content = {
        "text": b"no PEM at all",
        "label": pem_block("X509 CERTIFICATE", der),
        "der": der,
        "key-behind": certificate + pem_block("PRIVATE KEY", b"x"),
        "headers": certificate.replace(b"CERTIFICATE-----\n", b"CERTIFICATE-----\nA: b\n\n", 1),
        "no-der": pem_block("CERTIFICATE", b"no DER"),
    }[kind]
    answer = admin.put(f"{COLLECTION}/{name}/status", with_certificate(approved, content))
    assert _FIELD in {field.partition("[")[0] for field in fields(refused(answer, 422, "Invalid"))}


def test_certificate_that_is_no_base64_is_a_bad_request(admin: RawClient, approved: dict[str, Any], name: str) -> None:
    broken = {**approved, "status": {**approved["status"], "certificate": "*"}}
    refused(admin.put(f"{COLLECTION}/{name}/status", broken), 400, "BadRequest")
