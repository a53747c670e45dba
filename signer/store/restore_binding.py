"""One binding is restored to a workload cluster, so that no deletion of ours that is under way takes it again."""

from __future__ import annotations

from signer.kube.calls import GetCreatePatch
from signer.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from signer.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from signer.model.auto_approval import (
    RESTORING_ANNOTATION,
    ClusterRole,
    ClusterRoleBinding,
    RoleScope,
    UnreadableGrant,
    binding_body,
    parse_cluster_role,
    shown,
)
from signer.model.fields import mapping_of, text_of
from signer.rules.auto_approval import RoleGone, role_of


class GrantChanged(Exception):
    """What was looked at is no longer so: begin again."""


class BindingNotRestored(Exception):
    """This binding is not restored; the message says why."""


async def restore_binding(binding: ClusterRoleBinding, workload: GetCreatePatch) -> None:
    """Return once a binding of that name is there, and no deletion of ours can still take it away.

    Raises:
        BindingNotRestored: it must not, or may not, be there again.
        GrantChanged: it changed meanwhile.
    """
    try:
        path = CLUSTER_ROLE_BINDINGS.object(binding.name)
        await _check_role(binding, workload)
        try:
            await workload.create(CLUSTER_ROLE_BINDINGS.collection(), binding_body(binding))
        except AlreadyExists:
            await _hold_back_deletion(binding, path, workload)
    except ValueError as error:
        raise BindingNotRestored(f"a name that no path can have: {error}") from error
    except Forbidden as error:
        raise BindingNotRestored(f"the controller may not give it back: {error}") from error
    except Invalid as error:
        raise BindingNotRestored(f"the API server does not take it: {error}") from error


async def _check_role(binding: ClusterRoleBinding, workload: GetCreatePatch) -> None:
    name = binding.role_name
    try:
        found = {name: parse_cluster_role(await workload.get(CLUSTER_ROLES.object(name)))}
    except NotFound:
        found = {}
    except UnreadableGrant as error:
        raise BindingNotRestored(str(error)) from error
    match role_of(name, found):
        case RoleGone():
            raise BindingNotRestored(f"ClusterRole {shown(name)} is gone")
        case ClusterRole(scope=RoleScope.ONLY_APPROVAL):
            return
        case _:
            raise BindingNotRestored(
                f"ClusterRole {shown(name)} grants more than automatic approval of kubelet certificates"
            )


async def _hold_back_deletion(binding: ClusterRoleBinding, path: str, workload: GetCreatePatch) -> None:
    """The name is taken. If it is the very object that was to be deleted, make a deletion under way fail.

    Raises:
        BindingNotRestored: it is about to be gone, and the name free again.
        GrantChanged: it changed meanwhile.
    """
    try:
        metadata = mapping_of(await workload.get(path), "metadata")
        version = text_of(metadata, "resourceVersion")
        if "deletionTimestamp" in metadata:
            raise BindingNotRestored("one of its name is being deleted, and waits for its finalizers")
        if text_of(metadata, "uid") != binding.uid:
            return  # no deletion of ours names this one
        marks: list[str | None] = []
        if version == binding.resource_version:
            marks = ["true", None]
        elif RESTORING_ANNOTATION in mapping_of(metadata, "annotations"):
            marks = [None]  # whoever marked it did not live to unmark it
        del metadata  # the next answer may be long in coming
        for mark in marks:
            change = {"uid": binding.uid, "resourceVersion": version, "annotations": {RESTORING_ANNOTATION: mark}}
            written = await workload.patch(path, {"metadata": change})
            version = text_of(mapping_of(written, "metadata"), "resourceVersion")
            del written
    except (NotFound, Conflict):
        raise GrantChanged from None
