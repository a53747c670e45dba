"""The Secrets of a cluster's two SSH authorities.

Their names are ``<cluster>-ssh-user`` and ``<cluster>-ssh-host``, beside Cluster API's ``<cluster>-ca``. ``data`` has
the names of Kubernetes' type ``kubernetes.io/ssh-auth`` and its usual companion:

``ssh-privatekey``  the private key, in OpenSSH's format or PKCS#8, unencrypted
``ssh-publickey``   the public key as one line ``type base64``
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from enum import Enum
from typing import Final

from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import parse_key_line
from attestors.wire.ssh.signatures import public_key_of
from signer.authority.ssh.authorities import HostAuthority, UserAuthority
from signer.authority.ssh.errors import SSHAuthorityReason, SSHAuthorityRefused
from signer.authority.ssh.private_key import MAXIMUM_PRIVATE_KEY_BYTES, AuthorityPrivateKey, read_private_key

PRIVATE_KEY_FIELD: Final = "ssh-privatekey"
PUBLIC_KEY_FIELD: Final = "ssh-publickey"
_MAXIMUM_TEXT: Final = 2 * MAXIMUM_PRIVATE_KEY_BYTES


class AuthorityPurpose(Enum):
    """What an authority signs; the value is the suffix of its Secret's name."""

    USER = "ssh-user"
    HOST = "ssh-host"


def user_authority_in(manifest: object) -> UserAuthority:
    """The user authority in the manifest of its Secret.

    Raises:
        SSHAuthorityRefused: ``SecretInvalid``, ``WrongAuthority``, ``KeyMismatch``, or as
            :func:`~signer.authority.ssh.private_key.read_private_key`.
    """
    return UserAuthority(_private_key(manifest, AuthorityPurpose.USER))


def host_authority_in(manifest: object) -> HostAuthority:
    """The host authority in the manifest of its Secret.

    Raises:
        SSHAuthorityRefused: as :func:`user_authority_in`.
    """
    return HostAuthority(_private_key(manifest, AuthorityPurpose.HOST))


def _private_key(manifest: object, purpose: AuthorityPurpose) -> AuthorityPrivateKey:
    document = _mapping(manifest, "the manifest")
    if document.get("kind") != "Secret" or document.get("apiVersion") != "v1":
        raise _invalid("it is not the manifest of one Secret (apiVersion v1, kind Secret)")
    name = _mapping(document.get("metadata"), "metadata").get("name")
    if not isinstance(name, str) or not name.endswith(f"-{purpose.value}"):
        raise SSHAuthorityRefused(
            SSHAuthorityReason.WRONG_AUTHORITY,
            f"the Secret's name does not end in -{purpose.value}, so it is no {_SPOKEN[purpose]} authority; "
            f"give the Secret CLUSTER-{purpose.value}",
        )
    data = _mapping(document.get("data"), "data")
    private_key = read_private_key(_field(data, PRIVATE_KEY_FIELD))
    try:
        stated = parse_key_line(_field(data, PUBLIC_KEY_FIELD).decode("ascii"))
    except (SSHRefused, UnicodeDecodeError):
        raise _invalid(f"{PUBLIC_KEY_FIELD} is not one line `type base64`") from None
    if public_key_of(private_key) != stated:
        raise SSHAuthorityRefused(
            SSHAuthorityReason.KEY_MISMATCH, f"{PRIVATE_KEY_FIELD} is not the private key of {PUBLIC_KEY_FIELD}"
        )
    return private_key


_SPOKEN: Final[Mapping[AuthorityPurpose, str]] = {AuthorityPurpose.USER: "user", AuthorityPurpose.HOST: "host"}


def _mapping(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _invalid(f"{where} is missing, or no mapping")
    return value


def _field(data: Mapping[str, object], name: str) -> bytes:
    value = data.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _MAXIMUM_TEXT:
        raise _invalid(f"data has no {name}, or it is too long")
    try:
        return base64.b64decode(value.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise _invalid(f"{name} is not Base64") from None


def _invalid(what: str) -> SSHAuthorityRefused:
    return SSHAuthorityRefused(
        SSHAuthorityReason.SECRET_INVALID, f"{what}; get it with kubectl get secret CLUSTER-ssh-user --output yaml"
    )
