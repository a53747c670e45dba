"""A client certificate and its key, parsed before OpenSSL loads them.

A tenant writes its clusters' kubeconfigs, and a key determines how long OpenSSL computes while it loads it: the public
part of a DSA or Diffie-Hellman key of any size, or a passphrase with any number of iterations. That took minutes, and
blocked the process. So OpenSSL only gets what this module parsed and encoded again.
"""

from __future__ import annotations

import binascii
import re

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from signer.authority import CertificateAuthorityUnavailable
from signer.authority.der import encode_block
from signer.authority.private_key import read_private_key

_CERTIFICATE = re.compile(rb"-----BEGIN (CERTIFICATE)-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")
_KEY = re.compile(rb"-----BEGIN ((?:[A-Z0-9]+ )?PRIVATE KEY)-----([A-Za-z0-9+/=\s]+)-----END \1-----")
_WHITE_SPACE = b" \t\r\n\v\f"
_ED25519 = bytes.fromhex("302e020100300506032b657004220420")
"""The bytes before the 32 octets of an Ed25519 key (RFC 8410 section 7)."""
_ED25519_BYTES = 48


class CredentialUnusable(ValueError):
    """There is no certificate or no key, or the key is of a kind that client certificates do not use."""


def certificates_in(text: bytes) -> bytes:
    """The certificates in ``text``, as PEM, without anything else.

    Raises:
        CredentialUnusable: there is none, or one is not base64.
    """
    found = _CERTIFICATE.findall(text)
    if not found:
        raise CredentialUnusable("no certificate")
    return b"".join(encode_block("CERTIFICATE", _decoded(body)) for _, body in found)


def private_key_in(text: bytes) -> bytes:
    """The first private key in ``text``, as in client-go: RSA, ECDSA or Ed25519, unencrypted; returned as PEM, PKCS#8.

    Raises:
        CredentialUnusable: there is none, or one of another kind or size.
    """
    found = _KEY.search(text)
    if found is None:
        raise CredentialUnusable("no private key")
    label, content = found[1].decode("ascii"), _decoded(found[2])
    if len(content) == _ED25519_BYTES and content.startswith(_ED25519):
        return encode_block("PRIVATE KEY", content)
    try:
        key = read_private_key(encode_block(label, content))
    except CertificateAuthorityUnavailable as error:
        raise CredentialUnusable("a private key of an unsupported kind or size") from error
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _decoded(body: bytes) -> bytes:
    try:
        return binascii.a2b_base64(body.translate(None, _WHITE_SPACE), strict_mode=True)
    except binascii.Error as error:
        raise CredentialUnusable("not base64") from error
