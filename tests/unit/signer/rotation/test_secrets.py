"""Secrets of authorities, and the sealed ones that keep pairs."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.model.seal import ControllerKeys, KeyUse, Seals, joined
from signer.rotation.authorities import AuthorityKind, Role
from signer.rotation.bundles import reference_of
from signer.rotation.facts import HeldCertificate, HeldPair, Unusable
from signer.rotation.secrets import (
    SEAL_ANNOTATION,
    NoPair,
    Pair,
    ReadSecret,
    certificate_in,
    decoded,
    read_kept_pair,
    read_secret,
)
from tests.unit.signer.authority.support import ec_key, pem_key
from tests.unit.signer.rotation.certificates import (
    KEYS,
    authority,
    encoded,
    kept,
    key_pem,
    pair_of,
    pair_secret,
    secret,
    service_account_pair,
    third,
)

CA, SA = AuthorityKind.CLUSTER, AuthorityKind.SERVICE_ACCOUNT
OLD, NEW = authority(Role.OLD), authority(Role.NEW)
NAME, OLD_NAME = "ca-abcdefgh", "ca-abcdefgh-old"


def unusable(read: ReadSecret, match: str = "") -> None:
    assert isinstance(read.held, Unusable), read.held
    assert match in read.held.message
    assert "-----BEGIN" not in read.held.message
    assert read.pair == NoPair()


def with_data(**data: bytes) -> dict[str, Any]:
    return secret("ca", {name.replace("_", "."): value for name, value in data.items()})


def test_a_pair() -> None:
    manifest = pair_secret(OLD)
    read = read_secret(CA, manifest)
    assert read.held == HeldPair((reference_of(OLD.certificate),), reference_of(OLD.certificate))
    assert read.pair == pair_of(OLD)
    assert read.manifest is manifest
    assert certificate_in(pair_of(OLD)) == OLD.certificate


def test_a_bundle_is_signed_by_the_one_with_the_key() -> None:
    read = read_secret(CA, with_data(tls_crt=NEW.pem + OLD.pem, tls_key=key_pem(OLD)))
    assert isinstance(read.held, HeldPair)
    assert read.held.signs == reference_of(OLD.certificate)
    assert read.held.bundle == (reference_of(NEW.certificate).digest, reference_of(OLD.certificate).digest)
    assert read.pair == pair_of(OLD)


def test_a_certificate_whose_key_was_deleted() -> None:
    for key in ({}, {"tls_key": b""}):
        assert read_secret(CA, with_data(tls_crt=OLD.pem, **key)).held == HeldCertificate(reference_of(OLD.certificate))
    unusable(read_secret(CA, with_data(tls_crt=OLD.pem + NEW.pem)), "tls.key is missing")


def test_keys_of_service_accounts() -> None:
    pair = service_account_pair()
    manifest = with_data(tls_crt=pair.certificate, tls_key=pair.key)
    read = read_secret(SA, manifest)
    assert read.held == HeldPair((pair.reference,), pair.reference)
    assert read.pair == pair
    unusable(read_secret(CA, manifest), "no CERTIFICATE")
    assert isinstance(read_secret(SA, with_data(tls_crt=OLD.pem, tls_key=key_pem(OLD))).held, HeldPair)
    unusable(read_secret(SA, with_data(tls_crt=pair.key, tls_key=pair.key)), "no PUBLIC KEY")


@pytest.mark.parametrize(
    ("data", "match"),
    [
        ({}, "tls.crt"),
        ({"tls_crt": b"garbage", "tls_key": key_pem(OLD)}, "tls.crt"),
        ({"tls_crt": OLD.pem, "tls_key": b"garbage"}, "tls.key"),
        ({"tls_crt": OLD.pem, "tls_key": key_pem(third())}, "of no certificate"),
        ({"tls_crt": OLD.pem.replace(b"CERTIFICATE", b"X509 CRL"), "tls_key": key_pem(OLD)}, "no CERTIFICATE"),
        ({"tls_crt": OLD.pem * 17, "tls_key": key_pem(OLD)}, "16"),
        ({"tls_crt": OLD.pem + b"\n" * 65536, "tls_key": key_pem(OLD)}, "65536"),
    ],
)
def test_what_is_unusable(data: dict[str, bytes], match: str) -> None:
    unusable(read_secret(CA, with_data(**data)), match)


@pytest.mark.parametrize("data", [[], "x", {"tls.crt": "!"}, {"tls.crt": "ä"}, {"tls.crt": 5}])
def test_data_of_another_form(data: Any) -> None:
    manifest = {**pair_secret(OLD), "data": data}
    if data:
        with pytest.raises(ValueError, match=r"."):
            decoded(manifest)
    unusable(read_secret(CA, manifest))


@given(st.recursive(st.none() | st.text() | st.integers(), lambda of: st.dictionaries(st.text(), of), max_leaves=4))
def test_whatever_data_is_reading_ends(data: Any) -> None:
    read_secret(CA, {"metadata": {}, "data": data})
    read_kept_pair(CA, {"metadata": data, "data": data}, KEYS)


def test_no_key_is_shown() -> None:
    read = read_secret(CA, pair_secret(OLD))
    assert "PRIVATE" not in repr(read)
    assert encoded(key_pem(OLD))[:40] not in repr(read)
    assert "PRIVATE" not in repr(pair_of(OLD))


# Kept pairs


def not_ours(manifest: dict[str, Any], keys: ControllerKeys = KEYS, kind: AuthorityKind = CA) -> None:
    unusable(read_kept_pair(kind, manifest, keys), "this controller did not put it there")


def test_a_kept_pair() -> None:
    manifest = kept(NAME, pair_of(NEW))
    assert manifest["metadata"]["name"] == "blue-ca-abcdefgh"
    assert manifest["metadata"]["labels"] == {"cluster.x-k8s.io/cluster-name": "blue"}
    assert manifest["type"] == "cluster.x-k8s.io/secret"
    (owner,) = manifest["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Cluster", "blue", "cluster-uid")
    assert read_kept_pair(CA, manifest, KEYS) == read_secret(CA, manifest)


def test_a_kept_pair_after_its_key_was_deleted() -> None:
    manifest = kept(OLD_NAME, pair_of(OLD))
    del manifest["data"]["tls.key"]
    assert read_kept_pair(CA, manifest, KEYS).held == HeldCertificate(reference_of(OLD.certificate))
    manifest["data"]["tls.crt"] = encoded(third().pem)
    not_ours(manifest)


def test_a_tenants_own_ca_in_the_rotations_place() -> None:
    """The name can be guessed once the rotation has begun, and created before the controller creates it."""
    not_ours(pair_secret(third(), suffix=NAME))
    forged = kept(NAME, pair_of(third()), ControllerKeys(b"x" * 32))
    not_ours(forged)
    sealed = kept(NAME, pair_of(NEW))
    sealed["data"] = pair_secret(third())["data"]
    not_ours(sealed)


def test_two_kept_pairs_that_are_swapped() -> None:
    new, old = kept(NAME, pair_of(NEW)), kept(OLD_NAME, pair_of(OLD))
    new["data"], old["data"] = old["data"], new["data"]
    not_ours(new)
    not_ours(old)
    annotations = new["metadata"]["annotations"], old["metadata"]["annotations"]
    old["metadata"]["annotations"], new["metadata"]["annotations"] = annotations
    not_ours(new)
    not_ours(old)


@pytest.mark.parametrize("part", ["name", "namespace"])
def test_a_copy_from_another_place(part: str) -> None:
    manifest = copy.deepcopy(kept(NAME, pair_of(NEW)))
    manifest["metadata"][part] = "other"
    not_ours(manifest)


def test_a_seal_that_is_missing_or_of_another_use() -> None:
    manifest = kept(NAME, pair_of(NEW))
    reference = reference_of(NEW.certificate)
    content = joined("tenant", "blue-ca-abcdefgh", reference.digest, reference.public_key_hash)
    assert manifest["metadata"]["annotations"][SEAL_ANNOTATION] == Seals(KEYS, KeyUse.ROTATION_PAIR).seal(content)
    for seal in (Seals(KEYS, KeyUse.ROTATION).seal(content), "", "x"):
        manifest["metadata"]["annotations"][SEAL_ANNOTATION] = seal
        not_ours(manifest)
    del manifest["metadata"]["annotations"]
    not_ours(manifest)


def test_a_further_certificate_is_seen() -> None:
    """The seal covers the pair. The plan refuses a kept pair with more than one certificate."""
    manifest = kept(NAME, pair_of(NEW))
    manifest["data"]["tls.crt"] = encoded(NEW.pem + third().pem)
    held = read_kept_pair(CA, manifest, KEYS).held
    assert isinstance(held, HeldPair)
    assert len(held.certificates) == 2


def test_another_key_for_a_sealed_certificate() -> None:
    manifest = kept(NAME, pair_of(NEW))
    manifest["data"]["tls.key"] = base64.b64encode(pem_key(ec_key(99))).decode("ascii")
    unusable(read_kept_pair(CA, manifest, KEYS), "of no certificate")


def test_keys_of_service_accounts_are_kept_as_well() -> None:
    pair: Pair = service_account_pair()
    manifest = kept("sa-abcdefgh", pair)
    assert read_kept_pair(SA, manifest, KEYS).pair == pair
    other = service_account_pair(62)
    manifest["data"]["tls.crt"], manifest["data"]["tls.key"] = encoded(other.certificate), encoded(other.key)
    not_ours(manifest, kind=SA)
