"""Issues a client certificate of a cluster's administrator again, by another CA of the same cluster.

A kubeconfig's client certificate is not attested. So nothing of it can be chosen here: subject, public key and usages
are those of a certificate that the former CA signed, and it ends no later.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from signer.authority import der
from signer.authority.authority_certificate import (
    AuthorityContents,
    Extension,
    key_identifier,
    sign_authority_certificate,
)
from signer.authority.certificate_authority import CertificateAuthority, KeyWithheld
from signer.authority.lenient_certificate import (
    CACertificate,
    CertificateUnreadable,
    NotIssuedBy,
    parse_ca_certificate,
)
from signer.authority.profiles import BACKDATE, Validity

__all__ = ["ReissueRefused", "reissue"]

_KEPT: Final = (x509.KeyUsage, x509.ExtendedKeyUsage, x509.BasicConstraints, x509.SubjectAlternativeName)


class ReissueRefused(Exception):
    """The certificate is not one that may be issued again; the message says why."""


def reissue(leaf: bytes, *, former: CACertificate, signer: CertificateAuthority, now: datetime) -> bytes:
    """The same client certificate by ``signer``, PEM.

    Args:
        leaf: DER of a client certificate.
        former: the CA that signed it.
        signer: the CA that signs the new one.
        now: timezone-aware.

    Raises:
        ReissueRefused: ``former`` did not sign it, it is not valid now, or it is no client certificate alone.
        IssuanceRefused: ``SelfCheckFailed``.
    """
    certificate = _signed_by(leaf, former)
    usage, constraints = certificate.extended_key_usage, certificate.basic_constraints
    if usage is None or list(usage) != [ExtendedKeyUsageOID.CLIENT_AUTH] or (constraints and constraints.ca):
        raise ReissueRefused("it is not a client certificate alone")
    start = now.astimezone(UTC).replace(microsecond=0)
    end = min(certificate.not_after, signer.certificate.not_after)
    if not certificate.not_before <= start < end:
        raise ReissueRefused("it is not valid now: renew it first")
    if isinstance(signer.private_key, KeyWithheld):
        raise ReissueRefused("the signing CA was loaded without its key")
    contents = AuthorityContents(
        issuer=signer.certificate.subject,
        subject=certificate.subject,
        subject_public_key_info=certificate.subject_public_key_info,
        validity=Validity(max(start - BACKDATE, signer.certificate.not_before), end),
        extensions=(*_kept(certificate), _issuer(signer.certificate)),
    )
    return der.encode_block("CERTIFICATE", sign_authority_certificate(contents, signer.private_key).der)


def _signed_by(leaf: bytes, former: CACertificate) -> CACertificate:
    try:
        certificate = parse_ca_certificate(leaf)
        certificate.require_directly_issued_by(former)
    except (CertificateUnreadable, NotIssuedBy) as error:
        raise ReissueRefused("the former CA did not sign it") from error
    return certificate


def _kept(certificate: CACertificate) -> list[Extension]:
    return [
        (extension.value, extension.critical)
        for extension in certificate.extensions
        if isinstance(extension.value, _KEPT)
    ]


def _issuer(signer: CACertificate) -> Extension:
    return x509.AuthorityKeyIdentifier(key_identifier(signer), None, None), False
