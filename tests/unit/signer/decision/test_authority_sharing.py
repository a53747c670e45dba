"""Which CAs of a cluster are compared with those of others."""

from __future__ import annotations

from dataclasses import replace

from signer.authority import IssuingSet, load_certificate_authority
from signer.decision.authority_sharing import hashes_of
from signer.model.authority_sharing import AuthorityHashes
from tests.unit.signer.authority.support import NOW, Made, ec_key, make

ROOT = make("root", ec_key(1))
SIGNING = make("signing", ec_key(2), ROOT)
COPIED = make("of another tenant", ec_key(3))


def hash_of(made: Made) -> str:
    return load_certificate_authority(made.secret(), now=NOW).certificate.public_key_hash


def test_a_listed_certificate_is_no_key_and_no_issuer() -> None:
    """Otherwise a tenant that copies another's certificate would have the other's nodes wait."""
    secret = SIGNING.secret(COPIED, ROOT) | {"ca.crt": COPIED.pem}
    found = hashes_of(IssuingSet.of(load_certificate_authority(secret, now=NOW)))
    assert found == AuthorityHashes(frozenset({hash_of(SIGNING)}), frozenset({hash_of(ROOT)}))


def test_every_ca_with_its_key_counts() -> None:
    """That of node clients alone too, and those of a rotation that do not sign."""
    root, signing, other = (load_certificate_authority(one.secret(), now=NOW) for one in (ROOT, SIGNING, COPIED))
    node_client = IssuingSet.with_node_client(other, signing)
    assert hashes_of(node_client).keys == {hash_of(COPIED), hash_of(SIGNING)}
    rotating = replace(IssuingSet.of(signing), also_accepted=(root,), retired=frozenset({hash_of(COPIED)}))
    assert hashes_of(rotating).keys == {hash_of(ROOT), hash_of(SIGNING)}


def test_an_issuer_whose_key_the_cluster_has_is_a_key() -> None:
    chained = load_certificate_authority(SIGNING.secret(ROOT), now=NOW)
    root = load_certificate_authority(ROOT.secret(), now=NOW)
    found = hashes_of(replace(IssuingSet.of(chained), also_accepted=(root,)))
    assert found == AuthorityHashes(frozenset({hash_of(ROOT), hash_of(SIGNING)}))
