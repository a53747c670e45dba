"""Bounds for removed bindings in the controller's namespace, so that no tenant takes the space of others."""

from __future__ import annotations

from typing import Any

import pytest

from signer.kube.errors import Forbidden
from signer.kube.resources import CLUSTER_ROLES, CONFIG_MAPS
from signer.model.auto_approval import ClusterIdentity, ClusterRoleBinding
from signer.model.cluster import ClusterKey
from signer.model.saved_bindings import MAXIMUM_SAVED_BINDINGS, BindingsNotSaved, saved_name
from signer.store import removed_bindings as module
from signer.store.removed_bindings import SAVED_LABEL
from tests.unit.signer.store.removed_bindings_fixtures import NAMESPACE, OWNER, ROLE, removed_bindings
from tests.unit.signer.store.test_removed_bindings import Kept


async def test_more_bindings_than_fit_are_not_saved() -> None:
    kept = Kept()
    many = [ClusterRoleBinding(f"b{number}", "u", "1", ROLE, ()) for number in range(MAXIMUM_SAVED_BINDINGS + 1)]
    with pytest.raises(BindingsNotSaved, match="more than 64"):
        await kept.grants.save(OWNER, many)
    large = [ClusterRoleBinding(f"b{n}", "u", "1", ROLE, (), annotations={"x": "y" * 15_000}) for n in range(20)]
    with pytest.raises(BindingsNotSaved, match="64 KiB"):
        await kept.grants.save(OWNER, large)
    assert kept.api.objects.keys() == {CLUSTER_ROLES.object(ROLE)}


async def test_a_namespace_uses_only_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters with ever new names are created and deleted, and their saved bindings stay."""
    monkeypatch.setattr(module, "MAXIMUM_CLUSTERS_OF_NAMESPACE", 2)
    kept = Kept()
    one, two, three = (ClusterIdentity(ClusterKey("team-a", name), "u", "h") for name in ("one", "two", "three"))
    for owner in (one, two, two):
        await kept.grants.save(owner, [])
    with pytest.raises(BindingsNotSaved, match=f"2 clusters of namespace team-a.*{SAVED_LABEL}=team-a"):
        await kept.grants.save(three, [])
    await kept.grants.save(ClusterIdentity(ClusterKey("team-b", "three"), "u", "h"), [])
    # A restarted controller counts the existing ConfigMaps, and no deleted ones.
    kept.grants = removed_bindings(kept.api)
    assert len(await kept.grants.owners()) == 3
    with pytest.raises(BindingsNotSaved, match="are gone"):
        await kept.grants.save(three, [])
    await kept.api.delete(CONFIG_MAPS.object(saved_name(one.key), NAMESPACE))
    await kept.grants.owners()
    await kept.grants.save(three, [])


async def test_config_maps_that_were_not_created_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAXIMUM_CLUSTERS_OF_NAMESPACE", 1)
    kept = Kept()
    kept.api.failures[f"POST {CONFIG_MAPS.collection(NAMESPACE)}"] = Forbidden("no", status=403)
    for _ in range(2):
        with pytest.raises(BindingsNotSaved, match="of the management cluster"):
            await kept.grants.save(OWNER, [])
    kept.api.failures.clear()
    await kept.grants.save(OWNER, [])
    with pytest.raises(BindingsNotSaved, match="1 clusters of namespace"):
        await kept.grants.save(ClusterIdentity(ClusterKey(OWNER.key.namespace, "two"), "u", "h"), [])


async def test_too_many_clusters_leave_the_first_ones_unaffected(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """Otherwise a tenant that creates Clusters without end would stop restoration for all."""
    monkeypatch.setattr(module, "MAXIMUM_CLUSTERS", 2)
    kept = Kept()
    for number in range(5):
        await kept.grants.save(ClusterIdentity(ClusterKey("team-a", f"c{number}"), "u", "h"), [])
    assert await kept.grants.owners() == {ClusterKey("team-a", f"c{number}") for number in range(3)}
    assert caplog.records[0].getMessage() == "bindings of too many clusters are saved"
