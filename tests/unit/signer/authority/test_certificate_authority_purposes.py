"""Which CA signs what, and which CAs evidence may name."""

from __future__ import annotations

from pathlib import Path

import pytest

from attestors.wire.names import Purpose
from signer.authority import CertificateAuthority, IssuingSet, issue, load_certificate_authority
from tests.unit.signer.authority.support import (
    NOW,
    SERVING,
    Made,
    capi_secret,
    ec_key,
    make,
    openssl_verify,
    request,
)

CLIENT_CA, SERVING_CA, HELD, NEXT = (make(name, ec_key(n)) for n, name in enumerate(("client", "serving", "held", "n")))


def loaded(made: Made) -> CertificateAuthority:
    return load_certificate_authority(made.secret(), now=NOW)


def hash_of(made: Made) -> str:
    return loaded(made).certificate.public_key_hash


def test_one_authority_signs_everything() -> None:
    authority = load_certificate_authority(capi_secret(), now=NOW)
    issuing = IssuingSet.of(authority)
    assert {issuing.signer_of(purpose) for purpose in Purpose} == {authority}
    assert issuing.accepted_hashes == authority.ca_certificate_hashes
    assert issuing.waiting_hashes == frozenset()
    assert issuing.not_after == authority.certificate.not_after


def test_one_authority_by_purpose(tmp_path: Path) -> None:
    secrets = capi_secret(1), capi_secret(2)
    client, serving = (load_certificate_authority(secret, now=NOW) for secret in secrets)
    issuing = IssuingSet.by_purpose(client, serving)
    asked = request(), request(usages=SERVING, dns_names=("worker-1",))
    for one, secret, purpose in zip(asked, secrets, ("sslclient", "sslserver"), strict=True):
        openssl_verify(tmp_path, secret["tls.crt"], issue(issuing, one), purpose)
    assert issuing.accepted_hashes == client.ca_certificate_hashes | serving.ca_certificate_hashes


def test_a_held_authority_is_accepted_and_signs_nothing() -> None:
    issuing = IssuingSet(loaded(CLIENT_CA), loaded(CLIENT_CA), also_accepted=(loaded(HELD),))
    assert issuing.accepted_hashes == {hash_of(CLIENT_CA), hash_of(HELD)}
    assert {issuing.signer_of(purpose) for purpose in Purpose} == {loaded(CLIENT_CA)}


def test_an_authority_that_is_only_listed_waits() -> None:
    """A Secret of [CA0, CA1]: which of the two is coming in or going out, it does not say."""
    issuing = IssuingSet.of(load_certificate_authority(CLIENT_CA.secret(NEXT), now=NOW))
    assert issuing.accepted_hashes == {hash_of(CLIENT_CA)}
    assert issuing.waiting_hashes == {hash_of(NEXT)}


def test_what_either_secret_lists_waits() -> None:
    client, serving = CLIENT_CA.secret(NEXT), SERVING_CA.secret(HELD, CLIENT_CA)
    loaded_secrets = (load_certificate_authority(secret, now=NOW) for secret in (client, serving))
    issuing = IssuingSet.by_purpose(*loaded_secrets)
    assert issuing.accepted_hashes == {hash_of(CLIENT_CA), hash_of(SERVING_CA)}
    assert issuing.waiting_hashes == {hash_of(NEXT), hash_of(HELD)}


def test_what_is_accepted_does_not_wait() -> None:
    issuing = IssuingSet(
        loaded(CLIENT_CA),
        loaded(SERVING_CA),
        also_accepted=(loaded(HELD),),
        retired=frozenset(map(hash_of, (CLIENT_CA, SERVING_CA, HELD, NEXT))),
    )
    assert issuing.waiting_hashes == {hash_of(NEXT)}


@pytest.mark.parametrize("first", [True, False])
def test_the_first_that_runs_out_counts(first: bool) -> None:
    soon = make("soon", ec_key(8), not_after=NOW.replace(year=NOW.year + 1))
    pair = (loaded(soon), loaded(CLIENT_CA)) if first else (loaded(CLIENT_CA), loaded(soon))
    assert IssuingSet(*pair).not_after == loaded(soon).certificate.not_after


def test_a_node_client_authority_is_named_by_no_evidence() -> None:
    """It signs nodes' client certificates, and nobody knows the cluster by it."""
    node_client, cluster = loaded(CLIENT_CA), loaded(SERVING_CA)
    issuing = IssuingSet.with_node_client(node_client, cluster)
    assert (issuing.signer_of(Purpose.CLIENT), issuing.signer_of(Purpose.SERVING)) == (node_client, cluster)
    assert issuing.known_to_nodes == (cluster,)
    assert issuing.accepted_hashes == {hash_of(SERVING_CA)}
    assert issuing.waiting_hashes == frozenset()
    assert issuing != IssuingSet.by_purpose(node_client, cluster)
