"""CertificateSigningRequests: the API server's own rules, which are far more permissive than any signer's.

Follows Kubernetes ``pkg/registry/certificates/certificates``, ``pkg/apis/certificates/validation`` and the admission
plugins CertificateApproval, CertificateSigning, CertificateSubjectRestriction and NodeRestriction.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from . import gopem, metadata
from .csr_conditions import APPROVAL_TYPES, fill_timestamps, validate_conditions
from .signer_names import validate_signer_name
from .status import (
    FieldError,
    Target,
    bad_request,
    duplicate,
    forbidden,
    forbidden_field,
    invalid_value,
    required,
    unsupported,
)
from .strategy import Attributes, Context, Strategy, keep

KUBELET_SIGNERS = ("kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving")
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
MINIMUM_EXPIRATION_SECONDS = 600
KEY_USAGES = (
    "signing",
    "digital signature",
    "content commitment",
    "key encipherment",
    "key agreement",
    "data encipherment",
    "cert sign",
    "crl sign",
    "encipher only",
    "decipher only",
    "any",
    "server auth",
    "client auth",
    "code signing",
    "email protection",
    "s/mime",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "timestamping",
    "ocsp signing",
    "microsoft sgc",
    "netscape sgc",
)
_EXPIRATION_SINCE = (1, 22)
_NODE_COMMON_NAME_SINCE = (1, 31)


def _bytes(value: dict[str, Any], part: str, name: str) -> bytes:
    text = (value.get(part) or {}).get(name)
    if not text:
        return b""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_request(f"{part}.{name}: illegal base64 data") from error


def parse_request(request: bytes) -> x509.CertificateSigningRequest:
    """The PKCS#10 request of the first PEM block, its signature verified. Raises ValueError with the server's text.

    Whatever follows the block is neither read nor covered by the signature.
    """
    block = gopem.first_block(request)
    if block is None or block.label != b"CERTIFICATE REQUEST":
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    try:
        parsed = x509.load_der_x509_csr(block.content)
        good = parsed.is_signature_valid
    except (ValueError, UnsupportedAlgorithm, TypeError) as error:
        raise ValueError("asn1: structure error") from error
    if not good:
        raise ValueError("x509: signature verification failed")
    return parsed


def validate_certificate(certificate: bytes) -> str:
    """Empty, or why this is no chain of certificates in PEM (``validateCertificate``)."""
    found = gopem.blocks(certificate)
    for block in found:
        if block.label != b"CERTIFICATE":
            label = block.label.decode(errors="replace")
            return f'only CERTIFICATE PEM blocks are allowed, found "{label}"'
        if block.headers:
            return "no PEM block headers are permitted"
        try:
            x509.load_der_x509_certificate(block.content)
        except ValueError:
            return "x509: malformed certificate"
    return "" if found else "must contain at least one CERTIFICATE PEM block"


def _attribute(subject: x509.Name, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(attribute.value) for attribute in subject.get_attributes_for_oid(oid)]


class CertificateSigningRequests(Strategy):
    """Storage rules of ``certificates.k8s.io/v1``."""

    name_rule = staticmethod(metadata.path_segment)
    fields_supported = frozenset({"metadata.name", "spec.signerName"})

    def fields(self, value: dict[str, Any]) -> Mapping[str, str]:
        return {"metadata.name": value["metadata"]["name"], "spec.signerName": value["spec"].get("signerName", "")}

    def prepare_create(self, value: dict[str, Any], context: Context) -> None:
        spec = value.setdefault("spec", {})
        for name in ("username", "uid", "groups", "extra"):
            spec.pop(name, None)
        spec["username"] = context.user.name
        if context.user.uid:
            spec["uid"] = context.user.uid
        if context.user.groups:
            spec["groups"] = list(context.user.groups)
        if context.user.extra:
            spec["extra"] = {key: list(values) for key, values in context.user.extra.items()}
        if context.server_version < _EXPIRATION_SINCE:
            spec.pop("expirationSeconds", None)
        value["status"] = {}

    def validate_create(self, value: dict[str, Any], context: Context) -> list[FieldError]:
        spec = value["spec"]
        errors: list[FieldError] = []
        try:
            parse_request(_bytes(value, "spec", "request"))
        except ValueError as error:
            errors.append(invalid_value("spec.request", spec.get("request", ""), str(error)))
        usages = spec.get("usages") or []
        if not usages:
            errors.append(required("spec.usages", "usages must be provided"))
        for index, usage in enumerate(usages):
            if usage not in KEY_USAGES:
                errors.append(unsupported(f"spec.usages[{index}]", usage, KEY_USAGES))
            if usage in usages[:index]:
                errors.append(duplicate(f"spec.usages[{index}]", usage))
        errors += validate_signer_name("spec.signerName", spec.get("signerName", ""))
        seconds = spec.get("expirationSeconds")
        if seconds is not None and seconds < MINIMUM_EXPIRATION_SECONDS:
            text = f"may not specify a duration less than {MINIMUM_EXPIRATION_SECONDS} seconds (10 minutes)"
            errors.append(invalid_value("spec.expirationSeconds", seconds, text))
        return errors

    def admit_create(self, value: dict[str, Any], context: Context) -> None:
        spec = value["spec"]
        signer_name = spec["signerName"]
        if signer_name == CLIENT_SIGNER:
            parsed = parse_request(_bytes(value, "spec", "request"))
            if "system:masters" in _attribute(parsed.subject, x509.NameOID.ORGANIZATION_NAME):
                raise forbidden(
                    _target(value), f"use of {CLIENT_SIGNER} signer with system:masters group is not allowed"
                )
        node = context.user.node_name
        if node and signer_name in KUBELET_SIGNERS and context.server_version >= _NODE_COMMON_NAME_SINCE:
            parsed = parse_request(_bytes(value, "spec", "request"))
            common_names = _attribute(parsed.subject, x509.NameOID.COMMON_NAME)
            # Go keeps the last common name of a subject that has several.
            if not common_names or common_names[-1] != context.user.name:
                text = "can only create a node CSR with CN=" + context.user.name
                raise forbidden(_target(value), text)

    def prepare_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        keep(value, old, "spec")
        if subresource == "":
            keep(value, old, "status")
            return
        status = value.get("status")
        status = value["status"] = dict(status) if status else {}
        before = old.get("status") or {}
        if subresource == "approval":
            keep(status, before, "certificate")
        else:
            _keep_approval(status, before)
        fill_timestamps(status, before)

    def validate_update(
        self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context
    ) -> list[FieldError]:
        status, before = value.get("status") or {}, old.get("status") or {}
        errors = validate_conditions(status, before, approval=subresource == "approval")
        if status.get("certificate") != before.get("certificate"):
            if before.get("certificate"):
                text = "updates may not modify existing certificate content"
                errors.append(forbidden_field("status.certificate", text))
            else:
                shown = "<certificate data>"
                if reason := validate_certificate(_bytes(value, "status", "certificate")):
                    errors.append(invalid_value("status.certificate", shown, reason))
        return errors

    def admit_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        signer_name = old["spec"]["signerName"]
        if subresource == "approval":
            verb = "approve"
        elif subresource == "status" and (value.get("status") or {}) != (old.get("status") or {}):
            verb = "sign"
        else:
            return
        if not signer_allowed(context, verb, signer_name):
            text = f'user not permitted to {verb} requests with signerName "{signer_name}"'
            raise forbidden(_target(value), text)


def signer_allowed(context: Context, verb: str, signer_name: str) -> bool:
    """Whether the user has ``verb`` on this signer, by its name or by all of its domain (``<domain>/*``)."""
    names = (signer_name, signer_name.partition("/")[0] + "/*")
    return any(
        context.authorizer.authorize(
            context.user, Attributes(verb, "certificates.k8s.io", "signers", name=name)
        ).allowed
        for name in names
    )


def _keep_approval(status: dict[str, Any], before: dict[str, Any]) -> None:
    """Through /status the Approved and Denied conditions keep their old content; a changed count is refused later."""
    conditions = list(status.get("conditions") or [])
    for wanted in APPROVAL_TYPES:
        kept = [item for item in before.get("conditions") or [] if item.get("type") == wanted]
        places = [i for i, item in enumerate(conditions) if isinstance(item, dict) and item.get("type") == wanted]
        if len(kept) == len(places):
            for place, item in zip(places, kept, strict=True):
                conditions[place] = item
    if conditions:
        status["conditions"] = conditions


def _target(value: dict[str, Any]) -> Target:
    name = value["metadata"].get("name", "")
    return Target("certificates.k8s.io", "certificatesigningrequests", "CertificateSigningRequest", name)
