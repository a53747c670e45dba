"""The Secrets of a rotation, as values: read from an API server's objects, and made from pairs. Pure.

Bytes stay in :class:`Pair`; facts get references alone.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from attestors.wire.names import ANNOTATION_PREFIX
from signer.authority import CACertificate, CertificateAuthorityUnavailable
from signer.authority.der import PemError, encode_block, read_blocks
from signer.authority.lenient_certificate import CertificateUnreadable, parse_ca_certificate
from signer.authority.private_key import read_private_key
from signer.kube.client import JsonObject
from signer.kube.resources import SECRETS
from signer.model.cluster import CLUSTER_NAME_LABEL, ClusterView
from signer.model.fields import mapping_of, text_of
from signer.model.seal import Authentic, ControllerKeys, Generation, KeyUse, Seals, joined
from signer.rotation.authorities import AuthorityKind, AuthorityReference
from signer.rotation.bundles import public_key_of, reference_of, reference_of_key
from signer.rotation.facts import Absent, Held, HeldCertificate, HeldPair, Unusable

SEAL_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/rotation-pair-seal"
CLUSTER_API_TYPE: Final = "cluster.x-k8s.io/secret"
CERTIFICATE_KEY: Final = "tls.crt"
PRIVATE_KEY: Final = "tls.key"
_MAXIMUM_BYTES: Final = 64 * 1024
_MAXIMUM_BLOCKS: Final = 16


@dataclass(frozen=True, slots=True)
class Pair:
    """One authority with its key, as bytes."""

    reference: AuthorityReference
    certificate: bytes
    """PEM of the certificate, or of the public key, alone."""
    key: bytes = field(repr=False)
    """PEM."""


@dataclass(frozen=True, slots=True)
class NoPair:
    """The Secret has no pair that can be used."""


@dataclass(frozen=True, slots=True)
class ReadSecret:
    """What a Secret holds: facts, the pair that signs, and the version that was read."""

    held: Held
    pair: Pair | NoPair
    manifest: JsonObject = field(default_factory=dict, repr=False)
    """The object, to be replaced at exactly this version. Empty if there is none."""
    sealed_with: Generation = Generation.CURRENT
    """For a Secret that keeps a pair."""


ABSENT: Final = ReadSecret(Absent(), NoPair())


def decoded(manifest: Mapping[str, Any]) -> dict[str, bytes]:
    """The decoded ``data`` of a Secret. Raises ValueError if it is no map of base64 texts."""
    data = manifest.get("data") or {}
    if not isinstance(data, dict):
        raise ValueError("data is no map")
    return {str(key): base64.b64decode(str(value), validate=True) for key, value in data.items()}


def encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    """``data`` of a Secret."""
    return {name: base64.b64encode(value).decode("ascii") for name, value in data.items()}


def read_secret(kind: AuthorityKind, manifest: JsonObject) -> ReadSecret:
    """Read the Secret of an authority, or one that keeps a pair."""
    try:
        data = decoded(manifest)
        blocks = _blocks(kind, data.get(CERTIFICATE_KEY, b""))
    except (ValueError, CertificateUnreadable) as error:
        return ReadSecret(Unusable(f"{CERTIFICATE_KEY} cannot be read: {error}"), NoPair(), manifest)
    references = tuple(reference for reference, _, _ in blocks)
    if not data.get(PRIVATE_KEY):
        alone = HeldCertificate(references[0]) if len(references) == 1 else Unusable(f"{PRIVATE_KEY} is missing")
        return ReadSecret(alone, NoPair(), manifest)
    try:
        own = public_key_of(read_private_key(data[PRIVATE_KEY]))
    except CertificateAuthorityUnavailable as error:
        return ReadSecret(Unusable(str(error)), NoPair(), manifest)
    for reference, key, pem in blocks:
        if key == own:
            return ReadSecret(HeldPair(references, reference), Pair(reference, pem, data[PRIVATE_KEY]), manifest)
    return ReadSecret(Unusable(f"{PRIVATE_KEY} is of no certificate in {CERTIFICATE_KEY}"), NoPair(), manifest)


def _blocks(kind: AuthorityKind, text: bytes) -> list[tuple[AuthorityReference, bytes, bytes]]:
    """Reference, public key and PEM of each block. Raises ValueError or CertificateUnreadable."""
    try:
        found = read_blocks(text, maximum_bytes=_MAXIMUM_BYTES, maximum_blocks=_MAXIMUM_BLOCKS)
    except PemError as error:
        raise ValueError(str(error)) from error
    blocks = []
    for block in found:
        pem = encode_block(block.label, block.content)
        if kind is AuthorityKind.SERVICE_ACCOUNT and block.label == "PUBLIC KEY":
            blocks.append((reference_of_key(block.content), block.content, pem))
            continue
        if block.label != "CERTIFICATE":
            raise ValueError(
                f"a PEM block is no {'PUBLIC KEY' if kind is AuthorityKind.SERVICE_ACCOUNT else 'CERTIFICATE'}"
            )
        certificate = parse_ca_certificate(block.content)
        blocks.append((reference_of(certificate), certificate.subject_public_key_info, pem))
    return blocks


def certificate_in(pair: Pair) -> CACertificate:
    """The pair's CA certificate. Only for kinds that have one."""
    (block,) = read_blocks(pair.certificate, maximum_bytes=_MAXIMUM_BYTES, maximum_blocks=1)
    return parse_ca_certificate(block.content)


# Sealed pairs


def pair_manifest(name: str, pair: Pair, cluster: ClusterView, owner_version: str, keys: ControllerKeys) -> JsonObject:
    """The Secret that keeps a pair. Its seal says that this controller put this authority there.

    A tenant may write Secrets in the Cluster's namespace, and must not be able to choose the next CA.
    """
    return {
        "apiVersion": SECRETS.api_version,
        "kind": "Secret",
        "type": CLUSTER_API_TYPE,
        "metadata": {
            "name": name,
            "namespace": cluster.key.namespace,
            "labels": {CLUSTER_NAME_LABEL: cluster.key.name},
            "annotations": {SEAL_ANNOTATION: _seal(name, cluster.key.namespace, pair.reference, keys)},
            "ownerReferences": [
                {"apiVersion": owner_version, "kind": "Cluster", "name": cluster.key.name, "uid": cluster.uid}
            ],
        },
        "data": {
            CERTIFICATE_KEY: base64.b64encode(pair.certificate).decode("ascii"),
            PRIVATE_KEY: base64.b64encode(pair.key).decode("ascii"),
        },
    }


def published_manifest(suffix: str, cluster: ClusterView, owner_version: str, data: Mapping[str, bytes]) -> JsonObject:
    """Secret ``<cluster>-<suffix>``, of which Machines of the control plane get files, for its creation."""
    return {
        "apiVersion": SECRETS.api_version,
        "kind": "Secret",
        "type": CLUSTER_API_TYPE,
        "metadata": {
            "name": f"{cluster.key.name}-{suffix}",
            "namespace": cluster.key.namespace,
            "labels": {CLUSTER_NAME_LABEL: cluster.key.name},
            "ownerReferences": [
                {"apiVersion": owner_version, "kind": "Cluster", "name": cluster.key.name, "uid": cluster.uid}
            ],
        },
        "data": encoded(data),
    }


def read_kept_pair(kind: AuthorityKind, manifest: JsonObject, keys: ControllerKeys) -> ReadSecret:
    """Read a Secret that keeps a pair. One that this controller did not seal is unusable."""
    read = read_secret(kind, manifest)
    if isinstance(read.held, HeldPair):
        reference = read.held.signs
    elif isinstance(read.held, HeldCertificate):
        reference = read.held.certificate
    else:
        return read
    metadata = mapping_of(manifest, "metadata")
    name, namespace = text_of(metadata, "name"), text_of(metadata, "namespace")
    seal = text_of(mapping_of(metadata, "annotations"), SEAL_ANNOTATION)
    verified = Seals(keys, KeyUse.ROTATION_PAIR).verify(seal, lambda: _content(name, namespace, reference))
    if isinstance(verified, Authentic):
        return replace(read, sealed_with=verified.generation)
    return ReadSecret(Unusable(f"this controller did not put it there: {verified.fault.value}"), NoPair(), manifest)


def sealed_anew(kept: JsonObject, reference: AuthorityReference, keys: ControllerKeys) -> JsonObject:
    """The Secret that keeps that pair, with a seal by the current key. Its former seal was verified."""
    metadata = mapping_of(kept, "metadata")
    seal = _seal(text_of(metadata, "name"), text_of(metadata, "namespace"), reference, keys)
    annotations = {**mapping_of(metadata, "annotations"), SEAL_ANNOTATION: seal}
    return {**kept, "metadata": {**metadata, "annotations": annotations}}


def _seal(name: str, namespace: str, reference: AuthorityReference, keys: ControllerKeys) -> str:
    return Seals(keys, KeyUse.ROTATION_PAIR).seal(_content(name, namespace, reference))


def _content(name: str, namespace: str, reference: AuthorityReference) -> str:
    return joined(namespace, name, reference.digest, reference.public_key_hash)
