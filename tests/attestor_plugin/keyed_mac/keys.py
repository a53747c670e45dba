"""Keys and the MAC: what the two plugins must agree on."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from datetime import UTC, datetime
from typing import Final

from attestors.contract import InvalidSettings
from attestors.wire.evidence import MalformedEvidence

KEY_BYTES: Final = 32
MAC_FIELD: Final = "mac"
MAC_BYTES: Final = hashlib.sha256().digest_size
TIME_FIELD: Final = "madeAt"

_TIME_FORM: Final = "%Y-%m-%dT%H:%M:%SZ"
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_MACHINE_KEY_CONTEXT: Final = b"keyed-mac machine key v1"


def derive_machine_key(master_key: bytes, provider_id: str) -> bytes:
    """The key of the machine with this provider ID. The provisioning tool and the controller both compute it.

    HMAC-SHA256 (RFC 2104) under the master key; the provider ID is prefixed with its length (8 bytes, big-endian).

    Raises:
        ValueError: the master key does not have 32 bytes.
    """
    if len(master_key) != KEY_BYTES:
        raise ValueError(f"a master key has {KEY_BYTES} bytes")
    name = provider_id.encode("utf-8")
    return hmac.digest(master_key, _MACHINE_KEY_CONTEXT + len(name).to_bytes(8, "big") + name, "sha256")


def compute_mac(machine_key: bytes, binding_value: bytes, made_at: str) -> bytes:
    """What the evidence holds: HMAC-SHA256, under the machine key, of the binding (32 bytes) and the time's text."""
    return hmac.digest(machine_key, binding_value + made_at.encode("ascii"), "sha256")


def time_text(moment: datetime) -> str:
    """A time in the one form that evidence holds, such as ``2026-01-31T23:59:59Z`` (RFC 3339, UTC, whole seconds)."""
    return moment.astimezone(UTC).strftime(_TIME_FORM)


def time_of(text: str) -> datetime:
    """Read :func:`time_text`.

    Raises:
        MalformedEvidence: the text has another form.
    """
    malformed = MalformedEvidence(f"{TIME_FIELD} must be a time such as 2026-01-31T23:59:59Z")
    if _TIME.fullmatch(text) is None:
        raise malformed
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise malformed from None


def identity_of(machine_key: bytes) -> str:
    """What stays the same for this machine, as long as its key does; says nothing about the key."""
    return "keyed-mac:" + hashlib.sha256(machine_key).hexdigest()


def key_from_setting(name: str, value: object) -> bytes:
    """A 32-byte key from a base64 setting.

    Raises:
        InvalidSettings: it is anything else; the message names the setting and never repeats its value.
    """
    wanted = InvalidSettings(f"{name} must be {KEY_BYTES} bytes in base64")
    if not isinstance(value, str):
        raise wanted
    try:
        key = base64.b64decode(value.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        # "from None": the decoder's own error may quote the setting.
        raise wanted from None
    if len(key) != KEY_BYTES:
        raise wanted
    return key
