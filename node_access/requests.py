"""What sshd's AuthorizedPrincipalsCommand passes on: ``%u %i %s %F %k``, separated by NUL.

sshd has verified the certificate's signature and trusts its authority. Whether the client has the private key comes
later, and so does nothing else about it.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Final

from attestors.wire.ssh.certificate import (
    MAXIMUM_CERTIFICATE_BYTES,
    Certificate,
    CertificateKind,
    SignedCertificate,
    parse_certificate,
)
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.principals import PlainPrincipal

MAXIMUM_REQUEST_BYTES: Final = 2 * MAXIMUM_CERTIFICATE_BYTES
_FIELDS: Final = 5


class RequestRefused(ValueError):
    """The question is not one that sshd asks, or is about a certificate that does not count here."""


@dataclass(frozen=True, slots=True)
class PrincipalsRequest:
    """A login that is attempted."""

    login_name: str
    signed: SignedCertificate = field(repr=False)

    @property
    def certificate(self) -> Certificate:
        """The certificate that is presented."""
        return self.signed.certificate


def parse_request(message: bytes) -> PrincipalsRequest:
    """Parse a message of the principals command.

    Raises:
        RequestRefused: anything but a user certificate that agrees with what sshd says about it.
    """
    fields = message.split(b"\0")
    if len(message) > MAXIMUM_REQUEST_BYTES or len(fields) != _FIELDS:
        raise RequestRefused("not the five arguments of sshd's AuthorizedPrincipalsCommand")
    try:
        login_name, key_id, serial, authority = (one.decode("utf-8") for one in fields[:-1])
        PlainPrincipal(login_name)
        signed = parse_certificate(base64.b64decode(fields[-1], validate=True))
    except (UnicodeDecodeError, binascii.Error):
        raise RequestRefused("an argument is not in its encoding") from None
    except SSHRefused as refused:
        raise RequestRefused(f"{refused.reason}: {refused.message}") from None
    certificate = signed.certificate
    if certificate.kind is not CertificateKind.USER:
        raise RequestRefused("the certificate is not for a user")
    if (key_id, serial, authority) != (
        certificate.key_id,
        str(certificate.serial),
        certificate.authority.fingerprint,
    ):
        raise RequestRefused("the certificate is not the one that sshd names")
    return PrincipalsRequest(login_name, signed)
