"""Clusters with a CA in common are found by what the controller read, and by what it published and sealed."""

from __future__ import annotations

from typing import Any, Final

import pytest

from signer.model.authority_sharing import (
    EVERYTHING_SHARED,
    NO_SHARING,
    NOT_SHARED,
    AuthorityHashes,
    SharedAuthorities,
    SharingGroup,
    SharingGroups,
)
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.model.reasons import Reason
from signer.model.seal import ControllerKeys
from signer.store.authority_index import MOST_WOKEN, WAKE_AGAIN_SECONDS, WAKES_AT_ONCE, AuthorityIndex
from signer.store.published_authorities import (
    MAXIMUM_HASHES,
    NOTHING_PUBLISHED,
    authorities_to_publish,
    read_published_authorities,
)

MINE, OTHER, THIRD = (ClusterKey(f"team-{name}", "prod") for name in "abc")
KEYS: Final = ControllerKeys(bytes(32))
UID: Final = "uid-1"


def hash_of(number: int) -> str:
    return f"sha256:{number:064x}"


def authority(key: int, *issuers: int) -> AuthorityHashes:
    return AuthorityHashes(frozenset({hash_of(key)}), frozenset(map(hash_of, issuers)))


def keys_are(*numbers: int) -> SharedAuthorities:
    return SharedAuthorities(keys=frozenset(map(hash_of, numbers)))


def issuers_are(*numbers: int) -> SharedAuthorities:
    return SharedAuthorities(issuers=frozenset(map(hash_of, numbers)))


def policy(of: ClusterKey, hashes: AuthorityHashes, *, under: ControllerKeys = KEYS, **changes: Any) -> dict[str, Any]:
    field = authorities_to_publish(of, UID, hashes, under) | changes
    return {"metadata": {"uid": UID}, "status": {"certificateAuthorities": field}}


class World:
    """The index, and what it asks of the caches."""

    def __init__(self) -> None:
        self.existing = {MINE, OTHER, THIRD}
        self.served = {MINE, OTHER, THIRD}
        self.keys: ControllerKeys | None = KEYS
        self.keys_read = 0
        self.woken: list[ClusterKey] = []
        self.now = 0.0
        self.index = AuthorityIndex(
            self._keys,
            self.existing.__contains__,
            self.served.__contains__,
            wake=self.woken.append,
            monotonic=lambda: self.now,
        )

    def _keys(self) -> ControllerKeys:
        self.keys_read += 1
        if self.keys is None:
            raise Deferred(Reason.CONTROLLER_KEY_UNAVAILABLE, "none")
        return self.keys

    def shared(self, hashes: AuthorityHashes, groups: SharingGroups = NO_SHARING) -> SharedAuthorities:
        return self.index.shared(MINE, hashes, groups)


@pytest.fixture
def world() -> World:
    return World()


def test_a_cluster_shares_nothing_with_itself(world: World) -> None:
    world.index.loaded(MINE, authority(1, 2))
    world.index.shows(MINE, policy(MINE, authority(1, 2)))
    world.index.loaded(OTHER, authority(3, 4))
    assert world.shared(authority(1, 2)) == NOT_SHARED


def test_one_key(world: World) -> None:
    world.index.loaded(OTHER, authority(1))
    assert world.shared(authority(1, 2)) == keys_are(1)


def test_one_issuer(world: World) -> None:
    world.index.loaded(OTHER, authority(3, 2))
    assert world.shared(authority(1, 2)) == issuers_are(2)


def test_the_other_clusters_ca_signed_ours(world: World) -> None:
    """The other one's nodes name it, so it does not count here. The other itself keeps it."""
    world.index.loaded(OTHER, authority(2))
    world.index.loaded(MINE, authority(1, 2))
    assert world.shared(authority(1, 2)) == issuers_are(2)
    assert world.index.shared(OTHER, authority(2), NO_SHARING) == NOT_SHARED


def test_the_operators_word(world: World) -> None:
    world.index.loaded(OTHER, authority(1, 2))
    both = SharingGroups((SharingGroup(frozenset({MINE.namespace}), frozenset({OTHER})),))
    assert world.shared(authority(1, 2), both) == world.shared(authority(1, 2), EVERYTHING_SHARED) == NOT_SHARED
    world.index.loaded(THIRD, authority(1))
    assert world.shared(authority(1, 2), both) == keys_are(1)


def test_a_cluster_without_a_policy_is_not_served(world: World) -> None:
    world.index.loaded(OTHER, authority(1))
    world.existing.remove(OTHER)
    assert world.shared(authority(1)) == NOT_SHARED


def test_what_another_replica_published(world: World) -> None:
    world.index.shows(OTHER, policy(OTHER, authority(1, 2)))
    world.served.remove(OTHER)
    assert world.shared(authority(1, 3)) == keys_are(1)
    assert world.shared(authority(3, 2)) == issuers_are(2)


def test_what_this_replica_reads_counts_more_than_what_is_published(world: World) -> None:
    world.index.shows(OTHER, policy(OTHER, authority(1)))
    world.index.loaded(OTHER, authority(2))
    assert world.shared(authority(1)) == NOT_SHARED
    world.served.remove(OTHER)
    assert world.shared(authority(1)) == keys_are(1)
    assert world.shared(authority(2)) == NOT_SHARED


FORGED = {
    "without a seal": policy(OTHER, authority(1), seal=""),
    "sealed with another key": policy(OTHER, authority(1), under=ControllerKeys(bytes(31) + b"x")),
    "sealed for another cluster": policy(THIRD, authority(1)),
    "sealed for another policy": policy(OTHER, authority(1)) | {"metadata": {"uid": "uid-2"}},
    "another CA": policy(OTHER, authority(2), keys=[hash_of(1)]),
    "an issuer as a key": policy(OTHER, authority(0, 1), keys=[hash_of(0), hash_of(1)], issuers=[]),
}


@pytest.mark.parametrize("manifest", FORGED.values(), ids=FORGED)
def test_a_tenant_that_writes_its_policys_status_has_nobody_wait(world: World, manifest: dict[str, Any]) -> None:
    world.index.shows(OTHER, manifest)
    assert world.shared(authority(1)) == NOT_SHARED


MALFORMED: tuple[Any, ...] = (
    None,
    [],
    {"keys": hash_of(1)},
    {"keys": [hash_of(1)] * (MAXIMUM_HASHES + 1)},
    {"keys": [hash_of(1).upper()]},
    {"keys": [hash_of(1) + "\n"]},
    {"keys": [1]},
    {"keys": [hash_of(1)], "seal": "x" * 129},
)


@pytest.mark.parametrize("field", MALFORMED)
def test_a_malformed_status_is_as_none(world: World, field: Any) -> None:
    world.index.shows(OTHER, {"metadata": {"uid": UID}, "status": {"certificateAuthorities": field}})
    world.keys = None  # nothing is looked up
    assert world.shared(authority(1)) == NOT_SHARED
    assert read_published_authorities({"status": {"certificateAuthorities": field}}) == NOTHING_PUBLISHED


@pytest.mark.parametrize("manifest", FORGED.values(), ids=FORGED)
def test_a_status_that_a_tenant_writes_again_and_again_wakes_nobody(world: World, manifest: dict[str, Any]) -> None:
    """It would have another Cluster's requests decided each time, and its attestors and its API server asked."""
    world.index.loaded(MINE, authority(1))
    world.index.shows(OTHER, manifest)
    world.index.shows(OTHER, {})
    world.index.shows(OTHER, manifest)
    world.index.policy_gone(OTHER)
    assert world.woken == []


def test_requests_look_at_no_seal(world: World) -> None:
    """Five thousand policies of a tenant that list another Cluster's CA cost 0.2 seconds for each of its requests, when
    each seal was verified for each request.
    """
    for number in range(100):
        one = ClusterKey("evil", f"c{number}")
        world.existing.add(one)
        world.index.shows(one, policy(THIRD, authority(1)))
    read = world.keys_read
    assert world.shared(authority(1)) == NOT_SHARED
    assert world.keys_read == read


def test_without_the_controller_key_what_others_published_cannot_be_judged(world: World) -> None:
    assert world.shared(authority(1)) == NOT_SHARED
    world.keys = None
    world.index.shows(OTHER, policy(OTHER, authority(1)))
    with pytest.raises(Deferred):
        world.shared(authority(1))
    world.keys = KEYS
    assert world.shared(authority(1)) == keys_are(1)
    assert world.shared(authority(2)) == NOT_SHARED


def test_another_controller_key_decides_again_what_counts(world: World) -> None:
    later = ControllerKeys(bytes(31) + b"x")
    world.index.shows(OTHER, policy(OTHER, authority(1)))
    world.index.shows(THIRD, policy(THIRD, authority(2), under=later))
    assert world.shared(authority(1, 2)) == keys_are(1)
    world.keys = later
    world.index.keys_changed()
    assert world.shared(authority(1, 2)) == issuers_are(2)


def test_more_issuers_than_a_status_holds(world: World) -> None:
    world.index.shows(OTHER, policy(OTHER, authority(1, *range(100, 200))))
    assert world.shared(authority(1)) == keys_are(1)


def test_clusters_are_woken_by_changes_of_those_with_a_ca_in_common(world: World) -> None:
    world.index.loaded(MINE, authority(1, 2))
    world.index.loaded(THIRD, authority(4))
    world.index.loaded(OTHER, authority(3, 2))
    assert world.woken == [MINE]
    world.index.loaded(OTHER, authority(3, 2))
    assert world.woken == [MINE]
    world.index.loaded(OTHER, authority(5))
    assert world.woken == [MINE, MINE]
    world.index.shows(OTHER, policy(OTHER, authority(1)))
    assert world.woken == [MINE] * 3
    world.index.cluster_gone(OTHER)
    assert world.woken == [MINE] * 4
    world.index.policy_gone(OTHER)
    assert world.woken == [MINE] * 5
    assert world.shared(authority(1, 2)) == NOT_SHARED


def required(world: World, groups: SharingGroups = NO_SHARING) -> bool:
    """Whether a request of ``MINE`` waits for CAs that are not read."""
    try:
        world.index.require_read(MINE, groups)
    except Deferred as error:
        return error.defer.reason == Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE
    return False


def test_at_the_start_requests_wait_until_each_ca_has_an_answer(world: World) -> None:
    world.index.reading([MINE, OTHER, THIRD])
    assert required(world)
    world.index.loaded(OTHER, authority(1))
    assert required(world)
    assert world.woken == []
    world.index.answered(THIRD)
    assert not required(world), "it waits for its own"
    world.index.loaded(MINE, authority(2))
    assert world.woken == [MINE]
    world.index.reading_ended()
    assert world.woken == [MINE]


@pytest.mark.parametrize("gone", [AuthorityIndex.cluster_gone, AuthorityIndex.policy_gone])
def test_what_is_gone_is_not_waited_for(world: World, gone: Any) -> None:
    world.index.reading([OTHER])
    assert required(world)
    gone(world.index, OTHER)
    assert not required(world)
    assert world.woken == [MINE]


def test_what_may_share_is_not_waited_for(world: World) -> None:
    world.index.reading([OTHER])
    both = SharingGroups((SharingGroup(frozenset({MINE.namespace}), frozenset({OTHER})),))
    assert not required(world, both)
    assert not required(world, EVERYTHING_SHARED)
    world.index.reading([THIRD])
    assert required(world, both)
    assert not required(world, EVERYTHING_SHARED)


def test_the_wait_ends_with_reads_that_have_no_answer(world: World) -> None:
    world.index.reading([OTHER])
    assert required(world)
    world.index.reading_ended()
    assert not required(world)
    assert (world.woken, world.index.unread) == ([MINE], frozenset())


def test_what_was_read_at_the_start_counts_until_another_replica_publishes(world: World) -> None:
    world.served.remove(OTHER)
    world.index.loaded(OTHER, authority(1))
    assert world.shared(authority(1)) == keys_are(1)
    world.index.shows(OTHER, FORGED["without a seal"])
    assert world.shared(authority(1)) == keys_are(1)
    world.index.shows(OTHER, policy(OTHER, authority(2)))
    assert world.shared(authority(1)) == NOT_SHARED
    world.served.add(OTHER)
    assert world.shared(authority(1)) == keys_are(1), "it is served here now, and what was read is newer"
    world.index.loaded(OTHER, authority(3))
    assert world.shared(authority(1)) == NOT_SHARED
    world.index.policy_gone(OTHER)
    assert world.index.of_namespace(OTHER.namespace) == ()


def test_a_sealed_status_that_is_taken_away_and_put_back_wakes_others_at_a_bounded_rate(world: World) -> None:
    world.index.loaded(MINE, authority(1, 2))
    sealed = policy(OTHER, authority(3, 2))
    for _ in range(100):
        world.index.shows(OTHER, sealed)
        world.index.shows(OTHER, {})
    assert world.woken == [MINE] * WAKES_AT_ONCE
    world.now += WAKE_AGAIN_SECONDS
    world.index.shows(OTHER, sealed)
    world.index.shows(OTHER, {})
    assert world.woken == [MINE] * (WAKES_AT_ONCE + 1)


def test_a_change_wakes_a_bounded_number_of_clusters(world: World) -> None:
    """A thousand Clusters with one root would wake each other a million times when the controller starts."""
    for number in range(2 * MOST_WOKEN):
        world.index.loaded(ClusterKey("many", f"c{number}"), authority(100 + number, 2))
    world.woken.clear()
    world.now += 1000 * WAKE_AGAIN_SECONDS
    world.index.loaded(MINE, authority(1, 2))
    assert len(world.woken) == MOST_WOKEN
