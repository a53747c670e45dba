"""The text form of the PKCS#7 from the metadata service: base64 in lines, without header and footer."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from attestors.aws.document.errors import IdentityDocumentMalformed
from attestors.aws.wire import MAXIMUM_IDENTITY_DOCUMENT_BYTES

_HEADER: Final = b"-----BEGIN PKCS7-----"
_FOOTER: Final = b"-----END PKCS7-----"
_WHITE_SPACE: Final = re.compile(rb"[ \t\r\n]+")


def read_recorded(text: bytes) -> bytes:
    """The PKCS#7 in the metadata service's answer, with or without PEM's header and footer.

    Raises:
        IdentityDocumentMalformed: not base64, or larger than any document of AWS.
    """
    if len(text) > 2 * MAXIMUM_IDENTITY_DOCUMENT_BYTES:
        raise IdentityDocumentMalformed("the recorded PKCS#7 is too large")
    body = text.strip().removeprefix(_HEADER).removesuffix(_FOOTER)
    try:
        return base64.b64decode(_WHITE_SPACE.sub(b"", body), validate=True)
    except binascii.Error as error:
        raise IdentityDocumentMalformed("the recorded PKCS#7 is not base64") from error
