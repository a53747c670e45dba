"""Removed bindings are saved and restored exactly, and nothing else is, whichever actor crashes at whatever time."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any, Final

import pytest

from signer.kube.errors import ApiError, Cause, Conflict, Forbidden, Invalid, ServerError, Unreachable
from signer.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CONFIG_MAPS
from signer.model.auto_approval import (
    RESTORING_ANNOTATION,
    ClusterIdentity,
    ClusterRoleBinding,
    parse_cluster_role_binding,
)
from signer.model.cluster import ClusterKey
from signer.model.saved_bindings import (
    MAXIMUM_LINEAGES,
    MAXIMUM_MARKS,
    BindingsNotSaved,
    Lineage,
    OtherLineages,
    SavedBindings,
    lineage_field,
    parse_saved,
    saved_name,
    sealed_lineage,
    set_aside_name,
)
from signer.model.seal import KeyUse, Seals
from signer.store.removed_bindings import SAVED_LABEL, NothingSaved
from tests.unit.signer.store.removed_bindings_fixtures import (
    BINDINGS,
    KEYS,
    NAMES,
    NAMESPACE,
    OWNER,
    ROLE,
    ROTATED,
    ObjectStore,
    binding_manifest,
    every_schedule,
    removed_bindings,
    role_manifest,
    schedules,
)

CONFIG_MAP = CONFIG_MAPS.object(saved_name(OWNER.key), NAMESPACE)
SET_ASIDE = CONFIG_MAPS.object(set_aside_name(OWNER.key), NAMESPACE)
FIELD = lineage_field(OWNER)
SEALS = Seals(KEYS, KeyUse.REMOVED_BINDINGS)
LATER_CLUSTER = ClusterIdentity(OWNER.key, "c-2", f"sha256:{'bb' * 32}")
MOVED = replace(OWNER, uid="c-moved")


class Kept:
    """A workload cluster from which both bindings were removed, and the saved bindings."""

    def __init__(self) -> None:
        self.api = ObjectStore()
        self.grants = removed_bindings(self.api)
        self.api.put(CLUSTER_ROLES.object(ROLE), role_manifest())
        self.original: dict[str, Any] = {}

    async def add_and_remove(self, *manifests: dict[str, Any]) -> None:
        for manifest in manifests:
            self.api.put(f"{BINDINGS}/{manifest['metadata']['name']}", manifest)
        self.original = self.api.bodies()
        found = [self.there(name) for name in self.original]
        await self.grants.save(OWNER, found)
        for binding in found:
            await self.api.delete(CLUSTER_ROLE_BINDINGS.object(binding.name))

    def there(self, name: str) -> ClusterRoleBinding:
        return parse_cluster_role_binding(self.api.objects[f"{BINDINGS}/{name}"])

    def tamper(self, name: str, **fields: Any) -> None:
        """With the controller key: the seal is right."""
        data = self.api.objects[CONFIG_MAP]["data"]
        content = json.loads(data[FIELD].replace('"first"', json.dumps(fields.pop("renamed", "first"))))
        names = [item["metadata"]["name"] for item in content["items"]]
        content["items"][names.index(name)] |= fields
        self.put(content)
        lineage = parse_saved(self.api.objects[CONFIG_MAP]).lineages[FIELD]
        self.put({**content, "seal": SEALS.seal(sealed_lineage(OWNER.key, FIELD, lineage))})

    def parsed(self, name: str) -> ClusterRoleBinding:
        """A binding that is in the workload cluster from now on."""
        self.api.put(f"{BINDINGS}/{name}", binding_manifest(name))
        return self.there(name)

    def change(self, change: dict[str, Any]) -> dict[str, Any]:
        """Change the ConfigMap, without the controller key."""
        found = self.api.objects[CONFIG_MAP]
        return self.api.put(CONFIG_MAP, {**found, **change, "data": {**found["data"], **change.get("data", {})}})

    def put(self, content: dict[str, Any]) -> None:
        """Write the lineage."""
        found = self.api.objects[CONFIG_MAP]
        self.api.put(CONFIG_MAP, {**found, "data": {**found["data"], FIELD: json.dumps(content)}})

    async def remove_later(self, owner: ClusterIdentity) -> None:
        """Kubeadm's binding exists again in the cluster that has the name now, and is removed again."""
        self.api.put(f"{BINDINGS}/later", binding_manifest("later"))
        await self.grants.save(owner, [self.there("later")])
        await self.api.delete(f"{BINDINGS}/later")


@pytest.fixture
async def kept() -> Kept:
    kept = Kept()
    await kept.add_and_remove(*(binding_manifest(name) for name in NAMES))
    return kept


async def test_bindings_are_restored_exactly(kept: Kept) -> None:
    assert kept.api.bodies() == {}
    restored = await kept.grants.restore(OWNER, kept.api)
    assert (restored.back, restored.not_restored) == (NAMES, ())
    assert kept.api.bodies() == kept.original
    assert kept.api.config_maps() == []
    assert await kept.grants.saved(OWNER.key) == NothingSaved()
    assert (await kept.grants.restore(OWNER, kept.api)).back == ()


async def test_the_config_map_names_its_cluster(kept: Kept) -> None:
    (found,) = kept.api.config_maps()
    assert found["metadata"]["labels"] == {"attestation.cluster.x-k8s.io/removed-grants": "team-a"}, "for ever"
    assert found["data"]["clusterNamespace"] == "team-a"
    assert found["data"]["clusterName"] == "one"
    assert found["data"].keys() == {"clusterNamespace", "clusterName", FIELD}
    marks = {"clusterUIDs": [OWNER.uid], "caCertHashes": [OWNER.ca_cert_hash]}
    assert json.loads(found["data"][FIELD])["lineage"] == marks
    assert await kept.grants.owners() == {OWNER.key}


async def test_another_cluster_under_the_same_name_gets_nothing(kept: Kept) -> None:
    before = kept.api.config_maps()
    restored = await kept.grants.restore(LATER_CLUSTER, kept.api)
    assert (restored.back, restored.not_restored) == ((), ())
    assert restored.others == OtherLineages(NAMESPACE, saved_name(OWNER.key), (FIELD,))
    assert kept.api.bodies() == {}
    assert kept.api.config_maps() == before
    assert await kept.grants.saved(ClusterKey("team-a-one", "x")) == NothingSaved()


@pytest.mark.parametrize("now", [ROTATED, MOVED], ids=["another CA", "another UID"])
async def test_all_bindings_of_the_cluster_are_restored_under_any_of_its_marks(
    kept: Kept, now: ClusterIdentity
) -> None:
    """A rotation changes the CA; ``clusterctl move``, or a restore, changes the UID."""
    await kept.remove_later(now)
    restored = await kept.grants.restore(now, kept.api)
    assert (sorted(restored.back), restored.others) == (["first", "later", "second"], NothingSaved())
    assert sorted(kept.api.bodies()) == ["first", "later", "second"]
    assert kept.api.config_maps() == []


async def test_a_cluster_with_a_rotated_ca_that_is_then_moved(kept: Kept) -> None:
    """No binding was removed in between: the new CA was recorded all the same."""
    before = kept.api.bodies()
    await kept.grants.update_lineage(ROTATED)
    moved = replace(ROTATED, uid="c-moved")
    restored = await kept.grants.restore(moved, kept.api)
    assert (restored.back, restored.others) == (NAMES, NothingSaved())
    assert kept.api.bodies() == kept.original != before


async def test_updating_the_lineage_writes_once_and_only_if_bindings_are_saved(kept: Kept) -> None:
    for owner, writes in ((OWNER, 0), (ROTATED, 1), (ROTATED, 0), (MOVED, 1), (OWNER, 0), (LATER_CLUSTER, 0)):
        kept.api.calls.clear()
        await kept.grants.update_lineage(owner)
        assert kept.api.calls == [f"GET {CONFIG_MAP}", *[f"PATCH {CONFIG_MAP}"] * writes], owner
    empty = Kept()
    await empty.grants.update_lineage(OWNER)
    assert empty.api.config_maps() == []


async def test_bindings_not_restored_under_another_ca_are_found_under_the_next_uid(kept: Kept) -> None:
    """Even if no binding could be restored at once."""
    for name in NAMES:
        kept.tamper(name, roleRef={"kind": "ClusterRole", "name": "gone"})
    assert (await kept.grants.restore(ROTATED, kept.api)).back == ()
    moved = replace(ROTATED, uid="c-moved")
    restored = await kept.grants.restore(moved, kept.api)
    assert ([one.name for one in restored.not_restored], restored.others) == (list(NAMES), NothingSaved())
    kept.api.calls.clear()
    await kept.grants.restore(moved, kept.api)
    assert not any(call.startswith("PATCH") for call in kept.api.calls)


async def test_each_cluster_gets_its_own_bindings_restored(kept: Kept) -> None:
    await kept.remove_later(LATER_CLUSTER)
    assert len(kept.api.config_maps()) == 1
    restored = await kept.grants.restore(LATER_CLUSTER, kept.api)
    assert restored.back == ("later",)
    assert restored.others == OtherLineages(NAMESPACE, saved_name(OWNER.key), (FIELD,))
    assert list(kept.api.bodies()) == ["later"]
    # The first is restored.
    assert (await kept.grants.restore(OWNER, kept.api)).others == NothingSaved()
    assert kept.api.config_maps() == []
    assert sorted(kept.api.bodies()) == ["first", "later", "second"]


async def test_a_binding_that_stays_saved_leaves_other_lineages_unchanged(kept: Kept) -> None:
    await kept.remove_later(LATER_CLUSTER)
    kept.tamper("first", roleRef={"kind": "ClusterRole", "name": "gone"})
    restored = await kept.grants.restore(OWNER, kept.api)
    assert (restored.back, len(restored.not_restored)) == (("second",), 1)
    found = await kept.grants.saved(OWNER.key)
    assert isinstance(found, SavedBindings)
    assert (list(found.of(OWNER).bindings), list(found.of(LATER_CLUSTER).bindings)) == (["first"], ["later"])


async def test_a_ca_that_keeps_changing_fills_one_config_map_and_no_more(kept: Kept) -> None:
    """A tenant that writes the Secret of the CA may change it every minute."""
    for number in range(2 * MAXIMUM_MARKS):
        await kept.remove_later(replace(OWNER, ca_cert_hash=f"sha256:{number}"))
    (found,) = kept.api.config_maps()
    assert found["data"].keys() == {"clusterNamespace", "clusterName", FIELD}
    restored = await kept.grants.restore(replace(OWNER, ca_cert_hash="sha256:last"), kept.api)
    assert sorted(restored.back) == ["first", "later", "second"]


async def test_clusters_of_one_name_fill_one_config_map_and_no_more(kept: Kept) -> None:
    """A tenant that creates Clusters may create one of that name every minute."""
    for number in range(MAXIMUM_LINEAGES - 1):
        await kept.remove_later(ClusterIdentity(OWNER.key, f"c-x{number}", f"sha256:{number}"))
    with pytest.raises(BindingsNotSaved, match="more than 4 clusters of one name"):
        await kept.remove_later(ClusterIdentity(OWNER.key, "one more", "sha256:one more"))
    assert "later" in kept.api.bodies()
    assert len(kept.api.config_maps()) == 1


async def test_later_bindings_are_added_and_the_newest_of_a_name_counts(kept: Kept) -> None:
    """``kubeadm upgrade`` creates a binding again, with other subjects."""
    changed = binding_manifest("first", labels={"team": "kubeadm"})
    await kept.add_and_remove(changed, binding_manifest("third"))
    found = await kept.grants.saved(OWNER.key)
    assert isinstance(found, SavedBindings)
    assert sorted(found.of(OWNER).bindings) == ["first", "second", "third"]
    await kept.grants.restore(OWNER, kept.api)
    assert kept.api.bodies()["first"]["metadata"]["labels"] == {"team": "kubeadm"}


@pytest.mark.parametrize("annotations", [{}, {RESTORING_ANNOTATION: "mine"}])
async def test_a_binding_that_exists_again_is_not_changed(kept: Kept, annotations: dict[str, str]) -> None:
    somebodys = binding_manifest("first", labels={"team": "somebody"}, annotations=annotations)
    kept.api.put(f"{BINDINGS}/first", somebodys)
    version = kept.there("first").resource_version
    restored = await kept.grants.restore(OWNER, kept.api)
    assert restored.back == NAMES
    assert kept.there("first").resource_version == version
    assert kept.there("first").labels == {"team": "somebody"}
    assert kept.api.config_maps() == []


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_binding_that_is_being_deleted_does_not_count_as_restored(replaced: bool) -> None:
    """Its finalizers hold it for a while; after its deletion no restore would follow."""
    kept = Kept()
    await kept.add_and_remove(binding_manifest("first", finalizers=["example.com/held"]), binding_manifest("second"))
    if replaced:
        kept.api.put(f"{BINDINGS}/first", binding_manifest("first", deletionTimestamp="2026-01-01T00:00:00Z"))
    restored = await kept.grants.restore(OWNER, kept.api)
    assert restored.back == ("second",)
    assert "being deleted" in str(restored.not_restored[0])
    del kept.api.objects[f"{BINDINGS}/first"]
    assert (await kept.grants.restore(OWNER, kept.api)).back == ("first",)
    assert sorted(kept.api.bodies()) == ["first", "second"]
    assert kept.api.config_maps() == []


# Tampering


@pytest.mark.parametrize(
    ("role", "cause"),
    [
        (role_manifest("cluster-admin", "*"), "grants more"),
        (role_manifest("cluster-admin", aggregationRule={}), "grants more"),
        ({"metadata": {"name": "cluster-admin"}, "rules": "all"}, "grants more"),
        ({"metadata": {}}, "cannot be read"),
        (None, "is gone"),
    ],
)
async def test_a_saved_binding_of_another_role_is_not_restored(
    kept: Kept, role: dict[str, Any] | None, cause: str
) -> None:
    if role is not None:
        kept.api.put(CLUSTER_ROLES.object("cluster-admin"), role)
    kept.tamper("first", roleRef={"kind": "ClusterRole", "name": "cluster-admin"})
    restored = await kept.grants.restore(OWNER, kept.api)
    assert restored.back == ("second",)
    assert [one.name for one in restored.not_restored] == ["first"]
    assert cause in str(restored.not_restored[0])
    assert list(kept.api.bodies()) == ["second"]
    found = await kept.grants.saved(OWNER.key)
    assert isinstance(found, SavedBindings)
    assert list(found.of(OWNER).bindings) == ["first"]


async def test_a_role_that_grants_more_by_now_is_not_bound_again(kept: Kept) -> None:
    kept.api.put(CLUSTER_ROLES.object(ROLE), role_manifest(ROLE, "certificatesigningrequests"))
    restored = await kept.grants.restore(OWNER, kept.api)
    assert restored.back == ()
    assert len(restored.not_restored) == 2
    kept.api.put(CLUSTER_ROLES.object(ROLE), role_manifest())
    assert (await kept.grants.restore(OWNER, kept.api)).back == NAMES


async def test_a_missing_builtin_role_is_restored_by_the_api_server(kept: Kept) -> None:
    await kept.api.delete(CLUSTER_ROLES.object(ROLE))
    assert (await kept.grants.restore(OWNER, kept.api)).back == NAMES


async def test_a_name_that_leaves_its_path_is_refused(kept: Kept) -> None:
    kept.tamper("../secrets/x", renamed="../secrets/x")
    restored = await kept.grants.restore(OWNER, kept.api)
    assert [one.cause.partition(":")[0] for one in restored.not_restored] == ["its name is no path segment"]
    assert not any("secrets" in call for call in kept.api.calls)


CHANGES: Final[list[dict[str, Any]]] = [
    {"data": {FIELD: "["}},
    {"data": {FIELD: "[" * 100_000}},
    {"data": {FIELD: "[]"}},
    {"data": {FIELD: "{}"}},
    {"data": {FIELD: '{"items": [1]}'}},
    {"data": {FIELD: '{"items": [{"metadata": {"name": "x"}}]}'}},
    {"data": {FIELD: " " * 600_000 + '{"items": []}'}},
    {"data": {"caCertHash": "bb" * 32}},
    {"data": {"clusterName": ""}},
    {"data": {"clusterName": "two"}},
    {"immutable": True},
    {"binaryData": {"x": "AAAA"}},
]


@pytest.mark.parametrize("change", CHANGES)
async def test_nothing_of_a_changed_config_map_is_restored(kept: Kept, change: dict[str, Any]) -> None:
    stored = kept.change(change)
    for call in (kept.grants.saved(OWNER.key), kept.grants.restore(OWNER, kept.api)):
        with pytest.raises(BindingsNotSaved, match=saved_name(OWNER.key)):
            await call
    assert kept.api.objects[CONFIG_MAP] == stored
    assert kept.api.bodies() == {}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_changed_config_map_keeps_no_binding_from_being_removed(kept: Kept, change: dict[str, Any]) -> None:
    """The attack: a writer of ConfigMaps keeps automatic approval open. What it wrote is set aside for a person."""
    stored = kept.change(change)
    await kept.remove_later(OWNER)
    saved = await kept.grants.saved(OWNER.key)
    assert isinstance(saved, SavedBindings)
    assert [list(one.bindings) for one in saved.lineages.values()] == [["later"]]
    assert kept.api.objects[SET_ASIDE]["data"] == stored["data"]
    assert (await kept.grants.restore(OWNER, kept.api)).back == ("later",)


async def test_lineages_that_somebody_made_up_keep_no_binding_from_being_removed(kept: Kept) -> None:
    """As many as there may be. What the controller saved stays."""
    made_up = {f"lineage-{number}": kept.api.objects[CONFIG_MAP]["data"][FIELD] for number in range(3)}
    kept.change({"data": made_up})
    await kept.grants.save(LATER_CLUSTER, [kept.parsed("later")])
    saved = await kept.grants.saved(OWNER.key)
    assert isinstance(saved, SavedBindings)
    assert [list(one.bindings) for one in saved.lineages.values()] == [list(NAMES), ["later"]]
    assert saved.changed == {}
    assert kept.api.objects[SET_ASIDE]["data"].keys() >= made_up.keys()


@pytest.mark.parametrize("call", ["save", "remember"])
async def test_what_is_set_aside_first_stays(kept: Kept, call: str) -> None:
    """And a crash between the copy and the deletion loses nothing."""
    first = kept.change({"immutable": True})
    kept.api.failures[f"DELETE {CONFIG_MAP}"] = ServerError("down", status=500)
    with pytest.raises(BindingsNotSaved):
        await kept.grants.save(OWNER, [])
    kept.api.failures.clear()
    assert kept.api.objects[CONFIG_MAP] == first
    kept.change({"data": {FIELD: "["}})
    await (kept.grants.save(OWNER, []) if call == "save" else kept.grants.remember(OWNER))
    assert kept.api.objects[SET_ASIDE]["data"] == first["data"]
    assert isinstance(await kept.grants.saved(OWNER.key), SavedBindings)


async def test_an_unreadable_config_map_is_left_out_of_the_list(kept: Kept, caplog: Any) -> None:
    stranger = CONFIG_MAPS.object("stranger", NAMESPACE)
    kept.api.put(stranger, {"metadata": {"name": "stranger", "labels": {SAVED_LABEL: ""}}, "data": {}})
    kept.api.put(CONFIG_MAPS.object("other", NAMESPACE), {"metadata": {"name": "other"}, "data": {}})
    assert await kept.grants.owners() == {OWNER.key}
    assert [record.configMap for record in caplog.records] == ["stranger"], "others are not asked for"


# Faults


FAULTS = [
    ServerError("etcd", status=500),
    Forbidden("no", status=403),
    Unreachable("reset", cause=Cause.RESET),
]


@pytest.mark.parametrize("method", ["GET", "PATCH"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
async def test_nothing_counts_as_saved_while_the_management_cluster_fails(
    kept: Kept, method: str, fault: ApiError
) -> None:
    kept.api.failures[f"{method} {CONFIG_MAP}"] = fault
    with pytest.raises(BindingsNotSaved, match="of the management cluster"):
        await kept.grants.save(OWNER, [])


async def test_a_failed_first_write_saves_nothing() -> None:
    kept = Kept()
    kept.api.failures[f"POST {CONFIG_MAPS.collection(NAMESPACE)}"] = ServerError("etcd", status=500)
    with pytest.raises(BindingsNotSaved):
        await kept.grants.save(OWNER, [])


async def test_a_config_map_that_keeps_changing_ends_the_attempt(kept: Kept) -> None:
    kept.api.failures[f"PATCH {CONFIG_MAP}"] = Conflict("stale", status=409)
    with pytest.raises(BindingsNotSaved, match="keep changing"):
        await kept.grants.save(OWNER, [])
    kept.api.failures[f"DELETE {CONFIG_MAP}"] = Conflict("stale", status=409)
    with pytest.raises(BindingsNotSaved, match="keep changing"):
        await kept.grants.restore(OWNER, kept.api)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
async def test_a_restored_binding_that_stays_saved_is_no_success(kept: Kept, fault: ApiError) -> None:
    kept.api.failures[f"DELETE {CONFIG_MAP}"] = fault
    with pytest.raises(BindingsNotSaved, match="of the management cluster"):
        await kept.grants.restore(OWNER, kept.api)
    kept.api.failures.clear()
    assert (await kept.grants.restore(OWNER, kept.api)).back == NAMES
    assert kept.api.config_maps() == []


async def test_an_empty_lineage_of_another_cluster_holds_nothing(kept: Kept) -> None:
    await kept.grants.save(LATER_CLUSTER, [])
    found = kept.api.objects[CONFIG_MAP]
    marks = {"clusterUIDs": [LATER_CLUSTER.uid], "caCertHashes": [LATER_CLUSTER.ca_cert_hash]}
    field = lineage_field(LATER_CLUSTER)
    lineage = Lineage((LATER_CLUSTER.uid,), (LATER_CLUSTER.ca_cert_hash,))
    seal = SEALS.seal(sealed_lineage(OWNER.key, field, lineage))
    empty = {field: json.dumps({"items": [], "lineage": marks, "seal": seal})}
    kept.api.put(CONFIG_MAP, {**found, "data": {**found["data"], **empty}})
    assert (await kept.grants.restore(OWNER, kept.api)).others == NothingSaved()
    assert kept.api.config_maps() == []


async def test_saved_bindings_that_cannot_be_listed(kept: Kept) -> None:
    kept.api.failures[f"GET {CONFIG_MAPS.collection(NAMESPACE)}"] = Forbidden("no", status=403)
    with pytest.raises(BindingsNotSaved, match="cannot be listed"):
        await kept.grants.owners()


@pytest.mark.parametrize("fault", [Forbidden("no", status=403), Invalid("bad", status=422)])
async def test_a_binding_that_may_not_be_created_stays_saved(kept: Kept, fault: ApiError) -> None:
    kept.api.failures[f"POST {BINDINGS}"] = fault
    restored = await kept.grants.restore(OWNER, kept.api)
    assert restored.back == ()
    assert len(restored.not_restored) == 2
    kept.api.failures.clear()
    assert (await kept.grants.restore(OWNER, kept.api)).back == NAMES


async def test_a_fault_of_the_workload_cluster_loses_nothing(kept: Kept) -> None:
    kept.api.failures[f"POST {BINDINGS}"] = ServerError("etcd", status=500)
    with pytest.raises(ServerError):
        await kept.grants.restore(OWNER, kept.api)
    kept.api.failures.clear()
    assert (await kept.grants.restore(OWNER, kept.api)).back == NAMES


# Crashes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("actors", "crashes", "least"),
    [
        ("-r", 0, 50),
        ("->", 0, 5),
        (".r>", 0, 5),
        ("-+", 0, 50),
        (".-+", 0, 50),
        ("~-+", 0, 50),
        pytest.param("-+", 1, 1000, marks=pytest.mark.slow),
    ],
)
def test_every_schedule_of_a_remover_and_a_restorer(actors: str, crashes: int, least: int) -> None:
    worlds = 0
    for world in every_schedule(actors, crashes):
        world.finish()
        worlds += 1
    assert worlds > least


@pytest.mark.parametrize(
    "actors", ["-", "--", "-+", "-++", "--+", ".-+", ".-+-+", "~-+", "~-++", "~.-+", "-r", "->+", ".->r", "~-r>"]
)
@pytest.mark.parametrize("crashes", [0, 1, 3])
def test_random_schedules_with_crashes(actors: str, crashes: int) -> None:
    for world in schedules(actors, crashes, Random(f"{actors} {crashes}"), 60):
        world.finish()
