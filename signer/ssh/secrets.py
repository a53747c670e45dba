"""The Secrets of a cluster's two SSH authorities, as values: made, sealed, and read only with their seal. Pure.

A tenant may write Secrets in the Cluster's namespace, and must not be able to choose an authority. So a seal by the
controller key covers place, purpose, public keys, time of creation, recorded trust and the state of the rotation. Names
and data keys are those of :mod:`signer.authority.ssh.secret`: they hold the authority that signs. A second one has the
same data keys with a prefix, and is trusted and signs nothing:

``next.``    from the start of a rotation until it signs
``former.``  from then on, until nobody needs it
"""

from __future__ import annotations

import base64
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

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
from signer.rotation.operations import NeverRotated
from signer.ssh.available import Reason
from signer.ssh.rotation_record import AuthorityRotation, parse_state, state_text

SEAL_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/ssh-authority-seal"
CREATED_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/ssh-authority-created-at"
"""``metadata.creationTimestamp`` changes when ``clusterctl move`` creates the Secret again."""
TRUST_VERSION_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/ssh-trust-version"
TRUST_DIGEST_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/ssh-trust-digest"
ROTATION_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/ssh-authority-rotation"
OTHER_CREATED_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/ssh-other-authority-created-at"
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


class Role(enum.Enum):
    """Of the authority that signs nothing; the value is the prefix of its data keys."""

    NEXT = "next."
    """It has signed nothing."""
    FORMER = "former."
    """It has signed."""


@dataclass(frozen=True, slots=True)
class OtherAuthority:
    """The second one of a Secret."""

    role: Role
    authority: Authority = field(repr=False)
    created_at: datetime


@dataclass(frozen=True, slots=True)
class NoOther:
    """The Secret has one authority."""


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
    other: OtherAuthority | NoOther = NoOther()
    rotation: AuthorityRotation | NeverRotated = field(default_factory=NeverRotated)

    @property
    def trusted(self) -> tuple[Authority, ...]:
        """Each authority that counts; that which signs comes first."""
        return (self.authority, self.other.authority) if isinstance(self.other, OtherAuthority) else (self.authority,)


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
        "data": _pair("", private_key),
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
    roles = _roles_in(manifest)
    if len(roles) > 1:
        return Unusable(Reason.MALFORMED, "it has more than two authorities")
    try:
        authority = _authority_in(manifest, purpose, "")
        second = [(role, _authority_in(manifest, purpose, role.value)) for role in roles]
    except SSHAuthorityRefused as error:
        return Unusable(Reason.MALFORMED, str(error))
    line = key_line(authority.public_key)
    seals, seal = Seals(keys, KeyUse.SSH_AUTHORITY), text_of(_annotations(manifest), SEAL_ANNOTATION)
    verified = seals.verify(seal, lambda: _Sealed.of(manifest, key, purpose, line).content())
    match verified:
        case Authentic(generation):
            return _held(purpose, authority, second, manifest, generation)
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


# Changes of a rotation: each is one write, at exactly the version that was read


@dataclass(frozen=True, slots=True)
class AddNext:
    """Put a new authority beside that which signs."""

    rotation: AuthorityRotation


@dataclass(frozen=True, slots=True)
class Swap:
    """The second authority signs from now on, and that which did is the second."""

    rotation: AuthorityRotation


@dataclass(frozen=True, slots=True)
class DropOther:
    """Delete the second authority's key. Nobody trusts it any more."""

    rotation: AuthorityRotation


@dataclass(frozen=True, slots=True)
class ReplaceAll:
    """Delete every key, and have a new authority sign."""

    rotation: AuthorityRotation


@dataclass(frozen=True, slots=True)
class Record:
    """Write another state, and leave the keys."""

    rotation: AuthorityRotation


Change: TypeAlias = AddNext | Swap | DropOther | ReplaceAll | Record


def changed(
    held: HeldAuthority,
    change: Change,
    key: ClusterKey,
    keys: ControllerKeys,
    now: datetime,
    fresh: Callable[[], AuthorityPrivateKey],
) -> JsonObject:
    """The Secret after the change, sealed. ``fresh`` makes the key of a new authority."""
    data, found = dict(mapping_of(held.manifest, "data")), _annotations(held.manifest)
    match change:
        case AddNext():
            data |= _pair(Role.NEXT.value, fresh())
            found[OTHER_CREATED_ANNOTATION] = format_time(now)
        case Swap():
            assert isinstance(held.other, OtherAuthority)
            signs, second = _fields(data, ""), _fields(data, held.other.role.value)
            data = _prefixed("", second) | _prefixed(Role.FORMER.value, signs)
            found[CREATED_ANNOTATION], found[OTHER_CREATED_ANNOTATION] = (
                found[OTHER_CREATED_ANNOTATION],
                found[CREATED_ANNOTATION],
            )
        case DropOther():
            data = _prefixed("", _fields(data, ""))
            found.pop(OTHER_CREATED_ANNOTATION, None)
        case ReplaceAll():
            data = _pair("", fresh())
            found.pop(OTHER_CREATED_ANNOTATION, None)
            found[CREATED_ANNOTATION] = format_time(now)
        case Record():
            pass
    found[ROTATION_ANNOTATION] = state_text(change.rotation)
    manifest = {**held.manifest, "data": data}
    manifest["metadata"] = {**mapping_of(manifest, "metadata"), "annotations": found}
    line = base64.b64decode(data[PUBLIC_KEY_FIELD]).decode("ascii")
    return _sealed(manifest, _Sealed.of(manifest, key, held.purpose, line), keys)


def _pair(prefix: str, private_key: AuthorityPrivateKey) -> dict[str, str]:
    secret = private_key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    line = key_line(public_key_of(private_key))
    return {f"{prefix}{PRIVATE_KEY_FIELD}": _encoded(secret), f"{prefix}{PUBLIC_KEY_FIELD}": _encoded(line.encode())}


def _fields(data: JsonObject, prefix: str) -> dict[str, Any]:
    """The two fields of one authority, without their prefix; those that are there."""
    names = (PRIVATE_KEY_FIELD, PUBLIC_KEY_FIELD)
    return {name: data[f"{prefix}{name}"] for name in names if f"{prefix}{name}" in data}


def _prefixed(prefix: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix}{name}": value for name, value in fields.items()}


def _roles_in(manifest: JsonObject) -> tuple[Role, ...]:
    data = mapping_of(manifest, "data")
    return tuple(role for role in Role if _fields(dict(data), role.value))


def _authority_in(manifest: JsonObject, purpose: AuthorityPurpose, prefix: str) -> Authority:
    alone = {**manifest, "data": _fields(dict(mapping_of(manifest, "data")), prefix)}
    return user_authority_in(alone) if purpose is AuthorityPurpose.USER else host_authority_in(alone)


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
    second: str
    second_created_at: str
    rotation: str

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
            joined(*(f"{role.value}{_public_key_text(manifest, role)}" for role in _roles_in(manifest))),
            text_of(found, OTHER_CREATED_ANNOTATION),
            text_of(found, ROTATION_ANNOTATION),
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
            self.second,
            self.second_created_at,
            self.rotation,
        )


def _public_key_text(manifest: JsonObject, role: Role) -> str:
    return text_of(mapping_of(manifest, "data"), f"{role.value}{PUBLIC_KEY_FIELD}")


def _held(
    purpose: AuthorityPurpose,
    authority: Authority,
    second: list[tuple[Role, Authority]],
    manifest: JsonObject,
    generation: Generation,
) -> HeldAuthority | Unusable:
    found = _annotations(manifest)
    version, state = text_of(found, TRUST_VERSION_ANNOTATION), text_of(found, ROTATION_ANNOTATION)
    other: OtherAuthority | NoOther = NoOther()
    try:
        rotation = parse_state(state) if state else NeverRotated()
        for role, one in second:
            other = OtherAuthority(role, one, parse_time(text_of(found, OTHER_CREATED_ANNOTATION)))
        created_at = parse_time(text_of(found, CREATED_ANNOTATION))
        trust = RecordedTrust(int(version), text_of(found, TRUST_DIGEST_ANNOTATION)) if version else NotRecorded()
    except ValueError as error:  # sealed, so only another release can have written it
        return Unusable(Reason.MALFORMED, f"its annotations cannot be read: {error}")
    return HeldAuthority(purpose, authority, created_at, trust, generation, manifest, other, rotation)


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
