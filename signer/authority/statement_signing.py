"""Signs statements for nodes (:mod:`attestors.wire.statement`) with the keys of CAs and of the controller.

The controller's statement keys are Ed25519 keys whose seeds are subkeys of the controller key, one for each generation.
While the previous controller key is kept, both sign: nodes that pinned the previous one accept what the new one says.

All clusters have the same keys. The signed bytes name the cluster, so no statement counts in another one. A key for
each Cluster UID would change with ``clusterctl move``, which gives the Cluster a new UID, and no node would accept it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.wire.binding import CACertHash
from attestors.wire.statement import ControllerPublicKeys, Signature, SignedStatement, Statement, signed_input
from signer.authority.certificate_authority import CertificateAuthority, KeyWithheld
from signer.authority.errors import CertificateAuthorityUnavailable, CertificateAuthorityUnavailableReason
from signer.authority.private_key import sign
from signer.model.seal import Subkey

__all__ = ["StatementKeys", "sign_statement"]


@dataclass(frozen=True, slots=True)
class StatementKeys:
    """The controller's keys for statements, that of the current controller key first."""

    private: tuple[Ed25519PrivateKey, ...] = field(repr=False)

    @classmethod
    def of(cls, subkeys: Iterable[Subkey]) -> StatementKeys:
        """The keys whose seeds are those subkeys."""
        return cls(tuple(Ed25519PrivateKey.from_private_bytes(subkey.secret) for subkey in subkeys))

    @property
    def public(self) -> ControllerPublicKeys:
        """What nodes pin."""
        return ControllerPublicKeys(tuple(key.public_key().public_bytes_raw() for key in self.private))


def sign_statement(
    statement: Statement, authorities: Sequence[CertificateAuthority], controller: StatementKeys
) -> SignedStatement:
    """The statement, signed with the key of each of the CAs and with all keys of the controller.

    It takes CPU only: see :attr:`.CertificateAuthority.is_slow_to_sign`.

    Raises:
        CertificateAuthorityUnavailable: a CA was loaded without its key.
        MalformedStatement: there are too many signatures.
    """
    data = signed_input(statement)
    signatures: dict[str, Signature] = {}
    for authority in authorities:
        private_key = authority.private_key
        if isinstance(private_key, KeyWithheld):
            raise CertificateAuthorityUnavailable(
                CertificateAuthorityUnavailableReason.KEY_MISSING, "a statement is signed with the CA's private key"
            )
        name = authority.certificate.public_key_hash
        signatures[name] = Signature(CACertHash(name), sign(private_key, data))
    for key in controller.private:
        name = CACertHash.of(key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).text
        signatures[name] = Signature(CACertHash(name), key.sign(data))
    return SignedStatement(statement, tuple(signatures[name] for name in sorted(signatures)))
