"""Verifies that AWS signed the document in a PKCS#7.

The steps:

1. parse the PKCS#7, with its content and its one signer (`signed_data`)
2. parse the content, which names its Region (`identity_document`)
3. only the pinned certificates of that Region are candidates (`certificates`)
4. the signer names one of them by issuer and serial number
5. with signed attributes, the digest among them is the content's
6. the signature verifies with the pinned key

Step 2 parses unverified data. This is safe: the Region selects the key, and the key's signature covers the Region. The
returned document was parsed from exactly the bytes over which the signature was verified.
"""

from __future__ import annotations

import hashlib
import hmac

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding

from attestors.aws.document.certificates import PinnedCertificate, RegionCertificates
from attestors.aws.document.errors import SignatureRefused
from attestors.aws.document.identity_document import InstanceIdentityDocument, parse_identity_document
from attestors.aws.document.signed_attributes import NoSignedAttributes
from attestors.aws.document.signed_data import SignedData, SignerInfo, parse_signed_data
from attestors.aws.partitions import Region


def verify_identity_document(pkcs7: bytes, certificates: RegionCertificates) -> InstanceIdentityDocument:
    """Verify the PKCS#7 of the metadata service's ``rsa2048``, and return the document inside.

    It proves that EC2 wrote the document, not which machine sent it: every process on the instance can read it,
    and a copy stays valid for ever.

    Raises:
        IdentityDocumentMalformed: it is not in AWS's form.
        RegionCertificateMissing: no certificate is known for its Region.
        SignatureRefused: AWS did not sign it for that Region.
    """
    signed_data = parse_signed_data(pkcs7)
    document = parse_identity_document(signed_data.content)
    certificate = _certificate_of(signed_data.signer, certificates.of(document.region), document.region)
    _verify_signature(signed_data, certificate, document.region)
    return document


def _certificate_of(signer: SignerInfo, candidates: tuple[PinnedCertificate, ...], region: Region) -> PinnedCertificate:
    for certificate in candidates:
        if certificate.issuer_and_serial_number == signer.issuer_and_serial_number:
            return certificate
    raise SignatureRefused(f"the instance identity document is not signed with the certificate of {region.name}")


def _verify_signature(signed_data: SignedData, certificate: PinnedCertificate, region: Region) -> None:
    attributes = signed_data.signer.signed_attributes
    if isinstance(attributes, NoSignedAttributes):
        signed = signed_data.content
    else:
        if not hmac.compare_digest(attributes.message_digest, hashlib.sha256(signed_data.content).digest()):
            raise SignatureRefused("the instance identity document differs from the signed content")
        signed = attributes.signed
    try:
        certificate.key.verify(signed_data.signer.signature, signed, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        raise SignatureRefused(
            f"the signature of the instance identity document does not verify with the key of {region.name}"
        ) from None
