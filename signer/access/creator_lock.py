"""Tries whether admission keeps people from making objects in a foreign name.

In each namespace with grants, a dry run creates an AccessGrant and an AccessApproval in the name of somebody who does
not exist. What the API server answers decides, not what the admission policies say; but the guards (policies and
bindings, or the webhook configuration) are read as well, because their age decides which objects they have seen.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

from signer.access.creator import Guard, Lock, NotProtected, Protected, ProtectionUnknown, Unverified
from signer.kube.calls import GetDryRun
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, Forbidden, Invalid, NotFound, ResourceNotServed
from signer.kube.resources import (
    ACCESS_APPROVALS,
    ACCESS_GRANTS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    VALIDATING_WEBHOOKS,
    Resource,
)
from signer.model.fields import items_of, mapping_of, parse_time, text_of

TRIED_SECONDS: Final = 60.0
"""Between two trials in a namespace."""
TRUSTED_SECONDS: Final = 90.0
"""A trial that is older proves nothing now."""
GUARDS_SECONDS: Final = 5.0
"""Trials of several namespaces share one look at the guards for so long."""
FOREIGN_NAME: Final = "node-access-probe:nobody"
"""No authenticator gives this name: a colon follows only known prefixes such as ``system:``."""
_PROBE_KEY: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
_ZERO_UID: Final = "00000000-0000-4000-8000-000000000000"
_REFUSED_BY_POLICY: Final = "ValidatingAdmissionPolicy '{}' with binding '{}' denied request: "
_REFUSED_BY_WEBHOOK: Final = 'admission webhook "{}" denied the request: '
"""What the API server puts before the message of a policy (``apiserver/pkg/admission/plugin/policy/validating``) and of
a webhook (``apiserver/pkg/admission/plugin/webhook/errors``). RBAC's refusals have neither. Refusals by others, such as
a policy that demands labels, say nothing about ours; nor do ours if they refuse for another reason than the name, such
as the controller's missing right to the login."""


@dataclass(frozen=True, slots=True)
class GuardNames:
    """The objects that prove creators: every policy with its binding, or the webhook configuration."""

    policies: tuple[str, ...]
    """ValidatingAdmissionPolicies. Each has a binding of the same name."""
    webhook: str
    """ValidatingWebhookConfiguration, where the API server serves no policies."""
    message: str
    """What they say of a foreign name, before they say anything else."""


@dataclass(frozen=True, slots=True)
class _NoGuards:
    message: str


@dataclass(frozen=True, slots=True)
class _Complete:
    """All of them are there."""

    guards: tuple[Guard, ...]
    refusals: tuple[str, ...]
    """What a refusal by one of them says."""


_Guards: TypeAlias = _Complete | _NoGuards


@dataclass(slots=True)
class _Namespace:
    tried_at: float
    answer: Lock = field(default_factory=lambda: ProtectionUnknown("not tried yet"))
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class CreatorLock:
    """What trials have shown, by namespace."""

    def __init__(
        self,
        client: GetDryRun,
        names: GuardNames,
        *,
        is_required: bool,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        """``is_required`` is false where the operator has creators believed without proof."""
        self._client = client
        self._names = names
        self._is_required = is_required
        self._now = now
        self._monotonic = monotonic
        self._namespaces: dict[str, _Namespace] = {}
        self._guards: _Guards = _NoGuards("not read yet")
        self._guards_read_at = float("-inf")

    async def fresh(self, namespace: str, since: float = float("-inf")) -> Lock:
        """The answer of a trial that is at most ``TRIED_SECONDS`` old, and began at ``since`` (monotonic) or later."""
        if not self._is_required:
            return Unverified()
        known = self._namespaces.setdefault(namespace, _Namespace(float("-inf")))
        async with known.lock:
            if known.tried_at < since or self._monotonic() - known.tried_at >= TRIED_SECONDS:
                await self._try(namespace, known, since)
            if known.tried_at < since and isinstance(known.answer, Protected):
                return ProtectionUnknown("the trial of the creator lock failed just now")
        return known.answer

    def forget(self, namespace: str) -> None:
        """No grant is there any more."""
        self._namespaces.pop(namespace, None)

    def namespaces(self) -> Iterator[str]:
        """Those that were tried."""
        return iter(tuple(self._namespaces))

    async def _try(self, namespace: str, known: _Namespace, since: float) -> None:
        now = self._monotonic()
        answer = await self._answer(namespace, since)
        if isinstance(answer, ProtectionUnknown) and isinstance(known.answer, Protected):
            if now - known.tried_at <= TRUSTED_SECONDS:
                return  # the last trial still counts, and the next look tries again
        else:
            known.tried_at = now
        known.answer = answer

    async def _answer(self, namespace: str, since: float) -> Lock:
        try:
            guards = await self._read_guards(since)
            if isinstance(guards, _NoGuards):
                return NotProtected(guards.message)
            for resource, body in _probes(namespace):
                accepted = await self._accepts(resource, namespace, body, guards.refusals)
                if accepted:
                    return NotProtected(f"the API server accepts {accepted} in a foreign name")
        except ApiError as error:
            return ProtectionUnknown(f"the trial of the creator lock failed: {error}")
        return Protected(guards.guards, self._now())

    async def _accepts(self, resource: Resource, namespace: str, body: JsonObject, refusals: tuple[str, ...]) -> str:
        """The kind that is accepted in a foreign name; empty if it is not.

        Raises:
            ApiError: it was refused for another reason than its name, or not answered.
        """
        try:
            answer = await self._client.create(resource.collection(namespace), body, {"dryRun": "All"})
        except (Forbidden, Invalid) as error:
            if any(text in error.message for text in refusals):
                return ""
            raise
        stated = mapping_of(mapping_of(answer, "spec"), "createdBy")
        return text_of(body, "kind") if text_of(stated, "username") == FOREIGN_NAME else ""

    async def _read_guards(self, since: float) -> _Guards:
        now = self._monotonic()
        if self._guards_read_at < since or now - self._guards_read_at >= GUARDS_SECONDS:
            guards = await self._policies() or await self._webhook()
            self._guards, self._guards_read_at = guards, now
            return guards
        return self._guards

    async def _policies(self) -> _Guards | None:
        """None where the API server serves no ValidatingAdmissionPolicies."""
        for version in zip(VALIDATING_ADMISSION_POLICIES, VALIDATING_ADMISSION_POLICY_BINDINGS, strict=True):
            try:
                return await self._policies_of(version)
            except ResourceNotServed:
                continue
        return None

    async def _policies_of(self, version: tuple[Resource, Resource]) -> _Guards:
        found: list[Guard] = []
        for name in self._names.policies:
            for resource in version:
                try:
                    found.append(_guard(await self._client.get(resource.object(name))))
                except NotFound:
                    return _NoGuards(f"there is no object {name} of {resource.plural}; install the policies for access")
        return _Complete(tuple(found), tuple(self._refusal(_REFUSED_BY_POLICY, name) for name in self._names.policies))

    async def _webhook(self) -> _Guards:
        name = self._names.webhook
        try:
            found = await self._client.get(VALIDATING_WEBHOOKS.object(name))
        except (NotFound, ResourceNotServed):
            return _NoGuards(
                f"the API server serves no ValidatingAdmissionPolicies, and there is no webhook configuration {name}"
            )
        webhooks = [text_of(one, "name") for one in items_of(found, "webhooks") if isinstance(one, Mapping)]
        return _Complete((_guard(found),), tuple(self._refusal(_REFUSED_BY_WEBHOOK, name) for name in webhooks))

    def _refusal(self, text: str, name: str) -> str:
        return text.format(name, name) + self._names.message


def _guard(manifest: JsonObject) -> Guard:
    metadata = mapping_of(manifest, "metadata")
    generation = metadata.get("generation")
    return Guard(
        f"{text_of(manifest, 'kind')}/{text_of(metadata, 'name')}",
        text_of(metadata, "uid"),
        generation if type(generation) is int else 0,
        max(_times(metadata)),
    )


def _times(metadata: Mapping[str, Any]) -> Iterator[datetime]:
    """Of its creation, and of changes of anything but its status."""
    yield parse_time(text_of(metadata, "creationTimestamp"))
    for one in items_of(metadata, "managedFields"):
        if isinstance(one, Mapping) and not one.get("subresource") and "time" in one:
            yield parse_time(text_of(one, "time"))


def _probes(namespace: str) -> tuple[tuple[Resource, JsonObject], ...]:
    creator = {"username": FOREIGN_NAME, "groups": ["system:authenticated"]}
    name = f"probe-{secrets.token_hex(8)}"
    metadata = {"name": name, "namespace": namespace}
    grant: JsonObject = {
        "apiVersion": ACCESS_GRANTS.api_version,
        "kind": "AccessGrant",
        "metadata": metadata,
        "spec": {
            "clusterRef": {"name": name},
            "target": {"nodes": [name]},
            "sshPublicKey": _PROBE_KEY,
            "createdBy": creator,
        },
    }
    approval: JsonObject = {
        "apiVersion": ACCESS_APPROVALS.api_version,
        "kind": "AccessApproval",
        "metadata": metadata,
        "spec": {
            "grantRef": {"name": name, "uid": _ZERO_UID},
            "decision": "Approve",
            "specDigest": "0" * 64,
            "createdBy": creator,
        },
    }
    return (ACCESS_GRANTS, grant), (ACCESS_APPROVALS, approval)


__all__ = ["FOREIGN_NAME", "TRIED_SECONDS", "CreatorLock", "GuardNames"]
