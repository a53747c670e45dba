"""The canary that kube-controller-manager signs: made up answers, and every way to get none."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from signer.kube.errors import Cause, Forbidden, NotFound, Unreachable
from signer.rotation.controller_manager import SIGNER, ask_controller_manager
from signer.rotation.facts import CanarySigner, NotObserved
from tests.unit.signer.rotation.servers.support import AUTHORITIES, NEW, OLD, STRANGER

NOW: Final = datetime.now(UTC)

Sign = Callable[[bytes], dict[str, Any]]


def signed(authority: Any, request: bytes, key: Any = None) -> bytes:
    """The client certificate that an authority makes of a request (PEM), for ``key`` instead of the request's own."""
    csr = x509.load_pem_x509_csr(request)
    issuer = x509.load_pem_x509_certificate(authority.certificate_pem)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(csr.subject)
        .issuer_name(issuer.subject)
        .public_key(key or csr.public_key())
        .serial_number(7)
        .not_valid_before(NOW - timedelta(minutes=5))
        .not_valid_after(NOW + timedelta(minutes=10))
        .sign(load_pem_private_key(authority.key_pem, None), hashes.SHA256())  # type: ignore[arg-type]
    )
    return certificate.public_bytes(Encoding.PEM)


def by(authority: Any, **options: Any) -> Sign:
    """A kube-controller-manager that signs by that authority."""
    return lambda request: issued(signed(authority, request, **options))


def issued(certificate: bytes) -> dict[str, Any]:
    return {"certificate": base64.b64encode(certificate).decode()}


class Workload:
    """An API server with a kube-controller-manager behind it, which signs once the CSR is approved."""

    def __init__(self, sign: Sign) -> None:
        self.sign = sign
        self.objects: dict[str, dict[str, Any]] = {}
        self.seen: list[dict[str, Any]] = []
        self.errors: dict[str, Exception] = {}

    def _fail(self, verb: str) -> None:
        if verb in self.errors:
            raise self.errors[verb]

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._fail("create")
        self.seen.append(body)
        self.objects[f"{path}/{body['metadata']['name']}"] = body
        return body

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._fail("replace")
        own = path.removesuffix("/approval")
        assert own != path
        request = base64.b64decode(self.objects[own]["spec"]["request"])
        (condition,) = body["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("Approved", "True")
        status = {**body["status"], **self.sign(request)}
        self.objects[own] = {**body, "status": {**status, "conditions": [condition, *status.get("more", [])]}}
        return body  # signed later

    async def get(self, path: str) -> dict[str, Any]:
        self._fail("get")
        if path not in self.objects:
            raise NotFound(path)
        return self.objects[path]

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> dict[str, Any]:
        self._fail("delete")
        return self.objects.pop(path)


def ask(workload: Workload, seconds: float = 5.0) -> CanarySigner | NotObserved:
    asked = ask_controller_manager(workload, AUTHORITIES, "abcdefgh", now=NOW, deadline_seconds=seconds)
    return asyncio.run(asked)


@pytest.mark.parametrize(
    ("authority", "signer"), [(OLD, CanarySigner.OLD), (NEW, CanarySigner.NEW), (STRANGER, CanarySigner.OTHER)]
)
def test_who_signs(authority: Any, signer: CanarySigner) -> None:
    workload = Workload(by(authority))
    assert ask(workload) is signer
    assert workload.objects == {}, "it is deleted again"


def test_the_canary_is_good_for_nothing() -> None:
    workload = Workload(by(NEW))
    ask(workload)
    ask(workload)
    first, second = workload.seen
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert first["spec"]["signerName"] == SIGNER == "kubernetes.io/kube-apiserver-client"
    assert first["spec"]["usages"] == ["digital signature", "client auth"]
    assert first["spec"]["expirationSeconds"] == 600
    requests = [x509.load_pem_x509_csr(base64.b64decode(one["spec"]["request"])) for one in workload.seen]
    assert requests[0].subject.rfc4514_string() == "CN=node-attestation:ca-canary:abcdefgh"
    assert requests[0].public_key() != requests[1].public_key(), "each has a key of its own"


def test_a_certificate_of_another_key_proves_nothing() -> None:
    """Every node has a client certificate of the new CA, which a hostile API server may put there."""
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    found = ask(Workload(by(NEW, key=key)))
    assert isinstance(found, NotObserved)
    assert "another key" in found.message


def failed(kind: str) -> Sign:
    condition = {"type": kind, "status": "True", "reason": "SignerValidationFailure", "message": "no\nway"}
    return lambda request: {"more": [condition]}


@pytest.mark.parametrize(
    ("sign", "says"),
    [
        (lambda request: {}, "within 0.2 seconds"),
        (lambda request: {"certificate": "%"}, "within 0.2 seconds"),
        (lambda request: {"certificate": "QQ==" * 40_000}, "within 0.2 seconds"),
        (failed("Failed"), "Failed: SignerValidationFailure"),
        (failed("Denied"), "Denied: SignerValidationFailure"),
        (lambda request: issued(b"no certificate"), "cannot be read"),
        (lambda request: issued(b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"), "is not DER"),
    ],
)
def test_no_usable_answer(sign: Sign, says: str) -> None:
    workload = Workload(sign)
    found = ask(workload, 0.2 if "within" in says else 5.0)
    assert isinstance(found, NotObserved)
    assert says in found.message
    assert "\n" not in found.message
    assert workload.objects == {}


@pytest.mark.parametrize("verb", ["create", "replace", "get"])
@pytest.mark.parametrize("error", [Forbidden("no", status=403), Unreachable("timed out", cause=Cause.TIMEOUT)])
def test_errors_of_the_workload_cluster(verb: str, error: Exception) -> None:
    workload = Workload(by(NEW))
    workload.errors[verb] = error
    assert isinstance(ask(workload), NotObserved)
    assert workload.objects == {}


def test_a_canary_that_cannot_be_deleted_still_counts() -> None:
    workload = Workload(by(NEW))
    workload.errors["delete"] = Forbidden("no", status=403)
    assert ask(workload) is CanarySigner.NEW
