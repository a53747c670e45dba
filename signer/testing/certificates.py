"""Makes a workload cluster's CA like Cluster API's, for tests, the demo and the embedded API."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from signer.authority import der
from signer.authority.der import encode_block
from signer.authority.issuance import encode_extension
from signer.authority.private_key import AuthorityPrivateKey, sign, signature_algorithm

__all__ = ["ClusterCertificateAuthority", "EncryptionAlgorithm", "new_cluster_certificate_authority"]

_BACKDATE = timedelta(minutes=5)
_TEN_YEARS = timedelta(days=3650)


class EncryptionAlgorithm(StrEnum):
    """``clusterConfiguration.encryptionAlgorithm`` of kubeadm v1beta4."""

    RSA_2048 = "RSA-2048"
    RSA_3072 = "RSA-3072"
    RSA_4096 = "RSA-4096"
    ECDSA_P256 = "ECDSA-P256"
    ECDSA_P384 = "ECDSA-P384"


@dataclass(frozen=True, slots=True)
class ClusterCertificateAuthority:
    """A CA certificate and its private key, both PEM."""

    certificate: bytes
    private_key: bytes = field(repr=False)

    @property
    def secret_data(self) -> dict[str, bytes]:
        """``data`` of the Secret ``<cluster>-ca``, before base64."""
        return {"tls.crt": self.certificate, "tls.key": self.private_key}


def new_cluster_certificate_authority(
    algorithm: EncryptionAlgorithm = EncryptionAlgorithm.RSA_2048,
    *,
    key: AuthorityPrivateKey | None = None,
    common_name: str = "kubernetes",
    serial_number: int = 0,
    now: datetime | None = None,
    duration: timedelta = _TEN_YEARS,
) -> ClusterCertificateAuthority:
    """A self-signed CA like that of Cluster API (``util/certs``, ``newSelfSignedCACert``).

    Serial number 0, valid from five minutes ago for ten years, digitalSignature, keyEncipherment and keyCertSign,
    CA:TRUE with path length 0, a subject key identifier of truncated SHA-256 (Go 1.25), the key as PKCS#1 or SEC1.

    Args:
        algorithm: of the new key; ignored if ``key`` is given.
        key: an existing key; a new RSA key takes 0.1 seconds or more.
        common_name: of the subject; all CAs of Cluster API have the same.
        serial_number: zero or more.
        now: an aware datetime; the current time by default.
        duration: counted from ``now``.
    """
    private_key = _new_key(algorithm) if key is None else key
    moment = (now or datetime.now(UTC)).replace(microsecond=0)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    public_key = private_key.public_key()
    extensions = (
        (
            x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=True,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=False,
                encipher_only=False,
                decipher_only=False,
            ),
            True,
        ),
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_subject_key_identifier(public_key), False),
    )
    # Assembled by hand: the library's builder refuses serial number 0.
    tbs = der.sequence(
        der.context_constructed(0, der.integer(2)),
        der.integer(serial_number),
        signature_algorithm(private_key),
        name.public_bytes(),
        der.sequence(der.time(moment - _BACKDATE), der.time(moment + duration)),
        name.public_bytes(),
        public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        der.context_constructed(
            3, der.sequence(*(encode_extension(value, critical) for value, critical in extensions))
        ),
    )
    certificate = der.sequence(tbs, signature_algorithm(private_key), der.bit_string(sign(private_key, tbs)))
    return ClusterCertificateAuthority(
        certificate=encode_block("CERTIFICATE", certificate),
        private_key=private_key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
    )


def _new_key(algorithm: EncryptionAlgorithm) -> AuthorityPrivateKey:
    match algorithm:
        case EncryptionAlgorithm.ECDSA_P256:
            return ec.generate_private_key(ec.SECP256R1())
        case EncryptionAlgorithm.ECDSA_P384:
            return ec.generate_private_key(ec.SECP384R1())
        case _:
            return rsa.generate_private_key(public_exponent=65537, key_size=int(algorithm.value.removeprefix("RSA-")))


def _subject_key_identifier(public_key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> x509.SubjectKeyIdentifier:
    """RFC 7093 section 2 (1): the leftmost 160 bits of the SHA-256 of the key's BIT STRING."""
    information = public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    bits = der.read_elements(der.read_single(information, der.Tag.SEQUENCE).content)[1]
    digest = hashes.Hash(hashes.SHA256())
    digest.update(bits.content[1:])
    return x509.SubjectKeyIdentifier(digest.finalize()[:20])
