"""Why an instance identity document was refused: a closed tree, each with a sentence for a person.

    IdentityDocumentRefused
    ├── IdentityDocumentMalformed     not PKCS#7 as AWS writes it, or its content is no instance identity document
    ├── RegionCertificateMissing      nobody has told us the certificate of the document's Region: the operator may
    └── SignatureRefused              not signed with the key of the Region that it names

`RegionCertificatesUnreadable` stands apart: it is about the operator's configuration, before any node asks.
"""

from __future__ import annotations


class IdentityDocumentRefused(Exception):
    """The document proves nothing. The text says why, and quotes nothing of it but a Region's name."""


class IdentityDocumentMalformed(IdentityDocumentRefused):
    """Not of the form that AWS gives it, or larger than any document of AWS's."""


class RegionCertificateMissing(IdentityDocumentRefused):
    """Neither shipped nor configured."""


class SignatureRefused(IdentityDocumentRefused):
    """The signature, or who made it, is not what AWS's key for that Region makes."""


class RegionCertificatesUnreadable(ValueError):
    """The operator's certificates of Regions cannot be used as they are; the text names which and why."""
