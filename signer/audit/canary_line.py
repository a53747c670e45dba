"""A canary in the audit log: the one certificate that the controller issues without a request.

It is written before the canary is used, so that the log has every certificate that a CA signed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from signer.audit.errors import Inconsistent
from signer.audit.values import InvalidValue, read, write
from signer.authority import CANARY

_TOLERANCE: Final = timedelta(minutes=1)
"""Between the signature and the line."""


@dataclass(frozen=True, slots=True)
class CanaryLine:
    """The fields of the line other than those of the chain."""

    cluster: str
    time: datetime
    server: str
    """Address of the API server that it is for."""
    user: str
    serial_number: str
    """Hexadecimal."""
    not_after: datetime
    ca_cert_hash: str
    """The CA that signed it."""
    certificate_digest: str
    """SHA-256 of its DER encoding, hexadecimal."""

    def encode(self) -> bytes:
        """The line as a JSON object."""
        return write(self)


def read_canary_line(content: Mapping[str, Any]) -> CanaryLine:
    """Read and check the fields of a line other than those of the chain.

    Raises:
        InvalidValue: they are not exactly those of a canary.
        Inconsistent: the controller issues no such canary.
    """
    line = read(CanaryLine, content, "canary")
    if not isinstance(line, CanaryLine):
        raise InvalidValue("canary is not a canary")
    if not line.user.startswith(CANARY.user_prefix):
        raise Inconsistent("the certificate's user is no canary's")
    if line.not_after - line.time > CANARY.maximum_duration + _TOLERANCE:
        raise Inconsistent("the canary's certificate is valid for longer than a canary's")
    return line
