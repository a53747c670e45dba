"""Private keys with a passphrase: the message says how to decrypt a copy."""

from __future__ import annotations

from typing import Final

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from signer.authority.ssh.errors import SSHAuthorityReason, SSHAuthorityRefused
from signer.authority.ssh.private_key import read_private_key
from tests.support.openssh import private_key

BY_SSH_KEYGEN: Final = b"""\
-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAACmFlczI1Ni1jdHIAAAAGYmNyeXB0AAAAGAAAABBro0p+jO
lyKpK1UwblfeIAAAAAEAAAAAEAAAAzAAAAC3NzaC1lZDI1NTE5AAAAIN2ZYCZxFKMCESx1
REXs+436uXGJcccMQDfcwOifjygHAAAAkFKPzIlePH12XUA5TZ4mY0Q11mKL7vDo7UF+wb
Jlzfq0x4299W6Wq6Ls6WoxIVJz7ssm3VGtidvSrMA/3njLMEnYyOwPEoXi0CMD23Pnl1MQ
RSAIZ6hORt5icgIPh7BejwHhW7XMiLrlzEAwkeMkeIvYZGq18qOXpcH3cC+aFnZ4vK09/X
GXeIFRNps86n8Xzw==
-----END OPENSSH PRIVATE KEY-----
"""
"""Made for this, with passphrase `secret`; it vouches for nothing."""
AS_PKCS8: Final = private_key("ed25519").private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
)


@pytest.mark.parametrize("text", [BY_SSH_KEYGEN, AS_PKCS8], ids=["OpenSSH", "PKCS8"])
def test_an_encrypted_key(text: bytes) -> None:
    with pytest.raises(SSHAuthorityRefused, match="ssh-keygen -p") as refused:
        read_private_key(text)
    assert refused.value.reason is SSHAuthorityReason.KEY_ENCRYPTED
