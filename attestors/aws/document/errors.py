"""Errors that refuse an instance identity document: a closed tree, each with a message for a person.

    IdentityDocumentRefused
    ├── IdentityDocumentMalformed     not PKCS#7 in AWS's form, or its content is not an instance identity document
    ├── RegionCertificateMissing      the certificate of the document's Region is unknown; the operator can add it
    └── SignatureRefused              not signed with the key of the Region that it names

`RegionCertificatesUnreadable` is separate: it concerns the operator's configuration, before any request.
"""

from __future__ import annotations


class IdentityDocumentRefused(Exception):
    """The document proves nothing. The message says why, and quotes only a Region's name."""


class IdentityDocumentMalformed(IdentityDocumentRefused):
    """The document is not in AWS's form, or larger than any document of AWS."""


class RegionCertificateMissing(IdentityDocumentRefused):
    """The Region's certificate is neither shipped nor configured."""


class SignatureRefused(IdentityDocumentRefused):
    """The signature or the signer is not that of AWS's key for the Region."""


class RegionCertificatesUnreadable(ValueError):
    """The operator's Region certificates cannot be used; the message names the file and the error."""
