"""Saved bindings are sealed: what the controller did not write so is kept for a person, and never restored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from signer.kube.resources import CONFIG_MAPS
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.model.reasons import Reason
from signer.model.saved_bindings import BindingsNotSaved, OtherLineages, SavedBindings, lineage_field, saved_name
from signer.model.seal import ControllerKeys
from signer.store.removed_bindings import RemovedBindings
from tests.unit.signer.store.removed_bindings_fixtures import (
    KEYS,
    NAMES,
    NAMESPACE,
    OWNER,
    ROTATED,
    ObjectStore,
    binding_manifest,
    removed_bindings,
)
from tests.unit.signer.store.test_removed_bindings import CONFIG_MAP, FIELD, Kept

OTHER_KEYS = ControllerKeys(bytes(32))
NEWER_KEYS = ControllerKeys(bytes(32), KEYS.current)
EVERYBODY = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}


@pytest.fixture
async def kept() -> Kept:
    kept = Kept()
    await kept.add_and_remove(*(binding_manifest(name) for name in NAMES))
    return kept


def content_of(kept: Kept) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(kept.api.objects[CONFIG_MAP]["data"][FIELD])
    return content


def with_another_subject(content: dict[str, Any]) -> None:
    content["items"][0]["subjects"] = [EVERYBODY]


def with_one_more_binding(content: dict[str, Any]) -> None:
    content["items"].append(json.loads(json.dumps(content["items"][0]).replace('"first"', '"third"')))
    content["removed"]["third"] = {"uid": "u", "resourceVersion": "1"}


def without_one(content: dict[str, Any]) -> None:
    del content["items"][1:]


def of_another_cluster(content: dict[str, Any]) -> None:
    content["lineage"]["clusterUIDs"] = ["another"]


def with_another_version(content: dict[str, Any]) -> None:
    content["removed"]["first"]["uid"] = "another"


def without_a_seal(content: dict[str, Any]) -> None:
    del content["seal"]


@pytest.mark.parametrize(
    "change",
    [
        with_another_subject,
        with_one_more_binding,
        without_one,
        of_another_cluster,
        with_another_version,
        without_a_seal,
    ],
)
async def test_what_somebody_changed_is_not_restored(kept: Kept, change: Any) -> None:
    """The attack: a writer of ConfigMaps lets the controller grant automatic approval to everybody."""
    content = content_of(kept)
    change(content)
    kept.put(content)
    before = kept.api.config_maps()
    restored = await kept.grants.restore(OWNER, kept.api)
    assert (restored.back, restored.not_restored) == ((), ())
    assert restored.others == OtherLineages(NAMESPACE, saved_name(OWNER.key), (), (FIELD,))
    assert f"is not as this controller wrote it, in {FIELD}" in str(restored.others)
    assert kept.api.bodies() == {}
    assert kept.api.config_maps() == before, "a person can see what was there"


async def test_a_copy_for_another_cluster_or_field_is_not_restored(kept: Kept) -> None:
    """The seal is of a place."""
    other = ClusterKey("team-b", "two")
    found = kept.api.objects[CONFIG_MAP]
    name = saved_name(other)
    data = {"clusterNamespace": other.namespace, "clusterName": other.name, FIELD: found["data"][FIELD]}
    kept.api.put(
        CONFIG_MAPS.object(name, NAMESPACE),
        {"metadata": {"name": name, "namespace": NAMESPACE, "labels": found["metadata"]["labels"]}, "data": data},
    )
    copied = await kept.grants.saved(other)
    assert isinstance(copied, SavedBindings)
    assert (dict(copied.lineages), list(copied.changed)) == ({}, [FIELD])
    kept.api.put(CONFIG_MAP, {**found, "data": {**found["data"], "lineage-x": found["data"][FIELD]}})
    renamed = await kept.grants.saved(OWNER.key)
    assert isinstance(renamed, SavedBindings)
    assert (list(renamed.lineages), list(renamed.changed)) == ([FIELD], ["lineage-x"])


async def test_what_somebody_changed_stays_beside_what_is_saved_later(kept: Kept) -> None:
    """In its field, which would be that of the new bindings, too; and these are restored."""
    content = content_of(kept)
    without_a_seal(content)
    kept.put(content)
    await kept.remove_later(OWNER)
    saved = await kept.grants.saved(OWNER.key)
    assert isinstance(saved, SavedBindings)
    assert list(saved.changed) == [FIELD]
    assert list(saved.lineages) == [f"{FIELD}-1"]
    restored = await kept.grants.restore(OWNER, kept.api)
    assert restored.back == ("later",)
    assert isinstance(restored.others, OtherLineages)
    assert restored.others.changed == (FIELD,)
    assert [one["metadata"]["name"] for one in content_of(kept)["items"]] == list(NAMES)


async def test_with_the_controller_key_only_nodes_and_tokens_get_a_binding(kept: Kept) -> None:
    """The attack: the key is stolen, too."""
    kept.tamper("first", subjects=[EVERYBODY])
    restored = await kept.grants.restore(OWNER, kept.api)
    assert restored.back == ("second",)
    (refused,) = restored.not_restored
    assert "Group system:authenticated, which is neither a node nor a bootstrap token" in refused.cause
    assert [one["metadata"]["name"] for one in content_of(kept)["items"]] == ["first"]


@pytest.mark.parametrize(
    "subject",
    [
        {"kind": "Group", "name": "system:nodes"},
        {"kind": "Group", "name": "system:bootstrappers"},
        {"kind": "Group", "name": "system:bootstrappers:kubeadm:default-node-token"},
        {"kind": "User", "name": "system:bootstrap:abcdef"},
        {"kind": "User", "name": "system:node:worker-1"},
    ],
    ids=lambda one: one["name"],
)
async def test_kubeadms_bindings_are_restored(subject: dict[str, str]) -> None:
    kept = Kept()
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", **subject}]
    await kept.add_and_remove({**binding_manifest("first"), "subjects": subjects})
    assert (await kept.grants.restore(OWNER, kept.api)).back == ("first",)


@pytest.mark.parametrize(
    "subject",
    [
        {"kind": "Group", "name": "system:bootstrappersx"},
        {"kind": "Group", "name": "system:nodes:x"},
        {"kind": "User", "name": "system:nodes"},
        {"kind": "Group", "name": "system:node:worker-1"},
        {"kind": "ServiceAccount", "name": "system:nodes", "namespace": "x"},
    ],
    ids=lambda one: f"{one['kind']} {one['name']}",
)
async def test_what_only_looks_like_them_is_not(subject: dict[str, str]) -> None:
    kept = Kept()
    await kept.add_and_remove({**binding_manifest("first"), "subjects": [subject]})
    restored = await kept.grants.restore(OWNER, kept.api)
    assert (restored.back, len(restored.not_restored)) == ((), 1)


async def test_another_controllers_bindings_are_not_restored(kept: Kept) -> None:
    restored = await removed_bindings(kept.api, keys=OTHER_KEYS).restore(OWNER, kept.api)
    assert isinstance(restored.others, OtherLineages)
    assert restored.others.changed == (FIELD,)
    assert "or it was written with another controller key" in str(restored.others)


async def test_bindings_outlive_two_rotations_of_the_controller_key(kept: Kept) -> None:
    """The first one seals them anew, once."""
    newer = removed_bindings(kept.api, keys=NEWER_KEYS)
    kept.api.calls.clear()
    await newer.update_lineage(OWNER)
    await newer.update_lineage(OWNER)
    assert [call.partition(" ")[0] for call in kept.api.calls] == ["GET", "PATCH", "GET"]
    newest = removed_bindings(kept.api, keys=ControllerKeys(bytes(range(1, 33)), NEWER_KEYS.current))
    assert (await newest.restore(OWNER, kept.api)).back == NAMES


async def test_a_seal_of_the_previous_key_counts(kept: Kept) -> None:
    assert (await removed_bindings(kept.api, keys=NEWER_KEYS).restore(ROTATED, kept.api)).back == NAMES


async def test_without_a_controller_key_nothing_is_saved_or_restored(kept: Kept) -> None:
    """So nothing is removed, either."""

    def none() -> ControllerKeys:
        raise Deferred(Reason.CONTROLLER_KEY_UNAVAILABLE, "the Secret is gone")

    without = RemovedBindings(kept.api, NAMESPACE, none)
    before = kept.api.config_maps()
    for call in (without.restore(OWNER, kept.api), without.save(OWNER, []), without.update_lineage(OWNER)):
        with pytest.raises(BindingsNotSaved, match="have seals, and the Secret is gone"):
            await call
    with pytest.raises(BindingsNotSaved):
        without.key_identifier()
    empty = ObjectStore()
    with pytest.raises(BindingsNotSaved):
        await RemovedBindings(empty, NAMESPACE, none).save(OWNER, [])
    assert empty.objects == {}
    assert kept.api.config_maps() == before


def test_the_field_of_the_tests_is_the_owners() -> None:
    assert lineage_field(OWNER) == FIELD
