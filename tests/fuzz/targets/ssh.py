"""SSH: what nodes and users send, and the files of the offline commands."""

from __future__ import annotations

from typing import Final

from attestors.wire.ssh.certificate import SignedCertificate, parse_certificate
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import key_line, parse_key_file, parse_key_line
from attestors.wire.ssh.keys import PublicKey, parse_public_key
from attestors.wire.ssh.krl import RevocationList, encode_revocation_list, parse_revocation_list
from attestors.wire.ssh.sshsig import SSHSignature, parse_armored, parse_sshsig
from signer.authority.ssh.authorities import UserAuthority
from signer.authority.ssh.derivation import MasterSecret, parse_master_secret
from signer.authority.ssh.errors import SSHAuthorityRefused
from signer.authority.ssh.private_key import AuthorityPrivateKey, read_private_key
from signer.authority.ssh.secret import user_authority_in
from tests.fuzz.target import Shape, Target, object_of, require, unicode_of


def _public_key(data: bytes) -> PublicKey:
    key = parse_public_key(data)
    require(key.blob == data, "not the only encoding")
    return key


def _key_line(data: bytes) -> PublicKey:
    text = unicode_of(data)
    key = parse_key_line(text)
    require(key_line(key) == text, "not the only line")
    return key


def _certificate(data: bytes) -> SignedCertificate:
    signed = parse_certificate(data)
    require(signed.blob == data, "not the only encoding")
    return signed


def _signature(data: bytes) -> SSHSignature:
    signed = parse_sshsig(data)
    require(signed.blob == data, "not the only encoding")
    return signed


def _armored(data: bytes) -> SSHSignature:
    text = unicode_of(data)
    signed = parse_armored(text)
    require(signed.armored == text, "not the only text")
    return signed


def _revocation_list(data: bytes) -> RevocationList:
    revocations = parse_revocation_list(data)
    require(parse_revocation_list(encode_revocation_list(revocations)) == revocations, "written, it is another list")
    return revocations


def _authority(data: bytes) -> UserAuthority:
    return user_authority_in(object_of(data))


def _master_secret(data: bytes) -> MasterSecret:
    return parse_master_secret(data)


def _private_key(data: bytes) -> type[AuthorityPrivateKey]:
    return type(read_private_key(data))


TARGETS: Final = (
    Target("ssh-public-key", _public_key, (SSHRefused,)),
    Target("ssh-key-line", _key_line, (SSHRefused,)),
    Target("ssh-key-file", parse_key_file, (SSHRefused,)),
    Target("ssh-certificate", _certificate, (SSHRefused,)),
    Target("ssh-signature", _signature, (SSHRefused,)),
    Target("ssh-signature-text", _armored, (SSHRefused,)),
    Target("ssh-revocation-list", _revocation_list, (SSHRefused,)),
    Target("ssh-master-secret", _master_secret, (SSHAuthorityRefused,), Shape.JSON),
    Target("ssh-authority", _authority, (SSHAuthorityRefused,), Shape.JSON),
    Target("ssh-private-key", _private_key, (SSHAuthorityRefused,)),
)
