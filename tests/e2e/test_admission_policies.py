"""Admission policies at a real API server: installed, proven, in force, and removed.

From Kubernetes 1.30 on. Before, the answer is that they are not served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

import pytest

from signer.admission.discovery import NotServed, served_admission
from signer.admission.installation import RIGHTS, Installed, NotOurs, Written, install, remove
from signer.admission.manifests import AdmissionVersion, binding_manifest, policy_manifest
from signer.admission.proof import NotProven, Proven, prove
from signer.configuration import RotationSettings
from signer.kube.client import Client
from signer.kube.errors import Forbidden
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2, NODE_ATTESTATION_POLICIES
from signer.model.floors import NO_FLOORS
from signer.rotation.admission_policy import OPERATIONS_POLICY, OPERATIONS_PROOF
from signer.rotation.operations import OPERATION_ANNOTATION
from signer.rotation.operations_guard import OperationsGuard
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from tests.conformance.api import version_of
from tests.support.control_plane import ControlPlane
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient
from tests.support.rotation_operations import CASES, NAMESPACE, REASONS, Case, grant, prepare, tidy

pytestmark = [pytest.mark.real, pytest.mark.slow]

FIRST_VERSION: Final = (1, 30)
CONTROLLER: Final = "controller"
STRANGER: Final = "stranger"
PROVEN: Final = NODE_ATTESTATION_POLICIES.object(CASES[0].name, NAMESPACE)
V1: Final = (
    policy_manifest(OPERATIONS_POLICY, AdmissionVersion.V1),
    binding_manifest(OPERATIONS_POLICY, AdmissionVersion.V1),
)


@pytest.fixture(scope="module")
def version(real_control_plane: ControlPlane) -> tuple[int, int]:
    with RawClient(real_control_plane.connection()) as client:
        return version_of(client)


async def test_an_api_server_that_is_too_old_does_not_serve_them(
    real_control_plane: ControlPlane, version: tuple[int, int]
) -> None:
    if version >= FIRST_VERSION:
        pytest.skip(f"kube-apiserver {version[0]}.{version[1]} serves admission policies")
    async with Client(real_control_plane.connection()) as client:
        assert await served_admission(client) == NotServed()
        assert await install(OPERATIONS_POLICY, client) == NotServed()
        assert await prove(OPERATIONS_POLICY, OPERATIONS_PROOF, PROVEN, client) == NotServed()
        await remove(OPERATIONS_POLICY, client)


@pytest.fixture(scope="module")
def serving(real_control_plane: ControlPlane, version: tuple[int, int]) -> Iterator[ControlPlane]:
    """An API server that serves admission policies, with the objects and users of the cases."""
    if version < FIRST_VERSION:
        found = f"kube-apiserver {version[0]}.{version[1]}"
        pytest.skip(f"{found} serves no admission policies: set KUBEBUILDER_ASSETS to 1.30 or newer")
    with RawClient(real_control_plane.connection()) as admin:
        prepare(real_control_plane, admin)
        rules: list[dict[str, Any]] = []
        for group, resource, verbs in RIGHTS:
            named = [verb for verb in verbs if verb != "create"]
            rules.append({"apiGroups": [group], "resources": [resource], "verbs": ["create"]})
            rules.append(
                {
                    "apiGroups": [group],
                    "resources": [resource],
                    "verbs": named,
                    "resourceNames": [OPERATIONS_POLICY.name],
                }
            )
        patches = {
            "apiGroups": [NODE_ATTESTATION_POLICIES.group],
            "resources": [NODE_ATTESTATION_POLICIES.plural],
            "verbs": ["patch"],
        }
        grant(admin, CONTROLLER, [*rules, patches])
        yield real_control_plane
        _delete(admin)
        tidy(real_control_plane, admin)


def _delete(admin: RawClient) -> None:
    for manifest in reversed(V1):
        admin.delete(manifest.path)


@pytest.fixture
def admin(serving: ControlPlane) -> Iterator[RawClient]:
    with RawClient(serving.connection()) as client:
        yield client


@pytest.fixture
async def installed(serving: ControlPlane) -> None:
    """The policy is installed and proven, by the controller with its rights and no more."""
    async with Client(serving.connection(CONTROLLER, ())) as client:
        await install(OPERATIONS_POLICY, client)
    await proven(serving)


async def proven(serving: ControlPlane) -> None:
    """Returns once the API server applies the policy."""
    await answers(serving, lambda answer: answer == Proven())


def not_proven(says: str) -> Callable[[object], bool]:
    """An answer that says why."""
    return lambda answer: isinstance(answer, NotProven) and says in answer.message


async def answers(serving: ControlPlane, expected: Callable[[object], bool]) -> None:
    """Returns once a proof has the expected answer."""
    seen: object = None
    async with Client(serving.connection(CONTROLLER, ())) as client:
        try:
            async with asyncio.timeout(60):
                while not expected(seen):
                    seen = await prove(OPERATIONS_POLICY, OPERATIONS_PROOF, PROVEN, client)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pytest.fail(str(seen))


async def test_it_is_installed_once_and_restored(serving: ControlPlane, admin: RawClient) -> None:
    _delete(admin)
    async with Client(serving.connection(CONTROLLER, ())) as client:
        assert await served_admission(client) is AdmissionVersion.V1
        assert await install(OPERATIONS_POLICY, client) == Installed(Written.CREATED, Written.CREATED)
        assert await install(OPERATIONS_POLICY, client) == Installed(Written.UNCHANGED, Written.UNCHANGED)
        policy, binding = V1
        admin.patch(policy.path, {"spec": {"failurePolicy": "Ignore"}}).expect(200)
        admin.patch(binding.path, {"spec": {"validationActions": ["Audit"]}}).expect(200)
        assert await install(OPERATIONS_POLICY, client) == Installed(Written.RESTORED, Written.RESTORED)
        for manifest in V1:
            assert admin.get(manifest.path).expect(200)["spec"] == manifest.body["spec"]
        await proven(serving)


def guard(client: Client, admin: RawClient) -> OperationsGuard:
    """The controller's guard, which knows one policy."""
    caches = Caches(
        ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2), own_namespace="node-attestation-system", floors=NO_FLOORS
    )
    caches.policies.written(admin.get(PROVEN).expect(200))
    return OperationsGuard(client, caches, RotationSettings(), Random(0))


async def test_the_controller_installs_it_and_knows_when_it_is_in_force(
    serving: ControlPlane, admin: RawClient
) -> None:
    _delete(admin)
    async with Client(serving.connection(CONTROLLER, ())) as client:
        made = guard(client, admin)
        async with asyncio.timeout(60):
            while not made.condition.met:
                await made.look()
                assert made.condition.reason in ("NotProven", "Proven"), made.condition
                await asyncio.sleep(0.05)
    assert made.condition.reason == "Proven"


async def test_without_the_rights_the_condition_says_so(serving: ControlPlane, admin: RawClient) -> None:
    async with Client(serving.connection(STRANGER, ())) as client:
        made = guard(client, admin)
        await made.look()
    assert (made.condition.met, made.condition.reason) == (False, "Forbidden")


async def test_each_way_in_which_it_is_not_applied_is_not_proven(
    serving: ControlPlane, admin: RawClient, installed: None
) -> None:
    policy, binding = V1
    expected = {
        "only recorded": (binding.path, {"spec": {"validationActions": ["Audit"]}}, "did not refuse"),
        "in some namespaces": (
            binding.path,
            {"spec": {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}},
            "did not refuse",
        ),
        "refuses everything": (
            policy.path,
            {
                "spec": {
                    "matchConditions": None,
                    "validations": [{"expression": "false", "message": OPERATIONS_PROOF.message, "reason": "Invalid"}],
                }
            },
            "should pass failed",
        ),
        "says something else": (
            policy.path,
            {"spec": {"validations": [{"expression": "false", "message": "other"}]}},
            "something else refused",
        ),
    }
    for path, change, says in expected.values():
        admin.patch(path, change).expect(200)
        await answers(serving, not_proven(says))
        async with Client(serving.connection(CONTROLLER, ())) as client:
            await install(OPERATIONS_POLICY, client)
        await proven(serving)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_what_it_says(serving: ControlPlane, installed: None, case: Case) -> None:
    """The same as the library: tests/unit/signer/rotation/test_admission_policy.py."""
    with RawClient(serving.connection(case.user, ())) as client:
        answer = case.send(client)
    if case.says is None:
        answer.expect(200, 201)
        return
    assert answer.status == (403 if case.says in REASONS else 422), answer.text
    assert answer.message.endswith(f"denied request: {case.says}")


async def test_the_controller_may_remove_an_operation(serving: ControlPlane, installed: None, admin: RawClient) -> None:
    """It has no verb ``rotate-ca``."""
    (case,) = (case for case in CASES if case.name == "unchanged-operation")
    path = NODE_ATTESTATION_POLICIES.object(case.name, NAMESPACE)
    with RawClient(serving.connection(CONTROLLER, ())) as client:
        client.patch(path, {"metadata": {"annotations": dict.fromkeys(case.before)}}).expect(200)
        assert not set(case.before) & set(admin.get(path).expect(200)["metadata"].get("annotations", {}))
        asks = {"metadata": {"annotations": dict(case.before)}}
        assert client.patch(path, asks).status in (403, 422)


async def test_no_annotation_comes_with_a_status(serving: ControlPlane, admin: RawClient) -> None:
    """Why the policy does not look at the status subresource."""
    path = NODE_ATTESTATION_POLICIES.object("other-annotation", NAMESPACE, "status")
    change = {"metadata": {"annotations": {OPERATION_ANNOTATION: "start-ca-rotation"}}, "status": {"attestors": "tpm"}}
    found = admin.patch(path, change).expect(200)
    assert found["status"]["attestors"] == "tpm"
    assert OPERATION_ANNOTATION not in found["metadata"].get("annotations", {})


async def test_a_proof_stores_nothing(serving: ControlPlane, installed: None, admin: RawClient) -> None:
    before = admin.get(PROVEN).expect(200)
    await proven(serving)
    assert admin.get(PROVEN).expect(200) == before


async def test_it_is_removed(serving: ControlPlane, installed: None, admin: RawClient) -> None:
    async with Client(serving.connection(CONTROLLER, ())) as client:
        await remove(OPERATIONS_POLICY, client)
        await remove(OPERATIONS_POLICY, client)
        for manifest in V1:
            assert admin.get(manifest.path).status == 404
        wait_until(
            lambda: admin.patch(PROVEN, dict(OPERATIONS_PROOF.refused), dryRun="All").status == 200, "nothing refuses"
        )
        answer = await prove(OPERATIONS_POLICY, OPERATIONS_PROOF, PROVEN, client)
        assert isinstance(answer, NotProven)


async def test_what_belongs_to_somebody_else_stays(serving: ControlPlane, admin: RawClient) -> None:
    _delete(admin)
    policy, binding = V1
    foreign = {**policy.body, "metadata": {"name": policy.name}}
    admin.post(policy.resource.collection(), foreign).expect(201)
    async with Client(serving.connection(CONTROLLER, ())) as client:
        with pytest.raises(NotOurs, match=policy.name):
            await install(OPERATIONS_POLICY, client)
        await remove(OPERATIONS_POLICY, client)
    assert admin.get(policy.path).status == 200
    assert admin.get(binding.path).status == 404
    _delete(admin)


async def test_without_the_rights_it_is_an_error(serving: ControlPlane) -> None:
    async with Client(serving.connection(STRANGER, ())) as client:
        with pytest.raises(Forbidden):
            await install(OPERATIONS_POLICY, client)
        assert isinstance(await prove(OPERATIONS_POLICY, OPERATIONS_PROOF, PROVEN, client), NotProven)
