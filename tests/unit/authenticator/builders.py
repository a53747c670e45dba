"""Keys, certificates, kubeconfigs and attempts that the tests of the node's program share."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import settings

from attestors.wire.certificate_request import node_subject
from authenticator.model.attempt import Pause, PendingRequest, Step, Subject
from authenticator.model.cluster import BearerToken, Bootstrap, Cluster
from authenticator.model.failures import ExitCode
from authenticator.model.kubeconfig import MAXIMUM_EXEC_INFO_BYTES, exec_info_bytes
from authenticator.model.pair import Pair, parse_pair

NODE: Final = "worker-1"
NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SERVER: Final = "https://api.example:6443"
TOKEN: Final = "abcdef.0123456789abcdef"
PROVIDER_ID: Final = "test:///worker-1"
MACHINE_KEY: Final = base64.b64encode(bytes(range(32))).decode("ascii")
SETTINGS: Final = {"provider-id": PROVIDER_ID, "machine-key": MACHINE_KEY}
"""Of the keyed-mac attestor's agent plugin."""
CLIENT: Final = ExtendedKeyUsageOID.CLIENT_AUTH
SERVING: Final = ExtendedKeyUsageOID.SERVER_AUTH
V1: Final = "client.authentication.k8s.io/v1"
V1BETA1: Final = "client.authentication.k8s.io/v1beta1"
SWIFT: Final = settings(deadline=None, max_examples=50)
"""For property tests whose examples take a millisecond and more."""


@functools.cache
def _key(_number: int) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def private_key(number: int = 0) -> ec.EllipticCurvePrivateKey:
    """One key per number, for all tests."""
    return _key(number)


def key_pem(number: int = 0) -> str:
    """The same key, PKCS#8."""
    return _key(number).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")


def secret_line(key: str) -> str:
    """A line that nothing but the key has: what must not be seen anywhere."""
    return key.splitlines()[2]


def certificate(
    *,
    key: int = 0,
    subject: x509.Name | None = None,
    usages: Sequence[x509.ObjectIdentifier] = (CLIENT,),
    not_before: datetime = NOW - timedelta(days=1),
    not_after: datetime = NOW + timedelta(days=9),
    names: Sequence[x509.GeneralName] = (),
    serial_number: int = 4711,
    issuer: x509.Name | None = None,
) -> x509.Certificate:
    """A node's certificate from a CA of its own."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject if subject is not None else node_subject(NODE))
        .issuer_name(issuer or x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")]))
        .public_key(private_key(key).public_key())
        .serial_number(serial_number)
        .not_valid_before(not_before)
        .not_valid_after(not_after)
    )
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(private_key(99), SHA256())


def pem_of(*certificates: x509.Certificate) -> str:
    """PEM, one behind the other."""
    return "".join(one.public_bytes(Encoding.PEM).decode("ascii") for one in certificates)


def pair(*, key: int = 0, **changes: Any) -> Pair:
    """A certificate and its key."""
    return parse_pair(pem_of(certificate(key=key, **changes)) + key_pem(key))


def pair_with_left(now: datetime, left: timedelta, *, life: timedelta = timedelta(days=10), **changes: Any) -> Pair:
    """A pair that has so much of its life left at ``now``."""
    return pair(not_before=now + left - life, not_after=now + left, **changes)


def authority(number: int = 0) -> str:
    """A cluster's CA certificate, PEM."""
    return _authority(number)


@functools.cache
def _authority(number: int) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    key = private_key(100 + number)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    return pem_of(made)


def encoded(text: str) -> str:
    """Base64, as kubeconfigs hold data inline."""
    return base64.b64encode(text.encode("ascii")).decode("ascii")


def cluster(number: int = 0, **changes: Any) -> Cluster:
    """A workload cluster."""
    return Cluster(**{"server": SERVER, "certificate_authority": authority(number), **changes})


def cluster_with_authorities(number: int, **changes: Any) -> Cluster:
    """A workload cluster with so many CA certificates."""
    return cluster(server="https://192.0.2.1:6443", certificate_authority=authority() * number, **changes)


@functools.cache
def most_authorities(name: str = "") -> int:
    """How many CA certificates client-go can tell a plugin of."""

    def fit(number: int) -> bool:
        found = exec_info_bytes(cluster_with_authorities(number, tls_server_name=name), V1)
        return found <= MAXIMUM_EXEC_INFO_BYTES

    return next(number for number in range(180, 250) if not fit(number + 1))


def bootstrap(token: str = TOKEN, number: int = 0) -> Bootstrap:
    """What a bootstrap kubeconfig says."""
    return Bootstrap(cluster(number), BearerToken(token))


def kubeconfig(
    *, user: Mapping[str, Any] | None = None, target: Mapping[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """A bootstrap kubeconfig as kubeadm writes it, as a document."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "kubernetes",
                "cluster": target
                if target is not None
                else {"server": SERVER, "certificate-authority-data": encoded(authority())},
            }
        ],
        "users": [{"name": "tls-bootstrap-token-user", "user": user if user is not None else {"token": TOKEN}}],
        "contexts": [
            {"name": "bootstrap", "context": {"cluster": "kubernetes", "user": "tls-bootstrap-token-user"}},
        ],
        "current-context": "bootstrap",
        "preferences": {},
        **changes,
    }


def as_yaml(document: object) -> bytes:
    """The document's text."""
    return yaml.safe_dump(document).encode("utf-8")


SUBJECT: Final = Subject("keyed-mac", NODE, PROVIDER_ID, "sha256:" + "0f" * 32)


def pending(**changes: Any) -> PendingRequest:
    """A request that is under way."""
    return PendingRequest(
        **{
            "subject": SUBJECT,
            "key": key_pem(7),
            "step": Step.FIRST,
            "evidence_version": "v1",
            "tried_versions": ("v1",),
            "name": "node-attestation-0123456789",
            "request": "cGxhbnRlZCByZXF1ZXN0",
            **changes,
        }
    )


def pause(**changes: Any) -> Pause:
    """A refusal a moment ago, of a renewal."""
    now = int(NOW.timestamp())
    return Pause(
        **{
            "until": now + 60,
            "failures": 1,
            "exit_code": ExitCode.DENIED,
            "message": "no Machine has this provider ID",
            "credential": "",
            **changes,
        }
    )


def exec_info(api_version: str = V1, **spec: Any) -> str:
    """What client-go hands to its plugins."""
    return json.dumps({"kind": "ExecCredential", "apiVersion": api_version, "spec": {"interactive": False, **spec}})
