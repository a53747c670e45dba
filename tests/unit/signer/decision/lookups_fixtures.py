"""Objects of a management cluster, and look-ups in it for one claimed Machine."""

from __future__ import annotations

import base64
import copy
from collections.abc import AsyncGenerator
from typing import Any, Final

from attestors.contract import DocumentKind, NoClaimedMachine, NotThere
from signer.decision.lookups import ConfinedLookups, Lookups
from signer.kube.client import Parameters
from signer.kube.errors import ApiError, NotFound
from signer.model.cluster import InfrastructureReference, MachineView
from tests.unit.signer.builders import CLUSTER, machine_view
from tests.unit.signer.controller.support import Clock

GROUP: Final = "infrastructure.cluster.x-k8s.io"
DEFINITION: Final = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/testmachines.{GROUP}"
INFRA_MACHINE: Final = f"/apis/{GROUP}/v1beta2/namespaces/team-a/testmachines/m1-infra"
CONFIG_MAP: Final = "/api/v1/namespaces/team-a/configmaps/inventory"
SECRET: Final = "/api/v1/namespaces/team-a/secrets/inventory"
REFERENCE: Final = InfrastructureReference(GROUP, "", "TestMachine", "m1-infra")
MACHINE: Final = machine_view(name="m1", uid="u1", infrastructure=REFERENCE)
OWNER: Final = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m1", "uid": "u1"}
OURS: Final = {"attestation.cluster.x-k8s.io/tpm-endorsement-key": "sha256:ab"}
HIDDEN: Final = "what nobody may see"


def version(name: str = "v1beta2", *, served: bool = True) -> dict[str, Any]:
    return {"name": name, "served": served, "storage": True}


def definition(*versions: dict[str, Any], **spec: Any) -> dict[str, Any]:
    names = {"kind": "TestMachine", "plural": "testmachines"}
    return {"spec": {"scope": "Namespaced", "names": names, "versions": list(versions or (version(),))} | spec}


def infra_machine(*owners: dict[str, Any], **annotations: str) -> dict[str, Any]:
    every = {**OURS, "example.com/note": HIDDEN, **annotations}
    return {"metadata": {"annotations": every, "ownerReferences": list(owners or (OWNER,))}}


class World:
    """Objects by path; what is not there is not found."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {
            DEFINITION: definition(),
            INFRA_MACHINE: infra_machine(),
            CONFIG_MAP: {"metadata": {"resourceVersion": "7"}, "data": {"m1": "sha256:ab", "m2": "sha256:cd"}},
            SECRET: {"metadata": {"resourceVersion": "8"}, "data": {"m1": encoded(b"sha256:ab")}},
        }
        self.failures: dict[str, ApiError] = {}
        self.asked: list[str] = []
        self.clock = Clock()
        self.lookups = Lookups(self, self.clock.monotonic)

    async def get(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        if path in self.failures:
            raise self.failures[path]
        if path not in self.objects:
            raise NotFound(path)
        return copy.deepcopy(self.objects[path])

    async def list_pages(
        self, path: str, params: Parameters | None = None, limit: int = 500, *, maximum_bytes: int | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The collection, as pages of one object each."""
        items = (await self.get(f"{path}?{(params or {}).get('labelSelector', '')}"))["items"]
        for item in items or [None]:
            yield {"items": [] if item is None else [item]}

    async def annotations(self, machine: MachineView | NoClaimedMachine = MACHINE) -> Any:
        return await ConfinedLookups(self.lookups, CLUSTER, machine).infrastructure_annotations()

    async def document(self, kind: DocumentKind = DocumentKind.CONFIG_MAP, name: str = "inventory") -> Any:
        return await ConfinedLookups(self.lookups, CLUSTER, MACHINE).document(kind, name)


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def cause(found: Any) -> str:
    assert isinstance(found, NotThere), found
    assert HIDDEN not in found.cause
    return found.cause
