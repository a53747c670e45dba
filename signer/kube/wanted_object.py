"""An object as this project keeps it in a cluster, and what becomes of one that is found there in another state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from signer.kube.client import JsonObject
from signer.kube.resources import Resource
from signer.model.fields import mapping_of, text_of

OWNER_LABEL: Final = "app.kubernetes.io/managed-by"
OWNER: Final = "node-attestation-controller"


@dataclass(frozen=True, slots=True)
class WantedObject:
    """One object, and the fields of it that are kept as they are here.

    Every kept field that an API server defaults is written out, so that what is stored equals what is wanted, unless
    somebody changed it.
    """

    resource: Resource
    namespace: str | None
    name: str
    body: JsonObject
    """Not to be changed."""
    kept: tuple[str, ...]

    @property
    def path(self) -> str:
        """Path of the object."""
        return self.resource.object(self.name, self.namespace)

    @property
    def collection(self) -> str:
        """Path in which it is created."""
        return self.resource.collection(self.namespace)

    @property
    def title(self) -> str:
        """For messages."""
        return f"{self.body['kind']} {f'{self.namespace}/' if self.namespace else ''}{self.name}"

    def is_ours(self, found: Mapping[str, Any]) -> bool:
        """Whether this project made the object."""
        return text_of(_labels(found), OWNER_LABEL) == OWNER

    def is_as_wanted(self, found: Mapping[str, Any]) -> bool:
        """Whether nobody changed it. Labels are compared as well: one of them would have a role aggregated."""
        same = all(found.get(field) == self.body.get(field) for field in self.kept)
        return same and dict(_labels(found)) == _labels(self.body) and not found.get("aggregationRule")

    def needs_new_object(self, found: Mapping[str, Any]) -> bool:
        """Whether no update leads there: API servers let nobody change ``roleRef``."""
        return "roleRef" in self.kept and found.get("roleRef") != self.body["roleRef"]

    def replacement(self, found: Mapping[str, Any]) -> JsonObject:
        """The body that replaces ``found``, and nothing newer."""
        version = text_of(mapping_of(found, "metadata"), "resourceVersion")
        return {**self.body, "metadata": {**self.body["metadata"], "resourceVersion": version}}


def uid_of(found: Mapping[str, Any]) -> str:
    """The UID of an object as read."""
    return text_of(mapping_of(found, "metadata"), "uid")


def _labels(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping_of(mapping_of(found, "metadata"), "labels")
