"""The Secrets of one Cluster's rotation, from an API server."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from signer.kube.errors import Cause, Forbidden, Unreachable
from signer.rotation.authorities import AuthorityKind, Role
from signer.rotation.bundles import digest_of, reference_of
from signer.rotation.facts import (
    Absent,
    HeldPair,
    KubeconfigFacts,
    Link,
    SignedByKnown,
    SignedByUnknown,
    TrustFacts,
    Unusable,
)
from signer.rotation.management import (
    RENEWED_BEFORE_END,
    Authorities,
    ManagementSecrets,
    link_in,
    read_secrets,
)
from signer.rotation.phases import Phase, Step
from tests.unit.signer.authority.chains import DAY, new_old, of_our_own, old_new
from tests.unit.signer.authority.support import NOW, ec_key
from tests.unit.signer.rotation.certificates import (
    KEY,
    KEYS,
    Objects,
    administrator,
    as_yaml,
    authority,
    kept,
    key_pem,
    kubeconfig_document,
    pair_of,
    pair_secret,
    secret,
    third,
)
from tests.unit.signer.rotation.situations import record_at

CA, ETCD = AuthorityKind.CLUSTER, AuthorityKind.ETCD
OLD, NEW = authority(Role.OLD), authority(Role.NEW)
RECORD = record_at(Step.ACCEPT, kinds=(CA, ETCD))
LONG = 45 * DAY


def everything() -> Objects:
    return Objects(
        pair_secret(OLD),
        pair_secret(third(), suffix="etcd"),
        kept("ca-abcdefgh", pair_of(NEW)),
        kept("ca-abcdefgh-old", pair_of(OLD)),
        secret(
            "trust",
            {
                "client-ca.crt": OLD.pem + NEW.pem,
                "server-ca.crt": NEW.pem + OLD.pem,
                "link.crt": old_new(OLD, NEW, lifetime=LONG).certificate_pem,
            },
        ),
        secret("kubeconfig", {"value": as_yaml(kubeconfig_document(OLD.pem + NEW.pem, administrator(OLD)))}),
    )


async def read(objects: Objects, now: datetime = NOW) -> ManagementSecrets:
    return await read_secrets(objects, KEY, RECORD, KEYS, now)


def digests(*authorities: Any) -> tuple[str, ...]:
    return tuple(digest_of(one.certificate.der) for one in authorities)


async def test_everything() -> None:
    objects = everything()
    found = await read(objects)
    assert found.authorities.keys() == {CA, ETCD}
    assert found.authorities[CA].secret == HeldPair((reference_of(OLD.certificate),), reference_of(OLD.certificate))
    assert {role: held.signs for role, held in found.authorities[CA].pairs.items() if isinstance(held, HeldPair)} == {
        Role.OLD: reference_of(OLD.certificate),
        Role.NEW: reference_of(NEW.certificate),
    }
    assert found.authorities[ETCD].pairs == {Role.OLD: Absent(), Role.NEW: Absent()}
    assert found.trust == TrustFacts(digests(OLD, NEW), digests(NEW, OLD), Link.OLD_WITH_NEW)
    assert found.kubeconfig == KubeconfigFacts(digests(OLD, NEW), SignedByKnown(*digests(OLD)))
    assert found.pairs == {(CA, Role.OLD): pair_of(OLD), (CA, Role.NEW): pair_of(NEW)}
    assert [one.certificate for one in found.cluster.both] == [OLD.certificate, NEW.certificate]
    assert found.kubeconfig_object["metadata"]["name"] == "blue-kubeconfig"
    assert found.trust_object["metadata"]["name"] == "blue-trust"
    assert "PRIVATE" not in repr(found)


@pytest.mark.parametrize(
    ("by", "client"), [(OLD, SignedByKnown(*digests(OLD))), (NEW, SignedByUnknown()), (third(), SignedByUnknown())]
)
async def test_the_kubeconfig_once_the_kept_pairs_are_deleted(by: Any, client: Any) -> None:
    """The CA of Secret ``<cluster>-ca`` alone is known then. Before the end, what nothing can sign again is not."""
    kubeconfig = {"value": as_yaml(kubeconfig_document(OLD.pem, administrator(by)))}
    objects = Objects(pair_secret(OLD), secret("kubeconfig", kubeconfig))
    abandoned = replace(RECORD, phase=Phase.ABANDONED)
    found = await read_secrets(objects, KEY, abandoned, KEYS, NOW)
    assert found.kubeconfig == KubeconfigFacts(digests(OLD), client)
    assert (await read(objects)).kubeconfig == KubeconfigFacts(digests(OLD), SignedByUnknown())


async def test_nothing() -> None:
    found = await read(Objects())
    assert (found.trust, found.kubeconfig, found.pairs, found.cluster.both) == (Absent(), Absent(), {}, ())
    assert found.authorities[CA].secret == Absent()
    assert (found.trust_object, found.kubeconfig_object) == ({}, {})


@pytest.mark.parametrize("failure", [Forbidden("no", status=403), Unreachable("away", cause=Cause.NETWORK)])
@pytest.mark.parametrize(
    "name", ["blue-ca", "blue-etcd", "blue-ca-abcdefgh", "blue-ca-abcdefgh-old", "blue-trust", "blue-kubeconfig"]
)
async def test_a_secret_that_cannot_be_read_is_not_absent(name: str, failure: Exception) -> None:
    objects = everything()
    objects.failures[f"/api/v1/namespaces/tenant/secrets/{name}"] = failure
    with pytest.raises(type(failure)):
        await read(objects)


async def test_a_tenants_pair_is_not_used() -> None:
    """Neither as a fact, nor to sign, nor to write."""
    objects = everything()
    objects.put(pair_secret(third(), suffix="ca-abcdefgh"))
    found = await read(objects)
    assert isinstance(found.authorities[CA].pairs[Role.NEW], Unusable)
    assert (CA, Role.NEW) not in found.pairs
    assert found.cluster.both == (found.cluster.by_role[Role.OLD],)


async def test_an_expired_ca_signs_nothing_and_is_still_there() -> None:
    found = await read(everything(), NOW + timedelta(days=3660))
    assert found.cluster.both == ()
    assert isinstance(found.authorities[CA].pairs[Role.OLD], HeldPair)


@pytest.mark.parametrize("suffix", ["trust", "kubeconfig"])
async def test_secrets_of_another_form(suffix: str) -> None:
    objects = everything()
    for data in ({"value": "!", "client-ca.crt": "!"}, [1]):
        objects.put({**secret(suffix, {}), "data": data})
        found = await read(objects)
        assert isinstance(found.trust if suffix == "trust" else found.kubeconfig, Unusable)


@pytest.mark.parametrize("part", ["client-ca.crt", "server-ca.crt"])
async def test_a_bundle_that_cannot_be_read(part: str) -> None:
    objects = everything()
    objects.put(secret("trust", {"client-ca.crt": OLD.pem, "server-ca.crt": OLD.pem, part: b"garbage"}))
    assert isinstance((await read(objects)).trust, Unusable)
    objects.put(secret("trust", {"client-ca.crt": OLD.pem, "server-ca.crt": OLD.pem}))
    assert (await read(objects)).trust == TrustFacts(digests(OLD), digests(OLD), Link.NONE)


# Links

LINKABLE = of_our_own("kubernetes", ec_key(45))
CLUSTER = Authorities({Role.OLD: OLD.loaded, Role.NEW: NEW.loaded})


def test_links() -> None:
    assert link_in(b"", CLUSTER, NOW) is Link.NONE
    assert link_in(old_new(OLD, NEW, lifetime=LONG).certificate_pem, CLUSTER, NOW) is Link.OLD_WITH_NEW
    linked = Authorities({Role.OLD: LINKABLE.loaded, Role.NEW: NEW.loaded})
    assert link_in(new_old(LINKABLE, NEW, lifetime=LONG).certificate_pem, linked, NOW) is Link.NEW_WITH_OLD


def test_a_link_of_other_cas() -> None:
    for one in (old_new(third(), NEW, lifetime=LONG), old_new(OLD, of_our_own("x", ec_key(46)), lifetime=LONG)):
        assert link_in(one.certificate_pem, CLUSTER, NOW) is Link.OTHER
    assert link_in(OLD.pem, CLUSTER, NOW) is Link.OTHER, "the CA itself"
    assert link_in(NEW.pem, CLUSTER, NOW) is Link.OTHER


def test_a_link_that_is_about_to_end() -> None:
    link = old_new(OLD, NEW, lifetime=LONG)
    last = link.not_after - RENEWED_BEFORE_END
    assert link_in(link.certificate_pem, CLUSTER, last - timedelta(seconds=1)) is Link.OLD_WITH_NEW
    assert link_in(link.certificate_pem, CLUSTER, last) is Link.OTHER
    begins = link.certificate.not_before
    assert link_in(link.certificate_pem, CLUSTER, begins) is Link.OLD_WITH_NEW
    assert link_in(link.certificate_pem, CLUSTER, begins - timedelta(seconds=1)) is Link.OTHER


def test_a_link_that_ends_with_a_ca_is_not_made_again() -> None:
    """Another one would not end later: it would be written at each pass."""
    ends = min(OLD.certificate.not_after, NEW.certificate.not_after)
    link = old_new(OLD, NEW, lifetime=ends - NOW + DAY)
    assert link.not_after == ends
    assert link_in(link.certificate_pem, CLUSTER, ends - timedelta(seconds=1)) is Link.OLD_WITH_NEW
    assert link_in(link.certificate_pem, CLUSTER, ends) is Link.OTHER


def test_what_is_no_link() -> None:
    link = old_new(OLD, NEW, lifetime=LONG).certificate_pem
    for text in (b"garbage", link * 2, key_pem(OLD)):
        assert link_in(text, CLUSTER, NOW) is Link.OTHER


@pytest.mark.parametrize("role", Role)
def test_without_both_cas_no_link_is_known(role: Role) -> None:
    one = Authorities({role: CLUSTER.by_role[role]})
    assert link_in(old_new(OLD, NEW, lifetime=LONG).certificate_pem, one, NOW) is Link.OTHER
    assert link_in(b"", one, NOW) is Link.NONE
