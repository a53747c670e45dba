"""Admission webhooks (k8s.io/apiserver ``pkg/admission/plugin/webhook``).

Mutating ones see a write before it is prepared, validating ones what would be written. Writes are atomic because
nothing waits in them. A webhook is waited for, so an update is judged on a draft, and written only if its object is
still the one that was judged.
"""

from __future__ import annotations

import base64
import binascii
import ssl
import uuid
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import aiohttp
import msgspec

from .identity import User
from .operations import DeleteOptions, Operations, WriteOptions
from .patches import JSON, apply_patch
from .resource_types import Served
from .selectors import Requirement
from .status import APIError, conflict
from .watch_log import Stored

GROUP: Final = "admissionregistration.k8s.io"
MUTATING: Final = "mutatingwebhookconfigurations"
VALIDATING: Final = "validatingwebhookconfigurations"
_ATTEMPTS: Final = 5
_MAXIMUM_ANSWER_BYTES: Final = 3 * 1024 * 1024
_WITHOUT_SIDE_EFFECTS: Final = frozenset({"None", "NoneOnDryRun"})
_OPTIONS: Final = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}

ServiceAddresses: TypeAlias = dict[tuple[str, str], tuple[str, int]]
"""Where Services listen, by namespace and name: the embedded API has no cluster network."""
Change: TypeAlias = Callable[[Stored | None], dict[str, Any]]
"""What a PUT or PATCH makes of an object, or creates. Raises APIError."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One write that webhooks judge."""

    served: Served
    operation: str
    """CREATE, UPDATE or DELETE."""
    subresource: str
    namespace: str
    name: str
    user: User
    dry_run: bool


class Webhooks:
    """The webhooks that the stored configurations name."""

    def __init__(self, operations: Operations, services: ServiceAddresses) -> None:
        self._operations = operations
        self._services = services

    def concern(self, attempt: Attempt) -> bool:
        """Whether a webhook may have to be called: the write must then come through here."""
        # An update may turn out to be a creation.
        attempts = (attempt, replace(attempt, operation="CREATE")) if attempt.operation == "UPDATE" else (attempt,)
        return any(
            any(_rule_matches(rule, one) for one in attempts)
            for plural in (MUTATING, VALIDATING)
            for webhook in self._configured(plural)
            for rule in webhook.get("rules") or ()
        ) and attempt.served.type.identity not in {(GROUP, MUTATING), (GROUP, VALIDATING)}

    async def create(self, attempt: Attempt, value: dict[str, Any], options: WriteOptions) -> Stored:
        """Create an object. Raises APIError."""
        operations, served = self._operations, attempt.served
        operations.decode(served, attempt.namespace, value, options)
        attempt = replace(attempt, name=value["metadata"].get("name", ""))
        value = await self._mutated(attempt, value, None, options)
        dry = replace(options, dry_run=True)
        draft = operations.create(served, attempt.namespace, deepcopy(value), attempt.user, dry).value
        value["metadata"]["name"] = draft["metadata"]["name"]  # perhaps generated, and judged
        await self._validate(replace(attempt, name=draft["metadata"]["name"]), draft, None)
        return operations.create(served, attempt.namespace, value, attempt.user, options)

    async def change(self, attempt: Attempt, make: Change, options: WriteOptions) -> tuple[Stored, bool]:
        """PUT or PATCH; the result says whether the object was created. Raises APIError."""
        operations, served = self._operations, attempt.served
        objects = operations.collection(served).objects
        for _ in range(_ATTEMPTS):
            old = objects.get((attempt.namespace, attempt.name))
            value = make(old)
            if old is None:
                return await self.create(replace(attempt, operation="CREATE"), value, options), True
            before = served.converted(old)
            value = await self._mutated(attempt, value, before, options)
            dry = replace(options, dry_run=True)
            draft = operations.update(served, old, attempt.subresource, deepcopy(value), attempt.user, dry)
            await self._validate(attempt, draft.value, before)
            if objects.get((attempt.namespace, attempt.name)) is old:
                return operations.update(served, old, attempt.subresource, value, attempt.user, options), False
        raise conflict(served.type.target(attempt.name))

    async def delete(self, attempt: Attempt, options: DeleteOptions) -> tuple[Stored, bool]:
        """Delete an object. Raises APIError."""
        found = self._operations.find(attempt.served, attempt.namespace, attempt.name)
        before = attempt.served.converted(found)
        await self._mutated(attempt, None, before, WriteOptions())
        await self._validate(attempt, None, before)
        return self._operations.delete(attempt.served, attempt.namespace, attempt.name, attempt.user, options)

    def _configured(self, plural: str) -> Iterator[Mapping[str, Any]]:
        """The webhooks, by the configurations' names."""
        objects = self._operations.store.collection(GROUP, plural).objects
        for _, stored in sorted(objects.items()):
            yield from stored.value.get("webhooks") or ()

    def _matching(
        self, plural: str, attempt: Attempt, value: dict[str, Any] | None, old: dict[str, Any] | None
    ) -> list[Mapping[str, Any]]:
        return [
            webhook
            for webhook in self._configured(plural)
            if any(_rule_matches(rule, attempt) for rule in webhook.get("rules") or ())
            and self._namespace_matches(webhook, attempt)
            and any(
                _selects(webhook.get("objectSelector"), one["metadata"].get("labels") or {})
                for one in (value, old)
                if one is not None
            )
        ]

    def _namespace_matches(self, webhook: Mapping[str, Any], attempt: Attempt) -> bool:
        if not attempt.served.type.namespaced:
            return True
        namespace = self._operations.store.collection("", "namespaces").objects.get(("", attempt.namespace))
        labels = {} if namespace is None else namespace.value["metadata"].get("labels") or {}
        return _selects(webhook.get("namespaceSelector"), labels)

    async def _mutated(
        self, attempt: Attempt, value: dict[str, Any] | None, old: dict[str, Any] | None, options: WriteOptions
    ) -> Any:
        for webhook in self._matching(MUTATING, attempt, value, old):
            answer = await self._ask(webhook, attempt, value, old)
            if value is None or not answer.get("patch"):
                continue
            try:
                patch = msgspec.json.decode(base64.b64decode(answer["patch"], validate=True))
                value = apply_patch(JSON, value, patch)
            except (binascii.Error, msgspec.DecodeError, APIError) as error:
                raise _failed(webhook["name"], f"the patch cannot be applied: {error}") from error
            self._operations.decode(attempt.served, attempt.namespace, value, options)
        return value

    async def _validate(self, attempt: Attempt, value: dict[str, Any] | None, old: dict[str, Any] | None) -> None:
        for webhook in self._matching(VALIDATING, attempt, value, old):
            await self._ask(webhook, attempt, value, old)

    async def _ask(
        self,
        webhook: Mapping[str, Any],
        attempt: Attempt,
        value: dict[str, Any] | None,
        old: dict[str, Any] | None,
    ) -> dict[str, Any]:
        """The ``response`` of a webhook that allows the write; empty if it failed and its policy ignores that.

        Raises:
            APIError: it refuses, or failed.
        """
        name = webhook["name"]
        if attempt.dry_run and webhook.get("sideEffects") not in _WITHOUT_SIDE_EFFECTS:
            raise APIError(400, "BadRequest", f'admission webhook "{name}" does not support dry run', {})
        review = _review(attempt, value, old)
        try:
            answer = _response(await self._post(webhook, review), review["request"]["uid"])
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if webhook.get("failurePolicy", "Fail") == "Ignore":
                return {}
            raise _failed(name, str(error) or type(error).__name__) from error
        if not answer.get("allowed"):
            raise _denied(name, answer.get("status") or {})
        return answer

    async def _post(self, webhook: Mapping[str, Any], review: dict[str, Any]) -> bytes:
        config = webhook["clientConfig"]
        context = ssl.create_default_context(cadata=base64.b64decode(config.get("caBundle") or "").decode() or None)
        server_name: str | None = None
        url = config.get("url") or ""
        if service := config.get("service"):
            server_name = f"{service['name']}.{service['namespace']}.svc"
            host, port = self._services[service["namespace"], service["name"]]
            url = f"https://{host}:{port}{service.get('path') or '/'}"
        timeout = aiohttp.ClientTimeout(total=webhook.get("timeoutSeconds") or 10)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, json=review, ssl=context, server_hostname=server_name, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise ValueError(f"status {answer.status}")
            return await answer.content.read(_MAXIMUM_ANSWER_BYTES)


def _review(attempt: Attempt, value: dict[str, Any] | None, old: dict[str, Any] | None) -> dict[str, Any]:
    kind = {"group": attempt.served.type.group, "version": attempt.served.version, "kind": attempt.served.type.kind}
    resource = {"group": kind["group"], "version": kind["version"], "resource": attempt.served.type.plural}
    user: dict[str, Any] = {"username": attempt.user.name, "groups": list(attempt.user.groups)}
    if attempt.user.uid:
        user["uid"] = attempt.user.uid
    if attempt.user.extra:
        user["extra"] = {key: list(values) for key, values in attempt.user.extra.items()}
    request = {
        "uid": str(uuid.uuid4()),
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": attempt.name,
        "namespace": attempt.namespace,
        "operation": attempt.operation,
        "userInfo": user,
        "object": value,
        "oldObject": old,
        "dryRun": attempt.dry_run,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": _OPTIONS[attempt.operation]},
    }
    if attempt.subresource:
        request |= {"subResource": attempt.subresource, "requestSubResource": attempt.subresource}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def _response(body: bytes, uid: str) -> dict[str, Any]:
    """Raises ValueError if it is no answer to that request."""
    review = msgspec.json.decode(body)
    if not isinstance(review, dict) or (review.get("apiVersion"), review.get("kind")) != (
        "admission.k8s.io/v1",
        "AdmissionReview",
    ):
        raise ValueError("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview")
    response = review.get("response")
    if not isinstance(response, dict):
        raise ValueError("webhook response was absent")
    if response.get("uid") != uid:
        raise ValueError(f"expected response.uid={uid!r}, got {response.get('uid')!r}")
    if response.get("patch") and response.get("patchType") != "JSONPatch":
        raise ValueError("webhook returned response.patch but not response.patchType")
    return response


def _denied(name: str, status: Mapping[str, Any]) -> APIError:
    """As ``webhook/errors.ToStatusErr``."""
    code = status.get("code") or 0
    text = status.get("message") or status.get("reason")
    denied = f'admission webhook "{name}" denied the request'
    message = f"{denied}: {text}" if text else f"{denied} without explanation"
    return APIError(max(code, 400), status.get("reason") or "", message, status.get("details") or {})


def _failed(name: str, why: str) -> APIError:
    text = f'Internal error occurred: failed calling webhook "{name}": {why}'
    causes = [{"message": f'failed calling webhook "{name}": {why}'}]
    return APIError(500, "InternalError", text, {"causes": causes})


def _rule_matches(rule: Mapping[str, Any], attempt: Attempt) -> bool:
    """As ``pkg/admission/plugin/webhook/predicates/rules``."""
    resource = attempt.served.type
    scope = {"Cluster": not resource.namespaced, "Namespaced": resource.namespaced}.get(rule.get("scope", "*"), True)
    return (
        scope
        and _has(rule.get("operations"), attempt.operation)
        and _has(rule.get("apiGroups"), resource.group)
        and _has(rule.get("apiVersions"), attempt.served.version)
        and any(_is_of(named, resource.plural, attempt.subresource) for named in rule.get("resources") or ())
    )


def _has(names: list[str] | None, wanted: str) -> bool:
    return "*" in (names or ()) or wanted in (names or ())


def _is_of(named: str, plural: str, subresource: str) -> bool:
    resource, _, part = named.partition("/")
    return resource in ("*", plural) and part in ("*", subresource)


def _selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """A LabelSelector; without one, everything."""
    selector = selector or {}
    wanted = [
        Requirement(key, frozenset({value}), negated=False)
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for term in selector.get("matchExpressions") or ():
        values = frozenset(term.get("values") or ())
        wanted.append(Requirement(term["key"], values, negated=term["operator"] in {"NotIn", "DoesNotExist"}))
    return all(requirement.matches(labels) for requirement in wanted)


__all__ = ["GROUP", "MUTATING", "VALIDATING", "Attempt", "Change", "ServiceAddresses", "Webhooks"]
