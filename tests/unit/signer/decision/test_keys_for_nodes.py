from __future__ import annotations

from datetime import timedelta

import pytest

from attestors.wire import statement
from attestors.wire.statement import (
    ClusterIdentity,
    NotPinned,
    PinnedController,
    accept_controller_keys,
    authorities_in,
    statements_in,
)
from signer.authority import IssuingSet
from signer.authority.statement_signing import StatementKeys
from signer.decision.authority_secrets import AuthorityUnavailable
from signer.decision.keys_for_nodes import KeysForNodes
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.cluster import ClusterKey
from signer.model.floors import NO_FLOORS
from signer.model.seal import ControllerKeys, KeyUse
from signer.store.authentic_records import KeysUnavailable
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from tests.support.statements import authority
from tests.unit.signer.controller.support import NOW

START = int(NOW.timestamp())
KEY = ClusterKey("team-a", "prod")
CLUSTER = {"metadata": {"namespace": "team-a", "name": "prod", "uid": "u-1"}, "spec": {}}
OLD, NEW = (authority(name, start=START - 3600) for name in ("old", "new"))
CURRENT, PREVIOUS = ControllerKeys(b"c" * 32), ControllerKeys(b"p" * 32)


class World:
    def __init__(self) -> None:
        self.at = NOW
        self.authorities: IssuingSet | AuthorityUnavailable = IssuingSet.of(OLD)
        self.caches = Caches(
            ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2), own_namespace="own", floors=NO_FLOORS
        )
        self.caches.clusters.applied(CLUSTER)
        self.caches.authentic.use_keys(CURRENT)
        self.keys = KeysForNodes(KEY, caches=self.caches, authority_source=self, now=lambda: self.at)

    async def authority(self) -> IssuingSet:
        if isinstance(self.authorities, AuthorityUnavailable):
            raise self.authorities
        return self.authorities

    async def pinned(self, *trusted: bytes) -> PinnedController:
        """What a node pins that trusts those CAs."""
        (text,) = statements_in(await self.keys.text())
        return accept_controller_keys(
            statement.decode(text),
            trusted=authorities_in(trusted or [OLD.certificate.der]),
            pin=NotPinned(),
            now=int(self.at.timestamp()),
        )


async def test_a_node_pins_what_it_is_given() -> None:
    pin = await World().pinned()
    assert pin.keys == StatementKeys.of(CURRENT.subkeys(KeyUse.STATEMENT)).public
    assert pin.cluster == ClusterIdentity("team-a", "prod", "u-1")
    assert pin.sequence == START


async def test_all_cas_of_the_cluster_sign() -> None:
    world = World()
    world.authorities = IssuingSet(client=OLD, serving=NEW)
    assert await world.pinned(OLD.certificate.der) == await world.pinned(NEW.certificate.der)
    world.authorities = IssuingSet(client=OLD, serving=OLD, also_accepted=(NEW,))
    assert (await world.pinned(NEW.certificate.der)).sequence == START


async def test_it_is_signed_once_an_hour() -> None:
    world = World()
    first = await world.keys.text()
    world.at += timedelta(minutes=59)
    assert await world.keys.text() == first
    world.at += timedelta(minutes=1)
    assert (await world.pinned()).sequence == START + 3600


async def test_new_keys_and_cas_are_handed_out_at_once() -> None:
    world = World()
    before = await world.pinned()
    world.at += timedelta(seconds=1)
    world.caches.authentic.use_keys(ControllerKeys(PREVIOUS.current, CURRENT.current))
    after = await world.pinned()
    assert after.keys.keys[1:] == before.keys.keys
    world.authorities = IssuingSet.of(NEW)
    assert await world.pinned(NEW.certificate.der) == after


@pytest.mark.parametrize("missing", ["cluster", "authority", "key"])
async def test_without_what_it_needs_nothing_is_handed_out(missing: str) -> None:
    world = World()
    if missing == "cluster":
        world.caches.clusters.removed(CLUSTER)
    elif missing == "authority":
        world.authorities = AuthorityUnavailable("CertificateAuthorityMissing", "gone")
    else:
        world.caches.authentic.use_no_keys(KeysUnavailable("unreadable"))
    assert await world.keys.text() == b""


async def test_a_node_client_authority_signs_no_statement() -> None:
    """No node trusts what it signs, so its signature is for nobody."""
    world = World()
    world.authorities = IssuingSet.with_node_client(NEW, OLD)
    assert (await world.pinned(OLD.certificate.der)).sequence == START
    with pytest.raises(statement.StatementRefused):
        await world.pinned(NEW.certificate.der)
