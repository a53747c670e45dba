"""Key revocation lists (OpenSSH's PROTOCOL.krl): what sshd refuses, whatever the certificate says.

sshd reads the file at each authentication, and refuses every login if it cannot read it. So nothing is written here
that OpenSSH does not read, and serial number 0 above all: one such entry makes the whole list invalid.

Signatures inside a list, which OpenSSH 10.3 removed, are not accepted. Sign the file with SSHSIG.
"""

from __future__ import annotations

from attestors.wire.ssh.krl.parsing import parse_revocation_list
from attestors.wire.ssh.krl.revocation_list import (
    MAXIMUM_ENTRIES,
    MAXIMUM_LIST_BYTES,
    AnyAuthority,
    Authority,
    CertificateRevocations,
    Fingerprint,
    RevocationList,
    parse_fingerprint,
    revoking_both,
)
from attestors.wire.ssh.krl.serials import SerialRange, merged
from attestors.wire.ssh.krl.writing import encode_revocation_list

__all__ = [
    "MAXIMUM_ENTRIES",
    "MAXIMUM_LIST_BYTES",
    "AnyAuthority",
    "Authority",
    "CertificateRevocations",
    "Fingerprint",
    "RevocationList",
    "SerialRange",
    "encode_revocation_list",
    "merged",
    "parse_fingerprint",
    "parse_revocation_list",
    "revoking_both",
]
