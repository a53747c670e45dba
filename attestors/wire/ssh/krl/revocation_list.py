"""The content of a key revocation list."""

from __future__ import annotations

import base64
import binascii
import hashlib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from attestors.wire.ssh.certificate import MAXIMUM_KEY_ID_BYTES, Certificate
from attestors.wire.ssh.encoding import MAXIMUM_UINT64
from attestors.wire.ssh.errors import SSHReason, SSHRefused, malformed
from attestors.wire.ssh.keys import PublicKey, RevocableKey
from attestors.wire.ssh.krl.serials import SerialRange, merged

MAXIMUM_LIST_BYTES: Final = 4 * 1024 * 1024
MAXIMUM_ENTRIES: Final = 100_000
"""Of serial ranges, key ids, keys and fingerprints together."""
MAXIMUM_COMMENT_BYTES: Final = 1024
FINGERPRINT_BYTES: Final = 32
_FINGERPRINT_PREFIX: Final = "SHA256:"


@dataclass(frozen=True, slots=True)
class AnyAuthority:
    """An entry counts for certificates of every authority."""


Authority: TypeAlias = RevocableKey | AnyAuthority


@dataclass(frozen=True, slots=True, order=True)
class Fingerprint:
    """SHA-256 of a key's blob.

    Raises:
        SSHRefused: ``Malformed``: another length.
    """

    digest: bytes

    def __post_init__(self) -> None:
        if len(self.digest) != FINGERPRINT_BYTES:
            raise malformed(f"a SHA-256 fingerprint has {FINGERPRINT_BYTES} bytes, not {len(self.digest)}")

    @classmethod
    def of(cls, key: RevocableKey) -> Fingerprint:
        """The key's fingerprint."""
        return cls(hashlib.sha256(key.blob).digest())


@dataclass(frozen=True, slots=True)
class CertificateRevocations:
    """Revoked certificates of one authority, or of all.

    Raises:
        SSHRefused: ``KeyIDInvalid``.
    """

    authority: Authority
    serials: tuple[SerialRange, ...] = ()
    """In order, without gaps that could be closed."""
    key_ids: tuple[str, ...] = ()
    """In order, each once."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "serials", merged(self.serials))
        object.__setattr__(self, "key_ids", tuple(sorted(set(self.key_ids), key=_encoded_key_id)))

    def revokes(self, certificate: Certificate) -> bool:
        """Whether an entry names the certificate. It is not asked whose certificate it is."""
        following = bisect_right(self.serials, certificate.serial, key=lambda one: one.first)
        return (following > 0 and certificate.serial in self.serials[following - 1]) or (
            certificate.key_id in self.key_ids
        )


@dataclass(frozen=True, slots=True)
class RevocationList:
    """A key revocation list.

    Raises:
        SSHRefused: ``Malformed`` (a number out of range, or the comment) or ``TooLarge``: too many entries.
    """

    version: int
    """Increases with each change. ``ssh-keygen`` writes 0 unless told otherwise."""
    generated: int
    """Unix time."""
    comment: str = ""
    certificates: tuple[CertificateRevocations, ...] = ()
    """In order, each authority once."""
    keys: tuple[RevocableKey, ...] = ()
    """In order, each once. A certificate for a revoked key, or by a revoked authority, is revoked, too."""
    fingerprints: tuple[Fingerprint, ...] = ()
    """Of keys, in order, each once."""
    _by_authority: dict[bytes, CertificateRevocations] = field(init=False, repr=False, compare=False)
    _revoked: frozenset[bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (0 <= self.version <= MAXIMUM_UINT64 and 0 <= self.generated <= MAXIMUM_UINT64):
            raise malformed("version and time of a revocation list have 64 bits")
        _require_comment(self.comment)
        by_authority: dict[bytes, CertificateRevocations] = {}
        for one in self.certificates:
            place = _place(one.authority)
            other = by_authority.get(place, CertificateRevocations(one.authority))
            by_authority[place] = CertificateRevocations(
                one.authority, one.serials + other.serials, one.key_ids + other.key_ids
            )
        found = [by_authority[place] for place in sorted(by_authority)]
        keys = {key.blob: key for key in self.keys}
        object.__setattr__(self, "certificates", tuple(one for one in found if one.serials or one.key_ids))
        object.__setattr__(self, "keys", tuple(keys[blob] for blob in sorted(keys)))
        object.__setattr__(self, "fingerprints", tuple(sorted(set(self.fingerprints))))
        object.__setattr__(self, "_by_authority", by_authority)
        digests = {Fingerprint.of(key).digest for key in self.keys} | {one.digest for one in self.fingerprints}
        object.__setattr__(self, "_revoked", frozenset(digests))
        if self.entries > MAXIMUM_ENTRIES:
            raise SSHRefused(
                SSHReason.TOO_LARGE,
                f"a revocation list holds at most {MAXIMUM_ENTRIES} entries; begin a new one once old certificates "
                "have ended",
            )

    @property
    def entries(self) -> int:
        """Count of serial ranges, key ids, keys and fingerprints."""
        of_certificates = sum(len(one.serials) + len(one.key_ids) for one in self.certificates)
        return of_certificates + len(self.keys) + len(self.fingerprints)

    def require_not_revoked(self, presented: PublicKey | Certificate) -> None:
        """Decide as sshd does for a login by this key or certificate.

        Raises:
            SSHRefused: ``Revoked``; the message says by which kind of entry.
        """
        if not isinstance(presented, Certificate):
            self._require_key(presented, "the key")
            return
        self._require_key(presented.public_key, "the certificate's key")
        self._require_key(presented.authority, "the certificate's authority")
        for authority in (presented.authority, AnyAuthority()):
            entry = self._by_authority.get(_place(authority))
            if entry is not None and entry.revokes(presented):
                raise SSHRefused(SSHReason.REVOKED, "the certificate's serial number or key id is revoked")

    def _require_key(self, key: PublicKey, what: str) -> None:
        if Fingerprint.of(key).digest in self._revoked:
            raise SSHRefused(SSHReason.REVOKED, f"{what} is revoked")

    def with_entries(
        self,
        *,
        generated: int,
        certificates: Iterable[CertificateRevocations] = (),
        keys: Iterable[RevocableKey] = (),
        fingerprints: Iterable[Fingerprint] = (),
    ) -> RevocationList:
        """The next version, with these entries besides. Nothing is taken away.

        Raises:
            SSHRefused: as the constructor.
        """
        return replace(
            self,
            version=self.version + 1,
            generated=generated,
            certificates=(*self.certificates, *certificates),
            keys=(*self.keys, *keys),
            fingerprints=(*self.fingerprints, *fingerprints),
        )


def revoking_both(former: RevocationList, later: RevocationList) -> RevocationList:
    """The later list, and whatever the former one revokes besides.

    Raises:
        SSHRefused: ``TooLarge``.
    """
    return replace(
        later,
        certificates=(*former.certificates, *later.certificates),
        keys=(*former.keys, *later.keys),
        fingerprints=(*former.fingerprints, *later.fingerprints),
    )


def parse_fingerprint(text: str) -> Fingerprint:
    """Parse ``SHA256:`` and Base64 without padding, as ``ssh-keygen -l`` prints it.

    Raises:
        SSHRefused: ``Malformed``.
    """
    encoded = text.removeprefix(_FINGERPRINT_PREFIX)
    try:
        digest = base64.b64decode(f"{encoded}=".encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        digest = b""
    if encoded == text or base64.b64encode(digest).decode("ascii").rstrip("=") != encoded:
        raise malformed("not a fingerprint: write it as `ssh-keygen -l` prints it, SHA256: and 43 characters")
    return Fingerprint(digest)


def _encoded_key_id(key_id: str) -> bytes:
    try:
        encoded = key_id.encode("utf-8")
    except UnicodeEncodeError:
        encoded = b"\0"
    if not 0 < len(encoded) <= MAXIMUM_KEY_ID_BYTES or b"\0" in encoded:
        raise SSHRefused(
            SSHReason.KEY_ID_INVALID, f"a revoked key id has 1 to {MAXIMUM_KEY_ID_BYTES} bytes, and no NUL among them"
        )
    return encoded


def _require_comment(comment: str) -> None:
    try:
        encoded = comment.encode("utf-8")
    except UnicodeEncodeError:
        encoded = b"\0"
    if len(encoded) > MAXIMUM_COMMENT_BYTES or b"\0" in encoded:
        raise malformed(f"the comment of a revocation list has at most {MAXIMUM_COMMENT_BYTES} bytes, and no NUL")


def _place(authority: Authority) -> bytes:
    """The encoded authority: empty for all of them."""
    return b"" if isinstance(authority, AnyAuthority) else authority.blob
