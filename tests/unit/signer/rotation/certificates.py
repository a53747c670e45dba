"""The CAs of one rotation with their keys, and the objects that hold them."""

from __future__ import annotations

import base64
from functools import cache
from typing import Any, Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from signer.kube.errors import NotFound
from signer.model.cluster import CLUSTER_NAME_LABEL, ClusterKey
from signer.model.seal import ControllerKeys
from signer.rotation.authorities import AuthorityKind, Role
from signer.rotation.bundles import reference_of, reference_of_key
from signer.rotation.secrets import Pair, pair_manifest
from tests.unit.signer.authority.chains import CLIENT, Authority, leaf, of_cluster_api, successor
from tests.unit.signer.authority.support import Made, ec_key, pem_key
from tests.unit.signer.builders import cluster_view

KEY: Final = ClusterKey("tenant", "blue")
CLUSTER: Final = cluster_view(key=KEY, uid="cluster-uid")
KEYS: Final = ControllerKeys(b"k" * 32)
CLIENT_KEY: Final = ec_key(60)


@cache
def authority(role: Role) -> Authority:
    """The old CA, as Cluster API makes it, and the new one, as the product makes it."""
    return of_cluster_api(31) if role is Role.OLD else successor(authority(Role.OLD))


@cache
def third() -> Authority:
    """A CA that belongs to nothing here."""
    return of_cluster_api(33)


def key_pem(one: Authority) -> bytes:
    return pem_key(one.signer.key, PrivateFormat.TraditionalOpenSSL)


def pair_of(one: Authority) -> Pair:
    return Pair(reference_of(one.certificate), one.pem, key_pem(one))


def service_account_pair(number: int = 61) -> Pair:
    key = ec_key(number).public_key()
    information = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return Pair(reference_of_key(information), pem, pem_key(ec_key(number)))


def secret(suffix: str, data: dict[str, bytes]) -> dict[str, Any]:
    """A Secret of the cluster, as an API server returns it."""
    return {
        "metadata": {
            "name": f"{KEY.name}-{suffix}",
            "namespace": KEY.namespace,
            "resourceVersion": "1",
            "labels": {CLUSTER_NAME_LABEL: KEY.name},
        },
        "data": {name: base64.b64encode(value).decode("ascii") for name, value in data.items()},
    }


def pair_secret(one: Authority, *also: Authority, suffix: str = AuthorityKind.CLUSTER.value) -> dict[str, Any]:
    """A Secret with a pair, and further certificates behind it."""
    return secret(suffix, {"tls.crt": b"".join(each.pem for each in (one, *also)), "tls.key": key_pem(one)})


def kept(suffix: str, pair: Pair, keys: ControllerKeys = KEYS) -> dict[str, Any]:
    """The Secret in which the rotation keeps a pair."""
    return pair_manifest(f"{KEY.name}-{suffix}", pair, CLUSTER, "cluster.x-k8s.io/v1beta2", keys)


def administrator(issuer: Authority, **options: Any) -> Made:
    """The client certificate of a kubeconfig."""
    return leaf(issuer, options.pop("purpose", CLIENT), key=CLIENT_KEY, **options)


def common_name(certificate: x509.Certificate) -> str:
    return str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def kubeconfig_document(trusted: bytes, client: Made | None = None, **user: Any) -> dict[str, Any]:
    """As Cluster API writes it; with a token if there is no client certificate."""
    own: dict[str, Any] = {"token": "secret"}
    if client is not None:
        own = {"client-certificate-data": encoded(client.pem), "client-key-data": encoded(pem_key(CLIENT_KEY))}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "blue",
                "cluster": {"server": "https://10.0.0.1:6443", "certificate-authority-data": encoded(trusted)},
            }
        ],
        "contexts": [{"name": "blue-admin@blue", "context": {"cluster": "blue", "user": "blue-admin"}}],
        "current-context": "blue-admin@blue",
        "users": [{"name": "blue-admin", "user": {**own, **user}}],
    }


def as_yaml(document: Any) -> bytes:
    return yaml.safe_dump(document).encode("utf-8")


class Objects:
    """An API server with these objects, by path."""

    def __init__(self, *secrets: dict[str, Any]) -> None:
        self.by_path: dict[str, dict[str, Any]] = {}
        self.failures: dict[str, Exception] = {}
        for one in secrets:
            self.put(one)

    def put(self, one: dict[str, Any]) -> None:
        metadata = one["metadata"]
        self.by_path[f"/api/v1/namespaces/{metadata['namespace']}/secrets/{metadata['name']}"] = one

    async def get(self, path: str) -> dict[str, Any]:
        if path in self.failures:
            raise self.failures[path]
        if path not in self.by_path:
            raise NotFound(path)
        return self.by_path[path]
