"""The Secrets of a cluster's two SSH authorities, as values: made, sealed, and read only with their seal. Pure.

A tenant may write Secrets in the Cluster's namespace, and must not be able to choose an authority. So a seal by the
controller key covers place, purpose, public key, time of creation and recorded trust. Names and data keys are those of
:mod:`signer.authority.ssh.secret`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from attestors.wire.names import ANNOTATION_PREFIX
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from signer.authority.ssh.authorities import HostAuthority, UserAuthority
from signer.authority.ssh.errors import SSHAuthorityRefused
from signer.authority.ssh.private_key import AuthorityPrivateKey
from signer.authority.ssh.secret import (
    PRIVATE_KEY_FIELD,
    PUBLIC_KEY_FIELD,
    AuthorityPurpose,
    host_authority_in,
    user_authority_in,
)
from signer.kube.client import JsonObject
from signer.kube.resources import SECRETS
from signer.model.cluster import CLUSTER_NAME_LABEL, ClusterKey, ClusterView
from signer.model.fields import format_time, mapping_of, parse_time, text_of
from signer.model.seal import Authentic, ControllerKeys, Fault, Generation, KeyUse, Seals, Unauthentic, joined
from signer.ssh.available import Reason

SEAL_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/ssh-authority-seal"
CREATED_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/ssh-authority-created-at"
"""``metadata.creationTimestamp`` changes when ``clusterctl move`` creates the Secret again."""
TRUST_VERSION_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/ssh-trust-version"
TRUST_DIGEST_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/ssh-trust-digest"
CLUSTER_API_TYPE: Final = "cluster.x-k8s.io/secret"

Authority: TypeAlias = UserAuthority | HostAuthority


@dataclass(frozen=True, slots=True)
class RecordedTrust:
    """The number of what nodes and clients should trust, and its digest. The Secret of the user authority keeps it."""

    version: int
    digest: str


@dataclass(frozen=True, slots=True)
class NotRecorded:
    """The Secret keeps no trust."""


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no such Secret."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """There is one, and nothing may be signed with it."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class HeldAuthority:
    """An authority that this controller made, as its seal proves."""

    purpose: AuthorityPurpose
    authority: Authority = field(repr=False)
    created_at: datetime
    trust: RecordedTrust | NotRecorded
    sealed_with: Generation = Generation.CURRENT
    manifest: JsonObject = field(default_factory=dict, repr=False)
    """The object, to be replaced at exactly this version."""


ReadAuthority: TypeAlias = HeldAuthority | Absent | Unusable


def secret_name(key: ClusterKey, purpose: AuthorityPurpose) -> str:
    """The name of the Secret."""
    return f"{key.name}-{purpose.value}"


def authority_manifest(
    purpose: AuthorityPurpose,
    private_key: AuthorityPrivateKey,
    cluster: ClusterView,
    owner_version: str,
    keys: ControllerKeys,
    now: datetime,
) -> JsonObject:
    """The Secret of a new authority, for its creation. ``clusterctl move`` takes it along with the Cluster."""
    name, line = secret_name(cluster.key, purpose), key_line(public_key_of(private_key))
    secret = private_key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    manifest: JsonObject = {
        "apiVersion": SECRETS.api_version,
        "kind": "Secret",
        "type": CLUSTER_API_TYPE,
        "metadata": {
            "name": name,
            "namespace": cluster.key.namespace,
            "labels": {CLUSTER_NAME_LABEL: cluster.key.name},
            "annotations": {CREATED_ANNOTATION: format_time(now)},
            "ownerReferences": [
                {"apiVersion": owner_version, "kind": "Cluster", "name": cluster.key.name, "uid": cluster.uid}
            ],
        },
        "data": {PRIVATE_KEY_FIELD: _encoded(secret), PUBLIC_KEY_FIELD: _encoded(line.encode("ascii"))},
    }
    return _sealed(manifest, _Sealed.of(manifest, cluster.key, purpose, line), keys)


def read_authority(
    purpose: AuthorityPurpose, key: ClusterKey, manifest: JsonObject, keys: ControllerKeys
) -> ReadAuthority:
    """Read the Secret of an authority; ``manifest`` is empty if there is none. What is not sealed is unusable."""
    if not manifest:
        return Absent()
    if not mapping_of(manifest, "data").get(PRIVATE_KEY_FIELD):
        return Unusable(Reason.KEY_MISSING, f"it has no {PRIVATE_KEY_FIELD}")
    try:
        user = purpose is AuthorityPurpose.USER
        authority = user_authority_in(manifest) if user else host_authority_in(manifest)
    except SSHAuthorityRefused as error:
        return Unusable(Reason.MALFORMED, str(error))
    line = key_line(authority.public_key)
    seals, seal = Seals(keys, KeyUse.SSH_AUTHORITY), text_of(_annotations(manifest), SEAL_ANNOTATION)
    verified = seals.verify(seal, lambda: _Sealed.of(manifest, key, purpose, line).content())
    match verified:
        case Authentic(generation):
            return _held(purpose, authority, manifest, generation)
        case Unauthentic(Fault.WRONG_SEAL):
            other = AuthorityPurpose.HOST if purpose is AuthorityPurpose.USER else AuthorityPurpose.USER
            if isinstance(seals.verify(seal, lambda: _Sealed.of(manifest, key, other, line).content()), Authentic):
                return Unusable(
                    Reason.SWAPPED_AUTHORITY, f"it holds the authority of {secret_name(key, other)}: put each back"
                )
            return Unusable(Reason.EDITED_AUTHORITY, f"somebody changed it: {Fault.WRONG_SEAL.value}")
        case Unauthentic(fault):
            return Unusable(Reason.FOREIGN_AUTHORITY, f"this controller did not put it there: {fault.value}")


def sealed_anew(held: HeldAuthority, key: ClusterKey, keys: ControllerKeys) -> JsonObject:
    """The Secret of that authority with a seal by the current key. Its former seal was verified."""
    line = key_line(held.authority.public_key)
    return _sealed(held.manifest, _Sealed.of(held.manifest, key, held.purpose, line), keys)


def with_trust(held: HeldAuthority, trust: RecordedTrust, key: ClusterKey, keys: ControllerKeys) -> JsonObject:
    """The Secret of that authority with the trust, sealed."""
    recorded = {TRUST_VERSION_ANNOTATION: str(trust.version), TRUST_DIGEST_ANNOTATION: trust.digest}
    manifest = _annotated(held.manifest, recorded)
    return _sealed(manifest, _Sealed.of(manifest, key, held.purpose, key_line(held.authority.public_key)), keys)


@dataclass(frozen=True, slots=True)
class _Sealed:
    """What a seal covers."""

    namespace: str
    name: str
    purpose: str
    public_key: str
    created_at: str
    trust_version: str
    trust_digest: str

    @classmethod
    def of(cls, manifest: JsonObject, key: ClusterKey, purpose: AuthorityPurpose, line: str) -> _Sealed:
        found = _annotations(manifest)
        return cls(
            key.namespace,
            secret_name(key, purpose),
            purpose.value,
            line,
            text_of(found, CREATED_ANNOTATION),
            text_of(found, TRUST_VERSION_ANNOTATION),
            text_of(found, TRUST_DIGEST_ANNOTATION),
        )

    def content(self) -> str:
        return joined(
            self.namespace,
            self.name,
            self.purpose,
            self.public_key,
            self.created_at,
            self.trust_version,
            self.trust_digest,
        )


def _held(
    purpose: AuthorityPurpose, authority: Authority, manifest: JsonObject, generation: Generation
) -> HeldAuthority | Unusable:
    found = _annotations(manifest)
    version = text_of(found, TRUST_VERSION_ANNOTATION)
    try:
        created_at = parse_time(text_of(found, CREATED_ANNOTATION))
        trust = RecordedTrust(int(version), text_of(found, TRUST_DIGEST_ANNOTATION)) if version else NotRecorded()
    except ValueError as error:  # sealed, so only another release can have written it
        return Unusable(Reason.MALFORMED, f"its annotations cannot be read: {error}")
    return HeldAuthority(purpose, authority, created_at, trust, generation, manifest)


def _sealed(manifest: JsonObject, content: _Sealed, keys: ControllerKeys) -> JsonObject:
    seal = Seals(keys, KeyUse.SSH_AUTHORITY).seal(content.content())
    return _annotated(manifest, {SEAL_ANNOTATION: seal})


def _annotated(manifest: JsonObject, annotations: dict[str, str]) -> JsonObject:
    metadata = mapping_of(manifest, "metadata")
    return {**manifest, "metadata": {**metadata, "annotations": {**_annotations(manifest), **annotations}}}


def _annotations(manifest: JsonObject) -> JsonObject:
    return dict(mapping_of(mapping_of(manifest, "metadata"), "annotations"))


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")
