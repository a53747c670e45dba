"""The break-glass authority of a master secret that a policy names: RFC 016 of Constellation, literally. Pure.

The Secret's ``data`` has ``master-secret.json``, the file that ``ssh-sign --master-secret`` reads: JSON with ``key``
and ``salt``. Only the authority's public key leaves this module; messages never quote the Secret.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from attestors.wire.ssh.keys import PublicKey
from signer.authority.ssh.derivation import (
    MAXIMUM_MASTER_SECRET_BYTES,
    derive_user_authority,
    parse_master_secret,
)
from signer.authority.ssh.errors import SSHAuthorityRefused
from signer.kube.client import JsonObject
from signer.model.fields import mapping_of, text_of
from signer.model.ssh_access import MasterSecretReference

MASTER_SECRET_FIELD: Final = "master-secret.json"  # noqa: S105 - a name


@dataclass(frozen=True, slots=True)
class DerivedKeys:
    """The public key of each generation."""

    public_keys: Mapping[int, PublicKey]


@dataclass(frozen=True, slots=True)
class NotDerived:
    """There is no authority; the message says why."""

    message: str


def derived_keys(manifest: JsonObject, reference: MasterSecretReference) -> DerivedKeys | NotDerived:
    """The public keys of its authorities; ``manifest`` is empty if there is no such Secret."""
    where = f"Secret {reference.name} of spec.ssh.masterSecretRef"
    if not manifest:
        return NotDerived(f"{where} does not exist")
    text = text_of(mapping_of(manifest, "data"), MASTER_SECRET_FIELD)
    if not text:
        return NotDerived(f"{where} has no {MASTER_SECRET_FIELD}")
    if len(text) > 2 * MAXIMUM_MASTER_SECRET_BYTES:
        return NotDerived(f"{where}: {MASTER_SECRET_FIELD} has more than {MAXIMUM_MASTER_SECRET_BYTES} bytes")
    try:
        master = parse_master_secret(base64.b64decode(text.encode("ascii"), validate=True))
        return DerivedKeys(
            {number: derive_user_authority(master, generation=number).public_key for number in reference.generations}
        )
    except SSHAuthorityRefused as error:
        return NotDerived(f"{where}: {error.message}")
    except (binascii.Error, UnicodeEncodeError):
        return NotDerived(f"{where}: {MASTER_SECRET_FIELD} is not Base64")
