"""Private keys of other kinds in a Secret, which a tenant writes."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from signer.authority.ssh.errors import SSHAuthorityReason, SSHAuthorityRefused
from signer.authority.ssh.private_key import read_private_key


@pytest.mark.parametrize("form", [PrivateFormat.OpenSSH, PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_an_rsa_key_is_refused_before_its_numbers_are_proven(form: PrivateFormat) -> None:
    """A proof takes 0.9 s for the longest key, and the controller would do nothing else. This key has none."""
    own, other = (rsa.generate_private_key(65537, 2048).private_numbers() for _ in range(2))
    numbers = rsa.RSAPrivateNumbers(
        own.p, own.q, other.d, own.dmp1, own.dmq1, own.iqmp, rsa.RSAPublicNumbers(65537, own.public_numbers.n)
    )
    key = numbers.private_key(unsafe_skip_rsa_key_validation=True)
    with pytest.raises(ValueError, match=r"(?i)key"):
        numbers.private_key()
    with pytest.raises(SSHAuthorityRefused) as refused:
        read_private_key(key.private_bytes(Encoding.PEM, form, NoEncryption()))
    assert refused.value.reason is SSHAuthorityReason.KEY_UNSUPPORTED
