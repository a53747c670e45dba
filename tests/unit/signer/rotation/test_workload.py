"""What a hostile workload cluster says about trust: it is bounded, and can only hold a rotation."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

import signer.rotation.workload as workload
from signer.kube.client import LIST_PAGE_OBJECTS
from signer.kube.errors import ApiError, Cause, Forbidden, NotFound, Unreachable
from signer.rotation.authorities import Role
from signer.rotation.bundles import MAXIMUM_CERTIFICATES, digest_of
from signer.rotation.facts import Absent, AuthenticationFacts, NotObserved, RootCAFacts
from signer.rotation.workload import AUTHENTICATION, CLUSTER_INFO, TwoDigests, WorkloadFacts, read_workload, unreachable
from tests.unit.signer.rotation.certificates import as_yaml, authority, encoded, third

OLD, NEW = authority(Role.OLD), authority(Role.NEW)
OLD_DIGEST, NEW_DIGEST, THIRD = (digest_of(one.certificate.der) for one in (OLD, NEW, third()))
CLIENT, HEADER = "client-ca-file", "requestheader-client-ca-file"


class Cluster:
    """A workload cluster's ConfigMaps."""

    def __init__(self) -> None:
        cluster = {"server": "https://10.0.0.1:6443", "certificate-authority-data": encoded(NEW.pem + OLD.pem)}
        kubeconfig = as_yaml({"clusters": [{"name": "", "cluster": cluster}]}).decode()
        self.objects: dict[str, dict[str, Any] | ApiError] = {
            CLUSTER_INFO: {"data": {"kubeconfig": kubeconfig}},
            AUTHENTICATION: {"data": {CLIENT: (OLD.pem + NEW.pem).decode(), HEADER: third().pem.decode()}},
        }
        self.pages: list[list[dict[str, Any]] | ApiError] = [[root_ca("default", NEW.pem + OLD.pem)]]
        self.asked: list[tuple[str, Any, int | None]] = []

    async def get(self, path: str) -> dict[str, Any]:
        found = self.objects[path]
        if isinstance(found, ApiError):
            raise found
        return found

    async def list_pages(
        self, path: str, params: Any = None, limit: int = LIST_PAGE_OBJECTS, *, maximum_bytes: int | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        self.asked.append((path, params, maximum_bytes))
        for page in self.pages:
            if isinstance(page, ApiError):
                raise page
            yield {"items": page}


def root_ca(namespace: str, trusted: bytes | str) -> dict[str, Any]:
    text = trusted if isinstance(trusted, str) else trusted.decode()
    return {"metadata": {"namespace": namespace, "name": "kube-root-ca.crt"}, "data": {"ca.crt": text}}


async def read(cluster: Cluster) -> WorkloadFacts:
    return await read_workload(cluster, TwoDigests(OLD_DIGEST, NEW_DIGEST))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def test_everything(cluster: Cluster) -> None:
    found = await read(cluster)
    assert found.cluster_info == (NEW_DIGEST, OLD_DIGEST)
    assert found.authentication == AuthenticationFacts((OLD_DIGEST, NEW_DIGEST), (THIRD,))
    assert found.root_ca == RootCAFacts(1, (), ("default",))
    assert found.cluster_info_object is cluster.objects[CLUSTER_INFO]
    assert found.authentication_object is cluster.objects[AUTHENTICATION]
    ((path, params, most),) = cluster.asked
    assert (path, params) == ("/api/v1/configmaps", {"fieldSelector": "metadata.name=kube-root-ca.crt"})
    assert most is not None


FAILURES = [
    Forbidden("\x1b[31m no", status=403),
    Unreachable("away", cause=Cause.NETWORK),
]


@pytest.mark.parametrize("failure", FAILURES)
async def test_cluster_info_that_cannot_be_read(cluster: Cluster, failure: ApiError) -> None:
    cluster.objects[CLUSTER_INFO] = failure
    found = (await read(cluster)).cluster_info
    assert isinstance(found, NotObserved)
    assert found.message.isprintable()


async def test_a_cluster_without_cluster_info(cluster: Cluster) -> None:
    cluster.objects[CLUSTER_INFO] = NotFound("gone")
    found = await read(cluster)
    assert (found.cluster_info, found.cluster_info_object) == (Absent(), {})


@pytest.mark.parametrize("failure", FAILURES)
async def test_authentication_that_cannot_be_read(cluster: Cluster, failure: ApiError) -> None:
    cluster.objects[AUTHENTICATION] = failure
    found = (await read(cluster)).authentication
    assert isinstance(found, NotObserved)
    assert found.message.isprintable()


async def test_a_cluster_without_the_config_map_names_no_ca(cluster: Cluster) -> None:
    cluster.objects[AUTHENTICATION] = NotFound("gone")
    assert (await read(cluster)).authentication == AuthenticationFacts((), ())
    for empty in ({}, {"data": None}, {"data": {CLIENT: 5}}):
        cluster.objects[AUTHENTICATION] = empty
        assert (await read(cluster)).authentication == AuthenticationFacts((), ())


@pytest.mark.parametrize("field", [CLIENT, HEADER])
async def test_six_hundred_cas_and_a_block_that_cannot_be_read(cluster: Cluster, field: str) -> None:
    many = third().pem.decode() * 600
    cluster.objects[AUTHENTICATION] = {"data": {field: many + OLD.pem.decode()}}
    found = (await read(cluster)).authentication
    assert isinstance(found, AuthenticationFacts)
    assert len({CLIENT: found.client, HEADER: found.request_header}[field]) == 601
    for damage in ("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", many, "x"):
        cluster.objects[AUTHENTICATION] = {"data": {field: many + damage}}
        assert isinstance((await read(cluster)).authentication, NotObserved), "the old CA may be behind it"
    assert MAXIMUM_CERTIFICATES < 1200


async def test_root_cas_of_namespaces(cluster: Cluster) -> None:
    cluster.pages = [
        [root_ca("old", OLD.pem), root_ca("new", NEW.pem), root_ca("both", NEW.pem + OLD.pem)],
        [root_ca("third", third().pem), root_ca("damaged", NEW.pem.decode() + "x"), root_ca("empty", ""), {}],
    ]
    found = (await read(cluster)).root_ca
    assert found == RootCAFacts(7, ("", "damaged", "empty", "old", "third"), ("both", "old"))


async def test_names_of_namespaces_are_printable(cluster: Cluster) -> None:
    cluster.pages = [[root_ca("\x1b[31m", OLD.pem)]]
    found = (await read(cluster)).root_ca
    assert isinstance(found, RootCAFacts)
    assert found.without_new[0].isprintable()


@pytest.mark.parametrize("failure", FAILURES)
async def test_root_cas_that_cannot_be_read_to_the_end(cluster: Cluster, failure: ApiError) -> None:
    cluster.pages.append(failure)
    found = (await read(cluster)).root_ca
    assert isinstance(found, NotObserved)
    assert found.message.isprintable()


async def test_namespaces_are_bounded(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "_MAXIMUM_NAMESPACES", 2)
    cluster.pages = [[root_ca(str(number), NEW.pem)] for number in range(2)]
    assert isinstance((await read(cluster)).root_ca, RootCAFacts)
    cluster.pages.append([root_ca("2", NEW.pem)])
    assert isinstance((await read(cluster)).root_ca, NotObserved)


async def test_before_the_new_ca_is_made_no_namespace_has_it(cluster: Cluster) -> None:
    found = (await read_workload(cluster, TwoDigests(OLD_DIGEST, ""))).root_ca
    assert isinstance(found, RootCAFacts)
    assert found.without_new == ("default",)


def test_without_a_connection_nothing_is_observed() -> None:
    nothing = NotObserved("no connection")
    assert unreachable("no connection") == WorkloadFacts(nothing, nothing, nothing)
