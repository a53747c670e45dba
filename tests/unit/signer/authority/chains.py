"""Two CAs of a rotation, their links, and the certificates of servers and clients."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from signer.authority import (
    AuthorityKind,
    CACertificate,
    CertificateAuthority,
    LinkCertificate,
    LinkNotPossible,
    Validity,
    load_certificate_authority,
    new_authority,
    new_with_old,
    old_with_new,
)
from signer.authority.authority_certificate import AuthorityContents, sign_authority_certificate
from signer.authority.der import encode_block
from signer.testing.certificates import new_cluster_certificate_authority
from tests.unit.signer.authority.support import NOW, IssuerKey, Made, ec_key, key_usage, make

SERVER = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
CLIENT = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
NAMES = x509.SubjectAlternativeName(
    [
        x509.DNSName("localhost"),
        x509.DNSName("kubernetes.default.svc"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("10.96.0.1")),
    ]
)
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """A CA as the product sees it, and able to sign whatever a test wants."""

    loaded: CertificateAuthority
    pem: bytes = field(repr=False)
    signer: Made = field(repr=False)
    """Same name and key; not the same certificate."""

    @property
    def certificate(self) -> CACertificate:
        return self.loaded.certificate


def _authority(secret: dict[str, bytes], name: x509.Name, key: Any, now: datetime) -> Authority:
    common_name = str(name.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    return Authority(load_certificate_authority(secret, now=now), secret["tls.crt"], make(common_name, key))


def of_cluster_api(number: int = 0, *, key: Any = None, now: datetime = NOW) -> Authority:
    """Path length 0, serial number 0."""
    key = key or ec_key(number)
    made = new_cluster_certificate_authority(key=key, now=now - DAY)
    return _authority(made.secret_data, make("kubernetes", key).certificate.subject, key, now)


def of_our_own(name: str, key: IssuerKey, *, now: datetime = NOW, **options: Any) -> Authority:
    """With the options of `make`."""
    options = {
        "usage": key_usage(key_cert_sign=True),
        "not_before": now - DAY,
        "not_after": now + 3650 * DAY,
        **options,
    }
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    options["extra"] = ((identifier, False), *options.get("extra", ()))
    made = make(name, key, **options)
    return _authority(made.secret(), made.certificate.subject, key, now)


def successor(old: Authority, identifier: str = "abcdefg2", *, now: datetime = NOW) -> Authority:
    """What the product makes."""
    made = new_authority(AuthorityKind.CLUSTER, identifier, like=old.certificate, now=now)
    key = load_pem_private_key(made.private_key_pem, None)
    return _authority(made.secret_data, x509.load_der_x509_certificate(made.certificate.der).subject, key, now)


def leaf(
    issuer: Authority,
    purpose: x509.ExtendedKeyUsage | None = SERVER,
    *,
    key: Any = None,
    names: x509.SubjectAlternativeName = NAMES,
    identifier: x509.AuthorityKeyIdentifier | None = None,
    now: datetime = NOW,
    **options: Any,
) -> Made:
    """The certificate of an API server, or of a client."""
    if identifier is None:
        own = issuer.certificate.subject_key_identifier
        assert own is not None
        identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)
    extensions = ((purpose, False), (names, False), (identifier, False), *options.pop("extra", ()))
    options = {
        "ca": False,
        "usage": key_usage(key_cert_sign=False),
        "not_before": now - timedelta(hours=1),
        "not_after": now + 365 * DAY,
        **options,
    }
    extra = tuple((value, critical) for value, critical in extensions if value is not None)
    return make("kube-apiserver", key or ec_key(50), issuer.signer, extra=extra, **options)


def der(made: Made) -> bytes:
    return made.certificate.public_bytes(Encoding.DER)


def made_link(answer: LinkCertificate | LinkNotPossible) -> LinkCertificate:
    assert isinstance(answer, LinkCertificate), answer
    return answer


def old_new(old: Authority, new: Authority, *, now: datetime = NOW, **options: Any) -> LinkCertificate:
    options = {"lifetime": DAY, **options}
    return made_link(old_with_new(old=old.certificate, new=new.loaded, now=now, **options))


def new_old(old: Authority, new: Authority, *, now: datetime = NOW, **options: Any) -> LinkCertificate:
    options = {"lifetime": DAY, **options}
    return made_link(new_with_old(new=new.certificate, old=old.loaded, now=now, **options))


def forged(
    link: CACertificate,
    signer: Authority,
    *,
    issuer: bytes | None = None,
    subject_public_key_info: bytes | None = None,
    validity: Validity | None = None,
    extensions: tuple[x509.ExtensionType, ...] = (),
) -> LinkCertificate:
    """A copy of the link with some fields changed, signed by any CA. ``extensions`` replace those of their kind."""
    kinds = {type(value) for value in extensions}
    kept = [(item.value, item.critical) for item in link.extensions if type(item.value) not in kinds]
    contents = AuthorityContents(
        issuer=link.issuer if issuer is None else issuer,
        subject=link.subject,
        subject_public_key_info=subject_public_key_info or link.subject_public_key_info,
        validity=validity or Validity(link.not_before, link.not_after),
        extensions=[*kept, *((value, False) for value in extensions)],
    )
    certificate = sign_authority_certificate(contents, signer.loaded.private_key)  # type: ignore[arg-type]
    return LinkCertificate(certificate, encode_block("CERTIFICATE", certificate.der))
