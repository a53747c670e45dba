"""Invariant I1 of a rotation: every Secret holds a pair, and its first PEM block belongs to the key.

``<cluster>-ca`` holds exactly one certificate: kube-controller-manager exits at start, and stops signing while it runs,
if the file of its signing CA has several. etcd's and the front proxy's CA may be bundles.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from signer.authority.certificate_authority import (
    CertificateAuthority,
    load_certificate_authority,
    read_certificates,
)
from signer.authority.der import PemBlock, PemError, read_blocks
from signer.authority.errors import CertificateAuthorityUnavailable, CertificateAuthorityUnavailableReason
from signer.authority.lenient_certificate import CertificateUnreadable, parse_ca_certificate
from signer.authority.private_key import AuthorityPublicKey, read_private_key
from signer.authority.successor import AuthorityKind, RotatedCertificateAuthority

__all__ = ["require_pair", "require_service_account_pair"]

_Reason = CertificateAuthorityUnavailableReason
_MAXIMUM_PUBLIC_KEYS_BYTES = 64 * 1024
_MAXIMUM_PUBLIC_KEYS = 16


def require_pair(
    kind: RotatedCertificateAuthority, secret_data: Mapping[str, bytes], *, now: datetime
) -> CertificateAuthority:
    """The Secret's ``data`` is a CA that can sign now, and ``tls.crt`` has its certificate where every reader looks.

    Args:
        kind: the cluster's CA must be a single certificate; the others may be bundles that begin with the key's one.
        secret_data: base64 decoded.
        now: timezone-aware.

    Raises:
        CertificateAuthorityUnavailable: it is not; the message names the Secret's key and the remedy.
    """
    authority = load_certificate_authority(secret_data, now=now)
    first, *others = read_certificates(secret_data.get("tls.crt"))
    if kind is AuthorityKind.CLUSTER and others:
        raise CertificateAuthorityUnavailable(
            _Reason.INVALID,
            f"tls.crt of the cluster's CA holds {1 + len(others)} certificates, and kube-controller-manager signs "
            "nothing then; keep the certificate of tls.key alone, and trust other CAs by the Secret <cluster>-trust",
        )
    if first.der != authority.certificate.der:
        raise CertificateAuthorityUnavailable(
            _Reason.KEY_MISMATCH,
            "tls.key is not the private key of the first certificate in tls.crt; put that key's certificate first",
        )
    return authority


def require_service_account_pair(secret_data: Mapping[str, bytes]) -> AuthorityPublicKey:
    """The public key that signs: the first public key in ``tls.crt`` belongs to ``tls.key``.

    More may follow; they verify tokens only.

    kube-apiserver reads public keys and certificates (``k8s.io/client-go/util/keyutil``, ``ParsePublicKeysPEM``).

    Raises:
        CertificateAuthorityUnavailable: it does not; the message names the Secret's key and the remedy.
    """
    public_key = read_private_key(secret_data.get("tls.key")).public_key()
    text = secret_data.get("tls.crt")
    if text is None or not text.strip():
        raise CertificateAuthorityUnavailable(
            _Reason.CERTIFICATE_MISSING, "tls.crt is missing or empty; put the public key of tls.key there"
        )
    try:
        blocks = read_blocks(text, maximum_bytes=_MAXIMUM_PUBLIC_KEYS_BYTES, maximum_blocks=_MAXIMUM_PUBLIC_KEYS)
    except PemError as error:
        raise CertificateAuthorityUnavailable(
            _Reason.INVALID, f"tls.crt {error}; it must hold public keys in PEM, that of tls.key first"
        ) from None
    first, *_ = [_subject_public_key_info(position, block) for position, block in enumerate(blocks, start=1)]
    if first != public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo):
        raise CertificateAuthorityUnavailable(
            _Reason.KEY_MISMATCH,
            "tls.key is not the private key of the first public key in tls.crt; put that key's public key first",
        )
    return public_key


def _subject_public_key_info(position: int, block: PemBlock) -> bytes:
    if block.label == "PUBLIC KEY":
        return block.content
    if block.label == "CERTIFICATE":
        try:
            return parse_ca_certificate(block.content).subject_public_key_info
        except CertificateUnreadable as error:
            raise CertificateAuthorityUnavailable(
                _Reason.INVALID, f"certificate {position} of tls.crt {error}; replace or remove it"
            ) from None
    raise CertificateAuthorityUnavailable(
        _Reason.INVALID, f"PEM block {position} of tls.crt is not a PUBLIC KEY or CERTIFICATE; remove or convert it"
    )
