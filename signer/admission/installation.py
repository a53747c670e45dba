"""Installs and removes a policy with its binding, and changes nothing that belongs to somebody else.

Each write names the version of the object that was read. Another writer in between makes it fail with Conflict, and the
caller starts over.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from signer.admission.discovery import NotServed, served_admission
from signer.admission.manifests import (
    DIGEST_ANNOTATION,
    AdmissionVersion,
    Manifest,
    binding_manifest,
    policy_manifest,
    spec_digest,
)
from signer.admission.policy import AdmissionPolicy
from signer.kube.calls import Get, GetCreateReplace, GetDelete
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from signer.kube.wanted_object import OWNER, OWNER_LABEL
from signer.model.fields import mapping_of, text_of

RIGHTS: Final = tuple(
    (resource.group, resource.plural, ("get", "create", "update", "delete"))
    for resource in (AdmissionVersion.V1.policies, AdmissionVersion.V1.bindings)
)
"""API group, resource and verbs that this module needs. RBAC can restrict all verbs but ``create`` to the names of the
policies. A proof also needs the verb of its dry runs."""


class NotOurs(Exception):
    """An object of that name belongs to somebody else; the message names it and the cure."""


class Written(enum.Enum):
    """What an installation did to one object."""

    CREATED = "created"
    UPDATED = "updated"
    """It held another definition of the controller, such as that of an older version."""
    RESTORED = "restored"
    """Somebody else had changed it."""
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Installed:
    """Both objects are stored. Whether the API server applies them is for :func:`~signer.admission.proof.prove`."""

    policy: Written
    binding: Written


@dataclass(frozen=True, slots=True)
class NotAllowed:
    """The controller lacks a right. An administrator may have installed the policy, so a proof may still succeed."""

    message: str


@dataclass(frozen=True, slots=True)
class NotInstalled:
    """It is not installed as it should be; the message says why. Try again."""

    message: str


async def try_install(
    policy: AdmissionPolicy, client: GetCreateReplace
) -> Installed | NotServed | NotAllowed | NotInstalled:
    """:func:`install` with its errors as values, for callers that go on without the policy."""
    try:
        return await install(policy, client)
    except Forbidden as error:
        return NotAllowed(str(error))
    except (AlreadyExists, Conflict):
        return NotInstalled("another replica of the controller, or somebody else, writes it at the same time")
    except (ApiError, NotOurs) as error:
        return NotInstalled(f"it cannot be installed: {error}")


async def install(policy: AdmissionPolicy, client: GetCreateReplace) -> Installed | NotServed:
    """Create or update the policy, then its binding.

    Raises:
        NotOurs: somebody else has an object of that name.
        Conflict, AlreadyExists: another writer was faster; start over.
        ApiError: the API server refuses, or cannot be asked.
    """
    version = await served_admission(client)
    if isinstance(version, NotServed):
        return version
    written = await _write(policy_manifest(policy, version), client)
    return Installed(written, await _write(binding_manifest(policy, version), client))


class Presence(enum.Enum):
    """Whether the controller has installed a policy."""

    PRESENT = "present"
    """It is stored, perhaps in a form that somebody changed."""
    ABSENT = "absent"
    """It is not stored, or belongs to somebody else, or such policies are not served."""


async def presence(policy: AdmissionPolicy, client: Get) -> Presence:
    """Whether a policy of that name is stored that the controller made.

    Raises:
        ApiError: the API server refuses, or cannot be asked.
    """
    version = await served_admission(client)
    if isinstance(version, NotServed):
        return Presence.ABSENT
    try:
        found = await client.get(policy_manifest(policy, version).path)
    except NotFound:
        return Presence.ABSENT
    return Presence.PRESENT if _is_ours(found) else Presence.ABSENT


async def remove(policy: AdmissionPolicy, client: GetDelete) -> None:
    """Delete the binding, then the policy. Objects that belong to somebody else stay.

    Raises:
        Conflict: an object changed meanwhile; start over.
        ApiError: the API server refuses, or cannot be asked.
    """
    version = await served_admission(client)
    if isinstance(version, NotServed):
        return
    for manifest in (binding_manifest(policy, version), policy_manifest(policy, version)):
        try:
            found = await client.get(manifest.path)
            if _is_ours(found):
                metadata = mapping_of(found, "metadata")
                uid, resource_version = text_of(metadata, "uid"), text_of(metadata, "resourceVersion")
                await client.delete(manifest.path, uid=uid, resource_version=resource_version)
        except NotFound:
            continue


async def _write(manifest: Manifest, client: GetCreateReplace) -> Written:
    try:
        found = await client.get(manifest.path)
    except NotFound:
        await client.create(manifest.resource.collection(), manifest.body)
        return Written.CREATED
    if not _is_ours(found):
        raise NotOurs(
            f"{manifest.body['kind']} {manifest.name} has no label {OWNER_LABEL}: {OWNER}, so it belongs to somebody "
            "else: delete or rename it"
        )
    if found.get("spec") == manifest.body["spec"] and _digest(found) == _digest(manifest.body):
        return Written.UNCHANGED
    was_changed = _digest(found) != spec_digest(mapping_of(found, "spec"))
    metadata = mapping_of(found, "metadata")
    precondition = {"uid": text_of(metadata, "uid"), "resourceVersion": text_of(metadata, "resourceVersion")}
    await client.replace(manifest.path, {**manifest.body, "metadata": {**manifest.body["metadata"], **precondition}})
    return Written.RESTORED if was_changed else Written.UPDATED


def _is_ours(found: JsonObject) -> bool:
    return text_of(mapping_of(mapping_of(found, "metadata"), "labels"), OWNER_LABEL) == OWNER


def _digest(found: JsonObject) -> str:
    return text_of(mapping_of(mapping_of(found, "metadata"), "annotations"), DIGEST_ANNOTATION)
