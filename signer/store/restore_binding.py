"""Restores one binding to a workload cluster, so that no pending deletion of the controller removes it again."""

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
from signer.rules.auto_approval import RoleGone, role_of, unexpected_subjects


class GrantChanged(Exception):
    """An object changed since it was read: start over."""


class BindingNotRestored(Exception):
    """This binding is not restored; the message says why."""


async def restore_binding(binding: ClusterRoleBinding, workload: GetCreatePatch) -> None:
    """Return once a binding of that name exists and no pending deletion of the controller can remove it.

    Raises:
        BindingNotRestored: it must not be restored, or the controller is not allowed to.
        GrantChanged: an object changed meanwhile.
    """
    unexpected = unexpected_subjects(binding)
    if unexpected:
        raise BindingNotRestored(
            f"it grants automatic approval to {shown(str(unexpected[0]))}, which is neither a node nor a bootstrap "
            "token, nor a group of them; if that is meant, restore it by hand"
        )
    try:
        path = CLUSTER_ROLE_BINDINGS.object(binding.name)
        await _check_role(binding, workload)
        try:
            await workload.create(CLUSTER_ROLE_BINDINGS.collection(), binding_body(binding))
        except AlreadyExists:
            await _invalidate_deletion(binding, path, workload)
    except ValueError as error:
        raise BindingNotRestored(f"its name is no path segment: {error}") from error
    except Forbidden as error:
        raise BindingNotRestored(f"the controller may not restore it: {error}") from error
    except Invalid as error:
        raise BindingNotRestored(f"the API server rejects it: {error}") from error


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


async def _invalidate_deletion(binding: ClusterRoleBinding, path: str, workload: GetCreatePatch) -> None:
    """The name is taken. If the object is the one that was to be deleted, make a pending deletion fail.

    Raises:
        BindingNotRestored: the object is being deleted, so the name will be free again.
        GrantChanged: the object changed meanwhile.
    """
    try:
        metadata = mapping_of(await workload.get(path), "metadata")
        version = text_of(metadata, "resourceVersion")
        if "deletionTimestamp" in metadata:
            raise BindingNotRestored("a binding of that name is being deleted and waits for its finalizers")
        if text_of(metadata, "uid") != binding.uid:
            return  # no deletion of the controller names this object
        marks: list[str | None] = []
        if version == binding.resource_version:
            marks = ["true", None]
        elif RESTORING_ANNOTATION in mapping_of(metadata, "annotations"):
            marks = [None]  # a controller ended before it cleared the mark
        del metadata  # do not hold it while waiting for the next response
        for mark in marks:
            change = {"uid": binding.uid, "resourceVersion": version, "annotations": {RESTORING_ANNOTATION: mark}}
            written = await workload.patch(path, {"metadata": change})
            version = text_of(mapping_of(written, "metadata"), "resourceVersion")
            del written
    except (NotFound, Conflict):
        raise GrantChanged from None
