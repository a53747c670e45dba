"""A rotation that another controller key sealed: a person confirms its CAs, and the present key seals it.

That is for a cluster that was moved, or restored, without the controller key. The person takes the place of the seal:
record and Secrets are compared with each other, and the person compares them with what the API servers present. It
needs the present controller key, with which its holder could write any record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from signer.kube.calls import Get, Replace
from signer.kube.client import JsonObject
from signer.kube.errors import NotFound
from signer.kube.resources import CERTIFICATE_AUTHORITY_ROTATIONS, SECRETS
from signer.model.authority_suffixes import NODE_CLIENT_CA
from signer.model.cluster import ClusterKey
from signer.model.seal import Authentic, ControllerKeys, Fault, Unauthentic
from signer.rotation.authorities import AuthorityKind, AuthorityReference, NotMade, Role, RotatedAuthority, pair_suffix
from signer.rotation.facts import HeldCertificate, HeldPair, Unusable
from signer.rotation.record import RotationRecord, RotationSeals, StoredRotation, record_spec, stored_rotation
from signer.rotation.secrets import ReadSecret, read_kept_pair, read_secret, sealed_anew


class NothingToConfirm(Exception):
    """The Cluster has no rotation, or the present key has sealed all of it."""


class CannotBeConfirmed(Exception):
    """Record and Secrets contradict each other; the message says what to restore."""


class GetAndReplace(Get, Replace, Protocol):
    """The calls to the management cluster."""


@dataclass(frozen=True, slots=True)
class KeptPair:
    """One Secret of the rotation."""

    kind: AuthorityKind
    role: Role
    name: str
    reference: AuthorityReference
    manifest: JsonObject = field(repr=False)


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """A rotation that the present key has not sealed, and that is consistent in itself."""

    record: RotationRecord
    signs: Role
    """Which of the two CAs Secret ``<cluster>-ca`` holds."""
    pairs: tuple[KeptPair, ...]
    """The rotation's Secrets that the present key has not sealed."""
    manifest: JsonObject = field(repr=False)
    left_out: tuple[KeptPair, ...] = ()
    """A node-client authority that is not sealed, and falls out of the trust."""


async def read_unconfirmed(
    management: Get, key: ClusterKey, keys: ControllerKeys, *, node_client: frozenset[str] = frozenset()
) -> Unconfirmed:
    """What there is to confirm. ``node_client`` holds the hash of the node-client authority, if the person names it.

    Raises:
        NothingToConfirm, CannotBeConfirmed: see there.
        ApiError: from the management cluster.
    """
    try:
        manifest = await management.get(CERTIFICATE_AUTHORITY_ROTATIONS.object(key.name, key.namespace))
    except NotFound as error:
        raise NothingToConfirm(f"Cluster {key} has no CertificateAuthorityRotation") from error
    stored = stored_rotation(manifest)
    if not isinstance(stored, StoredRotation):
        raise CannotBeConfirmed(f"the CertificateAuthorityRotation cannot be read: {stored.message}; restore it")
    record = stored.claimed
    if record.cluster != key:
        raise CannotBeConfirmed(f"the CertificateAuthorityRotation is of another Cluster, {record.cluster}: restore it")
    verified = RotationSeals(keys).verify(stored)
    if isinstance(verified, Unauthentic) and verified.fault is not Fault.UNKNOWN_KEY:
        raise CannotBeConfirmed(f"the CertificateAuthorityRotation was edited ({verified.fault.value}): restore it")
    pairs = tuple([one for authority in record.authorities for one in await _kept(management, record, authority, keys)])
    separate = await _node_client(management, record, keys)
    pairs += tuple(one for one in separate if one.reference.public_key_hash in node_client)
    if isinstance(verified, Authentic) and not pairs:
        raise NothingToConfirm(f"the controller key of today has sealed the rotation of Cluster {key}")
    left_out = tuple(one for one in separate if one not in pairs)
    return Unconfirmed(record, await _signs(management, record), pairs, manifest, left_out)


async def confirm(management: GetAndReplace, found: Unconfirmed, keys: ControllerKeys, now: datetime) -> None:
    """Seal it by the present key, at exactly the versions that were read: the Secrets first, then the record.

    After a crash in between, :func:`read_unconfirmed` finds what is left.

    Raises:
        ApiError: from the management cluster; Conflict if something has changed since it was shown.
    """
    record = found.record
    namespace = record.cluster.namespace
    for one in found.pairs:
        await management.replace(SECRETS.object(one.name, namespace), sealed_anew(one.manifest, one.reference, keys))
    sealed = record.next(now.replace(microsecond=0))
    spec = {**record_spec(sealed), "seal": RotationSeals(keys).seal(sealed)}
    path = CERTIFICATE_AUTHORITY_ROTATIONS.object(record.cluster.name, namespace)
    await management.replace(path, {**found.manifest, "spec": spec})


async def _kept(
    management: Get, record: RotationRecord, authority: RotatedAuthority, keys: ControllerKeys
) -> list[KeptPair]:
    found = []
    for role in Role:
        if role is Role.NEW and isinstance(authority.new, NotMade):
            continue
        name = f"{record.cluster.name}-{pair_suffix(authority.kind, record.rotation_id, role)}"
        try:
            manifest = await management.get(SECRETS.object(name, record.cluster.namespace))
        except NotFound:
            continue  # the rotation says what it misses
        reference = _reference(read_secret(authority.kind, manifest))
        if isinstance(reference, Unusable):
            raise CannotBeConfirmed(f"Secret {name} cannot be used: {reference.message}; restore it from a backup")
        if reference.digest != authority.of(role).digest:
            raise CannotBeConfirmed(f"Secret {name} holds another CA than the record names: restore it from a backup")
        if isinstance(read_kept_pair(authority.kind, manifest, keys).held, Unusable):
            found.append(KeptPair(authority.kind, role, name, reference, manifest))
    return found


async def _node_client(management: Get, record: RotationRecord, keys: ControllerKeys) -> tuple[KeptPair, ...]:
    """No record names it, and a tenant may have written the Secret: it is sealed only if the person gave its hash."""
    name = f"{record.cluster.name}-{NODE_CLIENT_CA}"
    try:
        manifest = await management.get(SECRETS.object(name, record.cluster.namespace))
    except NotFound:
        return ()
    reference = _reference(read_secret(AuthorityKind.CLUSTER, manifest))
    kept = read_kept_pair(AuthorityKind.CLUSTER, manifest, keys).held
    if isinstance(reference, Unusable) or not isinstance(kept, Unusable):
        return ()
    return (KeptPair(AuthorityKind.CLUSTER, Role.NEW, name, reference, manifest),)


def _reference(read: ReadSecret) -> AuthorityReference | Unusable:
    match read.held:
        case HeldPair(certificates=(_,), signs=reference) | HeldCertificate(reference):
            return reference
        case Unusable() as unusable:
            return unusable
        case _:
            return Unusable("it holds several certificates")


async def _signs(management: Get, record: RotationRecord) -> Role:
    cluster = record.authority(AuthorityKind.CLUSTER)
    name = f"{record.cluster.name}-{AuthorityKind.CLUSTER.value}"
    try:
        manifest = await management.get(SECRETS.object(name, record.cluster.namespace))
    except NotFound:
        raise CannotBeConfirmed(f"Secret {name} does not exist: restore it from a backup") from None
    held = read_secret(AuthorityKind.CLUSTER, manifest).held
    if isinstance(held, HeldPair):
        for role in Role:
            made = role is Role.OLD or not isinstance(cluster.new, NotMade)
            if made and held.signs.digest == cluster.of(role).digest:
                return role
    raise CannotBeConfirmed(f"Secret {name} holds neither CA of the record: restore the one or the other from a backup")


__all__ = [
    "CannotBeConfirmed",
    "GetAndReplace",
    "KeptPair",
    "NothingToConfirm",
    "Unconfirmed",
    "confirm",
    "read_unconfirmed",
]
