"""A binding that still exists when it is to be restored: a pending deletion must not remove it."""

from __future__ import annotations

from typing import Any

import pytest

from signer.kube.errors import ApiError, Conflict, NotFound
from signer.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from signer.model.auto_approval import RESTORING_ANNOTATION, ClusterRoleBinding, parse_cluster_role_binding
from signer.store.restore_binding import GrantChanged, restore_binding
from tests.unit.signer.store.removed_bindings_fixtures import (
    BINDINGS,
    ROLE,
    ObjectStore,
    binding_manifest,
    role_manifest,
)

PATH = f"{BINDINGS}/first"


@pytest.fixture
def api() -> ObjectStore:
    made = ObjectStore()
    made.put(CLUSTER_ROLES.object(ROLE), role_manifest())
    made.put(PATH, binding_manifest("first"))
    return made


def there(api: ObjectStore) -> ClusterRoleBinding:
    return parse_cluster_role_binding(api.objects[PATH])


async def delete(api: ObjectStore, binding: ClusterRoleBinding) -> Any:
    """As the remover deletes it, at exactly the version that was saved."""
    path = CLUSTER_ROLE_BINDINGS.object(binding.name)
    return await api.delete(path, uid=binding.uid, resource_version=binding.resource_version)


async def test_a_pending_deletion_fails(api: ObjectStore) -> None:
    kept, before = there(api), api.bodies()
    await restore_binding(kept, api)
    with pytest.raises(Conflict):
        await delete(api, kept)
    assert api.bodies() == before, "it is marked no more"


async def test_a_mark_left_by_a_crash_is_cleared(api: ObjectStore) -> None:
    kept, before = there(api), api.bodies()
    patch = {"uid": kept.uid, "resourceVersion": kept.resource_version, "annotations": {RESTORING_ANNOTATION: "true"}}
    await api.patch(PATH, {"metadata": patch})
    await restore_binding(kept, api)
    assert api.bodies() == before


async def test_an_object_that_others_changed_is_not_touched(api: ObjectStore) -> None:
    """Its version differs, so the deletion fails by itself."""
    kept = there(api)
    api.put(PATH, {**api.objects[PATH], "subjects": []})
    await restore_binding(kept, api)
    assert not [call for call in api.calls if call.startswith("PATCH")]


@pytest.mark.parametrize("method", ["GET", "PATCH"])
@pytest.mark.parametrize("fault", [NotFound("gone", status=404), Conflict("changed", status=409)])
async def test_a_concurrent_change_is_read_again(api: ObjectStore, method: str, fault: ApiError) -> None:
    api.failures[f"{method} {PATH}"] = fault
    with pytest.raises(GrantChanged):
        await restore_binding(there(api), api)
