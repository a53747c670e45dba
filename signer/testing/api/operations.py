"""Writes to objects: create, update, patch, delete.

HTTP and the tests' direct access both come through here.

Follows the order of k8s.io/apiserver ``pkg/registry/generic/registry``: mutating admission, preparation, validation,
validating admission, write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import metadata
from .crd_definitions import custom_type
from .identity import User
from .patches import APPLY, STRATEGIC, apply_patch, check_applied
from .resource_types import Catalogue, Served, ordered
from .status import (
    APIError,
    FieldError,
    Target,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    invalid_value,
    not_found,
    unsupported_media_type,
)
from .store import Collection, Store
from .strategy import Authorizer, Context, ServerVersion
from .watch_log import Stored

_GENERATE_ATTEMPTS = 8
_IGNORED_FOR_GENERATION = ("metadata", "status", "apiVersion", "kind")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Query options of a write."""

    dry_run: bool = False
    strict: bool = False
    """``fieldValidation=Strict``: unknown fields are a bad request."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Body of a delete."""

    uid: str = ""
    resource_version: str = ""
    orphan: bool = False
    dry_run: bool = False


NO_OPTIONS = WriteOptions()


class Operations:
    """All writes. Everything runs in the API's event loop without awaiting, so each write is atomic."""

    def __init__(
        self, store: Store, catalogue: Catalogue, authorizer: Authorizer, server_version: ServerVersion
    ) -> None:
        self.store = store
        self.catalogue = catalogue
        self.authorizer = authorizer
        self.server_version = server_version
        self.after_removal: Callable[[Served, Stored, DeleteOptions], None] | None = None
        """Called when an object is removed, or when its removal starts (finalizers); for garbage collection."""

    def context(self, user: User) -> Context:
        return Context(user, self.server_version, self.authorizer)

    def collection(self, served: Served) -> Collection:
        return self.store.collection(*served.type.identity)

    def find(self, served: Served, namespace: str, name: str) -> Stored:
        """Raises APIError 404."""
        found = self.collection(served).objects.get((namespace, name))
        if found is None:
            raise not_found(served.type.target(name))
        return found

    def create(
        self, served: Served, namespace: str, value: dict[str, Any], user: User, options: WriteOptions = NO_OPTIONS
    ) -> Stored:
        """Create an object; takes ownership of ``value``. Raises APIError."""
        resource, context = served.type, self.context(user)
        self.decode(served, namespace, value, options)
        found = value["metadata"]
        if found.pop("resourceVersion", None):
            raise APIError(500, "", "resourceVersion should not be set on objects to be created", {})
        self._require_namespace(served, namespace, found)
        collection = self.collection(served)
        self._name(collection, namespace, found)
        metadata.prepare_create(found, generation=resource.strategy.generation)
        resource.strategy.prepare_create(value, context)
        errors = metadata.validate(found, resource.strategy.name_rule, core=resource.core_metadata)
        errors += served.validate(value) + resource.strategy.validate_create(value, context)
        if errors:
            raise invalid(resource.target(found.get("name", "")), errors)
        resource.strategy.admit_create(value, context)
        if (namespace, found["name"]) in collection.objects:
            raise already_exists(resource.target(found["name"]))
        return self._write(served, value, options)

    def _name(self, collection: Collection, namespace: str, found: dict[str, Any]) -> None:
        """Make a free name from ``generateName`` if there is no name, in a few attempts, as the real server does."""
        base = found.get("generateName")
        if found.get("name") or not base:
            return
        for _ in range(_GENERATE_ATTEMPTS):
            found["name"] = metadata.generated_name(base)
            if (namespace, found["name"]) not in collection.objects:
                return

    def decode(self, served: Served, namespace: str, value: dict[str, Any], options: WriteOptions) -> None:
        """Read a body in place, as every write begins. Raises APIError."""
        self._decode(served, value, options)
        self._settle_namespace(served, value["metadata"], namespace)

    def _decode(self, served: Served, value: dict[str, Any], options: WriteOptions) -> None:
        dropped = served.decode(value)
        if dropped and options.strict:
            text = ", ".join(f'unknown field "{path}"' for path in dropped[:16])
            raise bad_request(f"strict decoding error: {text}")

    def _settle_namespace(self, served: Served, found: dict[str, Any], namespace: str) -> None:
        given = found.get("namespace", "")
        if not served.type.namespaced:
            found.pop("namespace", None)
            return
        if given and given != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        found["namespace"] = namespace

    def _require_namespace(self, served: Served, namespace: str, found: dict[str, Any]) -> None:
        if not served.type.namespaced:
            return
        holder = self.store.collection("", "namespaces").objects.get(("", namespace))
        if holder is None:
            raise not_found(self.catalogue.type(("", "namespaces")).target(namespace))
        if "deletionTimestamp" in holder.value["metadata"]:
            text = f"unable to create new content in namespace {namespace} because it is being terminated"
            error = forbidden(served.type.target(found.get("name", "")), text)
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated"}
            error.details["causes"] = [{**cause, "field": "metadata.namespace"}]
            raise error

    def _write(self, served: Served, value: dict[str, Any], options: WriteOptions) -> Stored:
        value = ordered(value)
        value["apiVersion"] = served.type.storage.api_version
        if options.dry_run:
            return Stored(value, self.store.revision)
        stored = self.store.write(self.collection(served), value)
        if served == served.type.storage:
            served.remember(stored)
        self._defined(served, stored)
        return stored

    def _defined(self, served: Served, stored: Stored) -> None:
        if served.type.identity == ("apiextensions.k8s.io", "customresourcedefinitions"):
            self.catalogue.add(custom_type(stored.value))

    def replace(
        self,
        served: Served,
        namespace: str,
        name: str,
        subresource: str,
        value: dict[str, Any],
        user: User,
        options: WriteOptions = NO_OPTIONS,
    ) -> tuple[Stored, bool]:
        """PUT. The result says whether the object was created. Raises APIError."""
        old = self.collection(served).objects.get((namespace, name))
        self.decode_replacement(served, namespace, name, subresource, value, old, options)
        if old is None:
            return self.create(served, namespace, value, user, options), True
        return self.update(served, old, subresource, value, user, options), False

    def decode_replacement(
        self,
        served: Served,
        namespace: str,
        name: str,
        subresource: str,
        value: dict[str, Any],
        old: Stored | None,
        options: WriteOptions,
    ) -> None:
        """Read the body of a PUT in place; without ``old`` it is that of a creation. Raises APIError."""
        self._decode(served, value, options)
        self._check_name(served, value, namespace, name)
        if old is not None:
            return
        if subresource or not served.type.strategy.create_on_update:
            raise not_found(served.type.target(name))
        if uid := value["metadata"].get("uid"):
            text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
            raise conflict(served.type.target(name), text)
        value["metadata"].pop("resourceVersion", None)

    def _check_name(self, served: Served, value: dict[str, Any], namespace: str, name: str) -> None:
        found = value["metadata"]
        given = found.get("name", "")
        if given != name:
            if not given:
                raise bad_request("name must be provided")
            raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
        self._settle_namespace(served, found, namespace)

    def patch(
        self,
        served: Served,
        namespace: str,
        name: str,
        subresource: str,
        content_type: str,
        patch: Any,
        user: User,
        options: WriteOptions = NO_OPTIONS,
    ) -> tuple[Stored, bool]:
        """PATCH. Server-side apply creates a missing object. Raises APIError."""
        old = self.collection(served).objects.get((namespace, name))
        value = self.patched(served, namespace, name, subresource, content_type, patch, old, options)
        if old is None:
            return self.create(served, namespace, value, user, options), True
        return self.update(served, old, subresource, value, user, options), False

    def patched(
        self,
        served: Served,
        namespace: str,
        name: str,
        subresource: str,
        content_type: str,
        patch: Any,
        old: Stored | None,
        options: WriteOptions,
    ) -> dict[str, Any]:
        """What a PATCH makes of ``old``; without it, what it creates. Raises APIError."""
        if content_type == STRATEGIC and served.type.custom:
            accepted = ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"]
            raise unsupported_media_type(accepted)
        if old is None:
            if content_type != APPLY or subresource:
                raise not_found(served.type.target(name))
            check_applied(patch, name, served.api_version, present=False)
            created: dict[str, Any] = patch
            return created
        if content_type == APPLY:
            check_applied(patch, name, served.api_version, present=True)
        value = apply_patch(content_type, served.converted(old), patch)
        try:
            self._decode(served, value, options)
        except APIError as error:
            raise invalid(Target("", "", ""), [FieldError("FieldValueInvalid", "patch", error.message)]) from error
        self._check_name(served, value, namespace, name)
        return value

    def update(
        self, served: Served, old: Stored, subresource: str, value: dict[str, Any], user: User, options: WriteOptions
    ) -> Stored:
        """Write what a PUT or PATCH makes of ``old``; takes ownership of ``value``. Raises APIError."""
        resource, context, found = served.type, self.context(user), value["metadata"]
        strategy, name = resource.strategy, old.value["metadata"]["name"]
        before = served.converted(old) if resource.custom else old.value
        self._check_version(served, found, before["metadata"])
        strategy.prepare_update(value, before, subresource, context)
        found = value["metadata"]
        metadata.prepare_update(found, before["metadata"])
        if strategy.generation and any(
            value.get(field) != before.get(field)
            for field in value.keys() | before.keys()
            if field not in _IGNORED_FOR_GENERATION
            or (field == "status" and resource.custom and not resource.subresources)
        ):
            found["generation"] = before["metadata"].get("generation", 1) + 1
        errors = metadata.validate(
            found, resource.strategy.name_rule, core=resource.core_metadata
        ) + metadata.validate_update(found, before["metadata"])
        errors += served.validate(value) + strategy.validate_update(value, before, subresource, context)
        if errors:
            raise invalid(resource.target(name), errors)
        strategy.admit_update(value, before, subresource, context)
        found["resourceVersion"] = before["metadata"]["resourceVersion"]
        if value == before:
            return old
        if self._finished(served, value) and not options.dry_run:
            return self._remove(served, Stored(ordered(value), old.revision), DeleteOptions())
        return self._write(served, value, options)

    def _check_version(self, served: Served, found: dict[str, Any], old: dict[str, Any]) -> None:
        target = served.type.target(old["name"])
        version = found.get("resourceVersion", "")
        if not version and not served.type.strategy.unconditional_update:
            raise invalid(target, [invalid_value("metadata.resourceVersion", 0, "must be specified for an update")])
        if version and version != old["resourceVersion"]:
            raise conflict(target)
        uid = found.get("uid")
        if uid and uid != old["uid"]:
            raise conflict(target, f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['uid']}")

    def _finished(self, served: Served, value: dict[str, Any]) -> bool:
        found = value["metadata"]
        holds = bool(found.get("finalizers"))
        if served.type.identity == ("", "namespaces"):
            holds = holds or bool((value.get("spec") or {}).get("finalizers"))
        return "deletionTimestamp" in found and not holds

    def delete(
        self, served: Served, namespace: str, name: str, user: User, options: DeleteOptions
    ) -> tuple[Stored, bool]:
        """The last state, and whether the object is gone (finalizers keep it). Raises APIError."""
        old = self.find(served, namespace, name)
        resource, found = served.type, old.value["metadata"]
        if options.uid and options.uid != found["uid"]:
            text = (
                f"the UID in the precondition ({options.uid}) does not match the UID in record ({found['uid']}). "
                "The object might have been deleted and then recreated"
            )
            raise conflict(resource.target(name), text)
        if options.resource_version and options.resource_version != found["resourceVersion"]:
            text = (
                f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
                f"ResourceVersion in record ({found['resourceVersion']}). The object might have been modified"
            )
            raise conflict(resource.target(name), text)
        if resource.identity == ("", "namespaces") and name in {"default", "kube-system", "kube-public"}:
            raise forbidden(resource.target(name), "this namespace may not be deleted")
        resource.strategy.admit_delete(old.value, self.context(user))
        held = found.get("finalizers") or resource.identity == ("", "namespaces")
        if options.dry_run:
            return old, not held
        if not held:
            return self._remove(served, old, options), True
        if "deletionTimestamp" not in found:
            marked = {**found, "deletionTimestamp": metadata.now(), "deletionGracePeriodSeconds": 0}
            if "generation" in found:
                marked["generation"] = found["generation"] + 1
            value = {**old.value, "metadata": marked}
            if resource.identity == ("", "namespaces"):
                value["status"] = {**(value.get("status") or {}), "phase": "Terminating"}
            old = self.store.write(self.collection(served), value)
            if self.after_removal is not None and resource.identity == ("", "namespaces"):
                self.after_removal(served, old, options)
        return old, False

    def _remove(self, served: Served, old: Stored, options: DeleteOptions) -> Stored:
        if served.type.identity == ("apiextensions.k8s.io", "customresourcedefinitions"):
            self._undefine(old)
        last = self.store.remove(self.collection(served), old)
        if self.after_removal is not None:
            self.after_removal(served, last, options)
        return last

    def _undefine(self, definition: Stored) -> None:
        """Remove a definition's objects, and end their watches."""
        spec = definition.value["spec"]
        identity = (spec["group"], spec["names"]["plural"])
        collection = self.store.collection(*identity)
        for stored in list(collection.objects.values()):
            self.store.remove(collection, stored)
        collection.log.stop_watchers()
        self.catalogue.remove(identity)
