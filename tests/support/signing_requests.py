"""CertificateSigningRequest objects and the PKCS#10 requests in them."""

from __future__ import annotations

import base64
import functools
from collections.abc import Sequence
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.certificates import general_name

COLLECTION: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CLIENT_SIGNER: Final = "cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm"
BUILTIN_CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
BUILTIN_SERVING_SIGNER: Final = "kubernetes.io/kubelet-serving"
CLIENT_USAGES: Final = ("digital signature", "client auth")


@functools.cache
def shared_key() -> ec.EllipticCurvePrivateKey:
    """One P-256 key for requests whose key does not matter."""
    return ec.generate_private_key(ec.SECP256R1())


def request_der(
    common_name: str,
    organizations: Sequence[str] = ("system:nodes",),
    *,
    key: ec.EllipticCurvePrivateKey | None = None,
    alternative_names: Sequence[str] = (),
) -> bytes:
    """A signed PKCS#10 request; ``alternative_names`` are DNS names and IP addresses."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations]
    attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    if alternative_names:
        names = x509.SubjectAlternativeName([general_name(name) for name in alternative_names])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(key or shared_key(), hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def request_pem(
    common_name: str = "system:node:n1",
    organizations: Sequence[str] = ("system:nodes",),
    *,
    key: ec.EllipticCurvePrivateKey | None = None,
    alternative_names: Sequence[str] = (),
) -> bytes:
    """A signed PKCS#10 request in its PEM block."""
    der = request_der(common_name, organizations, key=key, alternative_names=alternative_names)
    return pem_block("CERTIFICATE REQUEST", der)


def pem_block(label: str, content: bytes) -> bytes:
    """A PEM block (RFC 7468) of any label and content."""
    encoded = base64.b64encode(content).decode()
    lines = [encoded[start : start + 64] for start in range(0, len(encoded), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""]).encode()


def signing_request(
    name: str,
    request: bytes | None = None,
    *,
    signer: str = CLIENT_SIGNER,
    usages: Sequence[str] = CLIENT_USAGES,
    **spec: Any,
) -> dict[str, Any]:
    """A CertificateSigningRequest; ``spec`` adds fields to its spec."""
    content = request_pem() if request is None else request
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(content).decode(),
            "signerName": signer,
            "usages": list(usages),
            **spec,
        },
    }


def condition(kind: str, status: str = "True", reason: str = "Conformance", message: str = "tried") -> dict[str, str]:
    """A condition of a CertificateSigningRequest."""
    return {"type": kind, "status": status, "reason": reason, "message": message}


def with_conditions(request: dict[str, Any], *conditions: dict[str, str]) -> dict[str, Any]:
    """The same CertificateSigningRequest with these conditions added."""
    status = request.get("status", {})
    return {**request, "status": {**status, "conditions": [*status.get("conditions", []), *conditions]}}


def with_certificate(request: dict[str, Any], certificate: bytes) -> dict[str, Any]:
    """The same CertificateSigningRequest with a certificate in its status."""
    encoded = base64.b64encode(certificate).decode()
    return {**request, "status": {**request.get("status", {}), "certificate": encoded}}
