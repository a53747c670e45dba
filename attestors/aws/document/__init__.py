"""Instance identity documents: verifies that EC2 wrote a document, and which instance it describes.

The entry point is `verify_identity_document`. It takes the PKCS#7 in BER and the certificates of the Regions, and
returns an `InstanceIdentityDocument` or raises a subclass of `IdentityDocumentRefused` (module `errors`). The metadata
service returns text, which `read_recorded` parses:

    recorded = Path("rsa2048").read_bytes()  # of http://169.254.169.254/latest/dynamic/instance-identity/rsa2048
    document = verify_identity_document(read_recorded(recorded), shipped_certificates())

The same from the command line: ``python -m attestors.aws.document rsa2048``.
"""

from attestors.aws.document.certificates import (
    PinnedCertificate,
    RegionCertificates,
    load_region_certificates,
    shipped_certificates,
)
from attestors.aws.document.errors import (
    IdentityDocumentMalformed,
    IdentityDocumentRefused,
    RegionCertificateMissing,
    RegionCertificatesUnreadable,
    SignatureRefused,
)
from attestors.aws.document.identity_document import INSTANCE_ID, InstanceIdentityDocument, parse_identity_document
from attestors.aws.document.recorded import read_recorded
from attestors.aws.document.verification import verify_identity_document

__all__ = [
    "verify_identity_document",
    "InstanceIdentityDocument",
    "read_recorded",
    "shipped_certificates",
    "load_region_certificates",
    "RegionCertificates",
    "PinnedCertificate",
    "parse_identity_document",
    "INSTANCE_ID",
    "IdentityDocumentRefused",
    "IdentityDocumentMalformed",
    "RegionCertificateMissing",
    "SignatureRefused",
    "RegionCertificatesUnreadable",
]
