"""Private keys of SSH authorities: Ed25519, or ECDSA P-384 where FIPS 140 is asked for."""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

from signer.authority.ssh.errors import SSHAuthorityReason, SSHAuthorityRefused

AuthorityPrivateKey: TypeAlias = Ed25519PrivateKey | ec.EllipticCurvePrivateKey

MAXIMUM_PRIVATE_KEY_BYTES: Final = 4096
_OPENSSH: Final = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_SUPPORTED: Final = "use Ed25519 or ECDSA P-384"
_CURVE: Final = "secp384r1"


class AuthorityAlgorithm(Enum):
    """The kinds of keys that an authority may have."""

    ED25519 = "ed25519"
    ECDSA_P384 = "ecdsa-p384"


def new_private_key(algorithm: AuthorityAlgorithm = AuthorityAlgorithm.ED25519) -> AuthorityPrivateKey:
    """A new random key."""
    if algorithm is AuthorityAlgorithm.ED25519:
        return Ed25519PrivateKey.generate()
    return ec.generate_private_key(ec.SECP384R1())


def read_private_key(text: bytes) -> AuthorityPrivateKey:
    """Read an unencrypted private key, in OpenSSH's format or PKCS#8.

    Raises:
        SSHAuthorityRefused: ``KeyInvalid``, ``KeyEncrypted`` or ``KeyUnsupported``.
    """
    if len(text) > MAXIMUM_PRIVATE_KEY_BYTES:
        raise _unsupported()
    load = load_ssh_private_key if text.lstrip().startswith(_OPENSSH) else load_pem_private_key
    # "from None" everywhere: a library's error text might quote the key.
    try:
        # A tenant writes the Secrets. To prove an RSA key's primes takes a second, and no RSA key is accepted.
        key = load(text, password=None, unsafe_skip_rsa_key_validation=True)
    except TypeError:
        raise _encrypted() from None
    except UnsupportedAlgorithm:
        raise _unsupported() from None
    except (ValueError, NotImplementedError):  # the latter for compressed points in OpenSSH's format
        raise SSHAuthorityRefused(
            SSHAuthorityReason.KEY_INVALID,
            f"the authority's private key is damaged, or no private key in OpenSSH's format or PKCS#8; {_SUPPORTED}",
        ) from None
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == _CURVE:
        return key
    if isinstance(key, Ed25519PrivateKey):
        return key
    raise _unsupported()


def _encrypted() -> SSHAuthorityRefused:
    return SSHAuthorityRefused(
        SSHAuthorityReason.KEY_ENCRYPTED,
        "the authority's private key is protected by a passphrase; decrypt a copy with ssh-keygen -p",
    )


def _unsupported() -> SSHAuthorityRefused:
    return SSHAuthorityRefused(
        SSHAuthorityReason.KEY_UNSUPPORTED, f"the authority's private key is of another kind; {_SUPPORTED}"
    )
