"""Signer names on the InfraCluster: only if its schema keeps them, and only on the Cluster's own."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest

from signer.configuration import Configuration, every_attestor
from signer.controller.status.infrastructure_status import (
    InfrastructureStatus,
    NotPublished,
    Publication,
    Published,
)
from signer.kube.errors import ApiError, Forbidden, Invalid, NotFound, ServerError
from signer.model.cluster import ClusterView, cluster_view
from signer.model.floors import NO_FLOOR
from signer.model.policy import Policy, parse_policy
from signer.store.infrastructure_definition import DEFINITION_SECONDS
from tests.unit.signer.controller.support import Clock, registry

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/testclusters.infrastructure.cluster.x-k8s.io"
STATUS = "/apis/infrastructure.cluster.x-k8s.io/{version}/namespaces/team-a/testclusters/prod-infra/status"
CLIENT = "cluster.x-k8s.io/kube-apiserver-client-kubelet-{}"
SERVING = "cluster.x-k8s.io/kubelet-serving-{}"
REFERENCE = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "TestCluster", "name": "prod-infra"}
BOTH = {"kubeletClientCertificateSigner": {"type": "string"}, "kubeletServingCertificateSigner": {"type": "string"}}
OWNER = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "prod", "uid": "c-1"}


def version(name: str = "v1beta2", fields: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    status = {"type": "object", "properties": {"ready": {"type": "boolean"}, **(BOTH if fields is None else fields)}}
    made = {
        "name": name,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"status": status}}},
    }
    return made | changes


def definition(*versions: dict[str, Any], labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "testclusters.infrastructure.cluster.x-k8s.io", "labels": labels or {}},
        "spec": {
            "group": "infrastructure.cluster.x-k8s.io",
            "scope": "Namespaced",
            "names": {"kind": "TestCluster", "plural": "testclusters"},
            "versions": list(versions or (version(),)),
        }
        | spec,
    }


def cluster(reference: dict[str, Any] | None = None, **metadata: Any) -> ClusterView:
    return cluster_view(
        {
            "metadata": {"namespace": "team-a", "name": "prod", "uid": "c-1", **metadata},
            "spec": {"infrastructureRef": REFERENCE if reference is None else reference},
        }
    )


def policy(*attestors: str) -> Policy:
    spec = {"authorizedAttestors": [{"name": name} for name in attestors]}
    return parse_policy({"metadata": {"namespace": "team-a", "name": "prod", "uid": "p-1"}, "spec": spec}, NO_FLOOR)


class World:
    """One definition and one InfraCluster; the named method raises ``failure``."""

    def __init__(self, found: dict[str, Any] | None = None, **status: Any) -> None:
        self.definition = found or definition()
        self.object: dict[str, Any] = {"metadata": {"ownerReferences": [OWNER]}, "status": {"ready": True, **status}}
        self.dropped: tuple[str, ...] = ()
        self.failure: dict[str, ApiError] = {}
        self.calls: list[str] = []
        self.version = "v1beta2"
        self.clock = Clock()
        configuration = Configuration(namespace="system", attestors=every_attestor(registry().providers))
        self.publisher = InfrastructureStatus(self, registry(), configuration, self.clock.monotonic)

    async def get(self, path: str) -> dict[str, Any]:
        kind = "definition" if path == CRD else "get"
        self.calls.append(kind)
        if kind in self.failure:
            raise self.failure[kind]
        if kind == "definition":
            return copy.deepcopy(self.definition)
        if path != STATUS.format(version=self.version):
            raise NotFound(path)
        return copy.deepcopy(self.object)

    async def patch(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        assert path == STATUS.format(version=self.version)
        assert set(patch) == {"status"}
        self.calls.append("patch")
        if "patch" in self.failure:
            raise self.failure["patch"]
        for field, value in patch["status"].items():
            if value is None:
                self.object["status"].pop(field, None)
            elif field not in self.dropped:
                self.object["status"][field] = value
        return copy.deepcopy(self.object)

    async def publish(self, *attestors: str, of: ClusterView | None = None) -> Publication:
        return await self.publisher.publish(of or cluster(), policy(*(attestors or ("good", "other"))))

    def shown(self) -> tuple[Any, Any]:
        status = self.object["status"]
        return status.get("kubeletClientCertificateSigner"), status.get("kubeletServingCertificateSigner")


def cause(publication: Publication) -> str:
    assert isinstance(publication, NotPublished), publication
    return publication.cause


async def test_the_first_signer_for_each_purpose_is_published() -> None:
    world = World()
    assert await world.publish("other", "good") == Published()
    assert world.shown() == (CLIENT.format("other"), SERVING.format("other"))
    assert world.object["status"]["ready"] is True


async def test_signers_that_are_not_permitted_are_not_published() -> None:
    world = World()
    await world.publish("insecure", "good")
    assert world.shown() == (CLIENT.format("good"), SERVING.format("good"))


async def test_an_unchanged_state_costs_no_call_until_it_is_verified_again() -> None:
    world = World()
    for _ in range(3):
        await world.publish()
    assert world.calls == ["definition", "get", "patch"]
    world.object["status"].pop("kubeletClientCertificateSigner")
    world.clock.pass_by(DEFINITION_SECONDS + 1)
    await world.publish()
    assert world.calls == ["definition", "get", "patch"] * 2
    assert world.shown()[0] == CLIENT.format("good")


async def test_correct_fields_are_not_written() -> None:
    world = World(
        kubeletClientCertificateSigner=CLIENT.format("good"), kubeletServingCertificateSigner=SERVING.format("good")
    )
    assert await world.publish("good") == Published()
    assert world.calls == ["definition", "get"]


async def test_a_changed_policy_is_published_at_once() -> None:
    world = World()
    await world.publish("good")
    await world.publish("other")
    assert world.shown() == (CLIENT.format("other"), SERVING.format("other"))


async def test_a_schema_with_one_field_gets_one() -> None:
    world = World(definition(version(fields={"kubeletClientCertificateSigner": {"type": "string"}})))
    assert await world.publish() == Published()
    assert world.shown() == (CLIENT.format("good"), None)


async def test_a_schema_that_keeps_everything_gets_both() -> None:
    open_status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"status": open_status}}}
    world = World(definition(version(schema=schema)))
    assert await world.publish() == Published()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (definition(version(fields={})), "has no fields"),
        (definition(version(fields={name: {"type": "object"} for name in BOTH})), "has no fields"),
        (definition(version(served=False)), "has no fields"),
        (definition(version(subresources={})), "has no fields"),
        (definition(scope="Cluster"), "not namespaced"),
        (definition(names={"kind": "Other", "plural": "testclusters"}), "another kind"),
        ({"metadata": None, "spec": {"versions": ["nonsense"]}}, "another kind"),
    ],
)
async def test_without_a_field_nothing_is_written(found: dict[str, Any], words: str) -> None:
    world = World(found)
    assert words in cause(await world.publish())
    assert world.calls == ["definition"]


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (REFERENCE, "v1beta2"),
        ({**REFERENCE, "apiGroup": "", "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1"}, "v1beta1"),
        ({**REFERENCE, "apiGroup": "", "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha4"}, "v1beta2"),
    ],
)
async def test_the_version_is_the_references_or_the_newest_of_the_contract(
    reference: dict[str, Any], expected: str
) -> None:
    versions = [version("v1alpha4", served=False), version("v1beta1", storage=False), version("v1beta2")]
    world = World(definition(*versions, labels={"cluster.x-k8s.io/v1beta1": "v1beta1_v1beta2"}))
    world.version = expected
    assert await world.publish(of=cluster(reference)) == Published()


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("v1beta2_v1beta1", "v1beta2"),
        ("v1beta2_v1beta10", "v1beta10"),
        ("v1beta2_v1", "v1"),
        ("v2alpha1_v1beta1", "v1beta1"),
        ("v2_v10", "v10"),
        ("another_v1alpha1", "v1alpha1"),
        ("another", "another"),
    ],
)
async def test_the_newest_version_of_the_contract_is_by_its_number(named: str, expected: str) -> None:
    """The label may list versions in any order."""
    versions = [version(name, storage=False) for name in named.split("_")] + [version("v1gamma1")]
    world = World(definition(*versions, labels={"cluster.x-k8s.io/v1beta2": named}))
    world.version = expected
    reference = {**REFERENCE, "apiGroup": "", "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha4"}
    assert await world.publish(of=cluster(reference)) == Published()


@pytest.mark.parametrize(
    "reference",
    [
        {**REFERENCE, "apiGroup": "apps", "kind": "Deployment"},
        {**REFERENCE, "apiGroup": "cluster.x-k8s.io", "kind": "Machine"},
        {**REFERENCE, "apiGroup": "x.infrastructure.cluster.x-k8s.io"},
    ],
)
async def test_objects_of_other_groups_are_not_written(reference: dict[str, Any]) -> None:
    """A tenant writes the Cluster, and may name any object there."""
    world = World()
    assert "only objects of" in cause(await world.publish(of=cluster(reference)))
    assert world.calls == []


@pytest.mark.parametrize(
    "reference",
    [
        {},
        {**REFERENCE, "name": "../x"},
        {**REFERENCE, "kind": "a/b"},
        {**REFERENCE, "name": 7},
        {"kind": "TestCluster"},
    ],
)
async def test_a_malformed_reference_is_ignored(reference: dict[str, Any]) -> None:
    world = World()
    assert "names no InfraCluster" in cause(await world.publish(of=cluster(reference)))
    assert world.calls == []


@pytest.mark.parametrize(
    "owners", [[], [{**OWNER, "name": "other"}], [{**OWNER, "kind": "Pod"}], [{**OWNER, "apiVersion": "v1"}]]
)
async def test_the_infra_cluster_of_another_cluster_is_not_written(owners: list[dict[str, Any]]) -> None:
    world = World()
    world.object["metadata"]["ownerReferences"] = owners
    assert "not owned" in cause(await world.publish())
    assert world.calls == ["definition", "get"]


@pytest.mark.parametrize(
    "metadata", [{"annotations": {"cluster.x-k8s.io/paused": ""}}, {"deletionTimestamp": "2026-03-01T12:00:00Z"}]
)
async def test_nothing_is_written_for_a_paused_or_deleted_cluster(metadata: dict[str, Any]) -> None:
    world = World()
    assert "paused or being deleted" in cause(await world.publish(of=cluster(**metadata)))
    assert world.calls == []


@pytest.mark.parametrize("call", ["definition", "get", "patch"])
@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (Forbidden("no", status=403), "a grant is missing"),
        (NotFound("none", status=404), "does not exist yet"),
        (Invalid("pattern", status=422), "refuses"),
        (ServerError("etcd", status=500), "did not answer"),
    ],
)
async def test_failures_are_logged_once(
    call: str, failure: ApiError, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.failure[call] = failure
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert words in cause(await world.publish())
            world.clock.pass_by(DEFINITION_SECONDS + 1)
    assert len(caplog.records) == 1
    world.failure.clear()
    assert await world.publish() == Published()


async def test_a_refusal_is_not_retried_at_every_reconciliation() -> None:
    world = World()
    world.failure["patch"] = Forbidden("no", status=403)
    for _ in range(5):
        await world.publish()
    assert world.calls == ["definition", "get", "patch"]


async def test_a_dropped_field_is_noticed() -> None:
    world = World()
    world.dropped = ("kubeletServingCertificateSigner",)
    assert "does not keep" in cause(await world.publish())


@pytest.mark.parametrize(
    ("kind", "plural"),
    [("AWSCluster", "awsclusters"), ("Proxy", "proxies"), ("Gateway", "gateways"), ("Class", "classes")],
)
async def test_the_definitions_name_follows_the_kind(kind: str, plural: str) -> None:
    world = World()
    asked: list[str] = []

    async def get(path: str) -> dict[str, Any]:
        asked.append(path)
        raise NotFound(path)

    world.get = get  # type: ignore[method-assign]
    await world.publish(of=cluster({**REFERENCE, "kind": kind}))
    assert asked == [CRD.replace("testclusters", plural)]
