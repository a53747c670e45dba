"""Numbers of a key revocation list's sections (PROTOCOL.krl)."""

from __future__ import annotations

import enum
from typing import Final

MAGIC: Final = b"SSHKRL\n\0"
FORMAT_VERSION: Final = 1


class Section(enum.IntEnum):
    """What a section holds."""

    CERTIFICATES = 1
    EXPLICIT_KEYS = 2
    FINGERPRINTS_SHA256 = 5


class CertificateSection(enum.IntEnum):
    """What a part of a section of certificates holds."""

    SERIAL_LIST = 0x20
    SERIAL_RANGE = 0x21
    SERIAL_BITMAP = 0x22
    KEY_IDS = 0x23
