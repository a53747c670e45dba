"""Bundles that others wrote: read leniently, within bounds, and only compared."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.rotation.authorities import Role
from signer.rotation.bundles import (
    MAXIMUM_BYTES,
    MAXIMUM_CERTIFICATES,
    NO_END,
    UnreadableBundle,
    bundle_of,
    digest_of,
    digests_in,
    is_issued_by,
    public_key_of,
    read_bundle,
    reference_of,
    reference_of_key,
)
from tests.unit.signer.authority.chains import der
from tests.unit.signer.rotation.certificates import administrator, authority, third

OLD, NEW = authority(Role.OLD), authority(Role.NEW)
BLOCKS = st.lists(st.binary(min_size=1, max_size=100), max_size=20)


@given(BLOCKS)
def test_what_was_bundled_is_read(certificates: list[bytes]) -> None:
    assert read_bundle(bundle_of(*certificates)) == tuple(certificates)
    assert digests_in(bundle_of(*certificates)) == tuple(hashlib.sha256(one).hexdigest() for one in certificates)


@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_whatever_the_text_is_it_is_read_or_unreadable(text: bytes) -> None:
    found = read_bundle(text)
    assert isinstance(found, tuple | UnreadableBundle)
    assert isinstance(digests_in(text), UnreadableBundle) is isinstance(found, UnreadableBundle)


@pytest.mark.parametrize("text", [b"", b"\n", b" \n\t"])
def test_an_empty_text_has_no_certificates(text: bytes) -> None:
    assert read_bundle(text) == digests_in(text) == ()


def test_six_hundred_cas_are_read() -> None:
    """extension-apiserver-authentication was seen with 550."""
    found = digests_in(OLD.pem * 600)
    assert found == (digest_of(OLD.certificate.der),) * 600


def test_bounds() -> None:
    assert isinstance(read_bundle(bundle_of(*[b"x"] * MAXIMUM_CERTIFICATES)), tuple)
    assert isinstance(read_bundle(bundle_of(*[b"x"] * (MAXIMUM_CERTIFICATES + 1))), UnreadableBundle)
    small = bundle_of(b"x")
    assert isinstance(read_bundle(b"\n" * (MAXIMUM_BYTES - len(small)) + small), tuple)
    assert isinstance(read_bundle(b"\n" * (MAXIMUM_BYTES - len(small) + 1) + small), UnreadableBundle)


@pytest.mark.parametrize("text", [b"garbage", OLD.pem[:-5], OLD.pem + b"-----BEGIN CERTIFICATE-----\n"])
def test_a_block_that_is_unreadable_makes_the_bundle_unreadable(text: bytes) -> None:
    found = read_bundle(text)
    assert isinstance(found, UnreadableBundle)
    assert "garbage" not in found.message


def test_references() -> None:
    made = reference_of(OLD.certificate)
    assert made.digest == hashlib.sha256(OLD.certificate.der).hexdigest()
    assert (made.public_key_hash, made.not_after) == (OLD.certificate.public_key_hash, OLD.certificate.not_after)
    key = reference_of_key(OLD.certificate.subject_public_key_info)
    assert (key.public_key_hash, key.not_after) == (made.public_key_hash, NO_END)
    assert key.public_key_hash == f"sha256:{key.digest}"
    assert public_key_of(OLD.signer.key) == OLD.certificate.subject_public_key_info


def test_who_issued_a_certificate() -> None:
    leaf = der(administrator(OLD))
    assert is_issued_by(leaf, OLD.certificate)
    assert not is_issued_by(leaf, NEW.certificate)
    assert not is_issued_by(leaf, third().certificate), "the same name, and another key"
    assert not is_issued_by(b"garbage", OLD.certificate)
    assert not is_issued_by(b"", OLD.certificate)
