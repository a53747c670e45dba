"""Direct access to the objects for tests: no HTTP, but the same decoding, validation and admission."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from . import bodies
from .bootstrap_objects import kubeadm_objects
from .identity import ADMINISTRATOR, User
from .operations import DeleteOptions, Operations
from .patches import MERGE
from .resource_types import Served
from .status import APIError
from .thread import LoopThread


class ObjectAccess:
    """Create, read and change objects as an administrator, or as any user that is named.

    Every method may be called from any thread, and raises APIError as a request would be answered.
    """

    def __init__(self, operations: Operations, thread: LoopThread) -> None:
        self._operations = operations
        self._loop_thread = thread

    def _served(self, resource: str) -> Served:
        found = self._operations.catalogue.find(resource)
        return Served(found, found.versions[0])

    def _served_by_kind(self, value: dict[str, Any]) -> Served:
        return self._operations.catalogue.by_kind(value.get("apiVersion", ""), value.get("kind", ""))

    def objects(self, resource: str, namespace: str = "") -> list[dict[str, Any]]:
        """Copies of all objects of a resource (plural, ``plural.group`` or kind), sorted by namespace and name."""

        def read() -> list[dict[str, Any]]:
            served = self._served(resource)
            collection = self._operations.collection(served)
            keys = [key for key in collection.order() if not namespace or key[0] == namespace]
            return [served.converted(collection.objects[key]) for key in keys]

        return self._loop_thread.call(read)

    def get(self, resource: str, name: str, namespace: str = "") -> dict[str, Any]:
        """A copy of one object."""

        def read() -> dict[str, Any]:
            served = self._served(resource)
            return served.converted(self._operations.find(served, namespace, name))

        return self._loop_thread.call(read)

    def create(self, value: Mapping[str, Any], user: User = ADMINISTRATOR) -> dict[str, Any]:
        """Create an object that names its apiVersion and kind; the namespace is ``default`` unless given."""

        def write() -> dict[str, Any]:
            copy = _copy(value)
            served = self._served_by_kind(copy)
            return served.converted(self._operations.create(served, _namespace_of(served, copy), copy, user))

        return self._loop_thread.call(write)

    def update(self, value: Mapping[str, Any], subresource: str = "", user: User = ADMINISTRATOR) -> dict[str, Any]:
        """Replace an object, or one of its subresources (``status``, ``approval``)."""

        def write() -> dict[str, Any]:
            copy = _copy(value)
            served = self._served_by_kind(copy)
            namespace, name = _namespace_of(served, copy), copy["metadata"].get("name", "")
            stored, _ = self._operations.replace(served, namespace, name, subresource, copy, user)
            return served.converted(stored)

        return self._loop_thread.call(write)

    def patch(
        self,
        resource: str,
        name: str,
        patch: Mapping[str, Any],
        namespace: str = "",
        subresource: str = "",
        user: User = ADMINISTRATOR,
    ) -> dict[str, Any]:
        """JSON merge patch."""

        def write() -> dict[str, Any]:
            served, copy = self._served(resource), bodies.copy_object(patch)
            stored, _ = self._operations.patch(served, namespace, name, subresource, MERGE, copy, user)
            return served.converted(stored)

        return self._loop_thread.call(write)

    def delete(self, resource: str, name: str, namespace: str = "", user: User = ADMINISTRATOR) -> None:
        def write() -> None:
            self._operations.delete(self._served(resource), namespace, name, user, DeleteOptions())

        self._loop_thread.call(write)

    def apply(self, value: Mapping[str, Any], user: User = ADMINISTRATOR) -> dict[str, Any]:
        """Create the object, or replace an existing one (a status subresource is kept)."""

        def write() -> dict[str, Any]:
            try:
                return self.create(value, user)
            except APIError as error:
                if error.reason != "AlreadyExists":
                    raise
            copy = _copy(value)
            served = self._served_by_kind(copy)
            present = self._operations.find(served, _namespace_of(served, copy), copy["metadata"]["name"])
            copy["metadata"].pop("uid", None)
            copy["metadata"]["resourceVersion"] = present.value["metadata"]["resourceVersion"]
            return self.update(copy, "", user)

        return self._loop_thread.call(write)

    def apply_yaml(self, text: str) -> list[dict[str, Any]]:
        """``apply`` every document of a YAML text."""
        return [self.apply(document) for document in bodies.load_yaml(text)]

    def install_crds(self, paths: Iterable[Path | str]) -> None:
        """``apply`` the CustomResourceDefinitions in these files. Raises ValueError for any other document."""
        for path in paths:
            for document in bodies.load_yaml(Path(path).read_text(encoding="utf-8")):
                if document.get("kind") != "CustomResourceDefinition":
                    kind = document.get("kind")
                    raise ValueError(f"{Path(path).name} holds a {kind}, not only CustomResourceDefinitions")
                self.install_crd(document)

    def install_crd(self, definition: Mapping[str, Any]) -> None:
        """``apply`` one CustomResourceDefinition; its objects are served on return."""
        self.apply(definition)

    def seed_kubeadm(self) -> None:
        """Add or restore the ClusterRoleBindings of ``kubeadm init``."""
        for value in kubeadm_objects():
            self.apply(value)


def _copy(value: Mapping[str, Any]) -> dict[str, Any]:
    copy = bodies.copy_object(value)
    copy.setdefault("metadata", {})
    return copy


def _namespace_of(served: Served, value: dict[str, Any]) -> str:
    return str(value["metadata"].get("namespace") or "default") if served.type.namespaced else ""
