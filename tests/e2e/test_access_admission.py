"""Who made an object of access, at a real API server: by policies from Kubernetes 1.30 on, before by the webhook.

The same requests as in tests/unit/signer/access/admission/test_cases.py.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from signer.access.admission import messages
from signer.access.admission.mutation import CREATOR_POLICY, mutation_binding_spec, mutation_spec
from signer.access.admission.policies import access_policies
from signer.access.admission.webhook import CONFIGURATION_NAME, WebhookPlace
from signer.admission.manifests import AdmissionVersion, binding_manifest, policy_manifest
from signer.controller.access_webhook import access_webhook_server
from signer.controller.access_webhook_clients import ANY_CLIENT, WebhookClients
from signer.controller.telemetry.metrics import Metrics
from signer.kube.client import Client
from signer.kube.resources import (
    ACCESS_APPROVALS,
    ACCESS_GRANTS,
    BASTIONS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    Resource,
)
from tests.conformance.api import version_of
from tests.support.access_requests import ALICE, BOB, CASES, CONTROLLERS, GROUPS, NAMESPACE, Case, me
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.control_plane import ControlPlane
from tests.support.helm import render_chart
from tests.support.processes import wait_until
from tests.support.raw_client import Answer, RawClient
from tests.support.record_access_reviews import prepare
from tests.support.rotation_operations import grant
from tests.support.yaml_documents import safe_load_all

pytestmark = [pytest.mark.real, pytest.mark.slow]

POLICIES_SINCE: Final = (1, 30)
MUTATION_SINCE: Final = (1, 36)
WEBHOOK: Final = "access-webhook"
"""The user that is the controller as it serves the webhook: with the chart's rules and no others."""
KINDS: Final = (ACCESS_GRANTS, ACCESS_APPROVALS, BASTIONS)


@pytest.fixture(scope="module")
def admin(real_control_plane: ControlPlane) -> Iterator[RawClient]:
    """The users and objects of all cases are there, and nothing guards them yet."""
    with RawClient(real_control_plane.connection()) as client:
        prepare(real_control_plane, client)
        yield client
        _tidy(client)


@pytest.fixture(scope="module")
def version(admin: RawClient) -> tuple[int, int]:
    return version_of(admin)


@pytest.fixture(scope="module")
def guarded(real_control_plane: ControlPlane, admin: RawClient, version: tuple[int, int]) -> Iterator[ControlPlane]:
    """The API server refuses what it should refuse."""
    if version >= POLICIES_SINCE:
        manifests = [
            make(policy, AdmissionVersion.V1)
            for policy in access_policies(CONTROLLERS)
            for make in (policy_manifest, binding_manifest)
        ]
        for manifest in manifests:
            admin.post(manifest.resource.collection(), manifest.body).expect(201)
        _wait_until_guarded(real_control_plane)
        yield real_control_plane
        for manifest in manifests:
            admin.delete(manifest.path)
    else:
        with serving(real_control_plane, admin, Metrics()) as port:
            install_webhook(admin, VALIDATING_WEBHOOKS, port)
            _wait_until_guarded(real_control_plane)
            yield real_control_plane
            admin.delete(VALIDATING_WEBHOOKS.object(CONFIGURATION_NAME))
            admin.delete(MUTATING_WEBHOOKS.object(CONFIGURATION_NAME))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_the_api_server_says(guarded: ControlPlane, case: Case) -> None:
    with RawClient(guarded.connection(case.user, GROUPS.get(case.user, ()))) as client:
        answer = case.send(client)
    if case.says is None:
        answer.expect(200, 201)
    else:
        assert case.says in answer.expect(403, 422)["message"]
        assert answer.status == {"Forbidden": 403, "Invalid": 422}[case.reason.value]


def test_the_creator_is_filled_in(
    guarded: ControlPlane, admin: RawClient, version: tuple[int, int], request: pytest.FixtureRequest
) -> None:
    """From 1.36 on by the mutating policy, before 1.30 by the webhook: plain kubectl works, and no name is stolen."""
    if version >= MUTATION_SINCE:
        by_version = [one for one in MUTATING_ADMISSION_POLICIES if one.version == "v1"]
        bindings = [one for one in MUTATING_ADMISSION_POLICY_BINDINGS if one.version == "v1"]
        _create(admin, by_version[0], "MutatingAdmissionPolicy", mutation_spec())
        _create(admin, bindings[0], "MutatingAdmissionPolicyBinding", mutation_binding_spec())
        request.addfinalizer(lambda: admin.delete(by_version[0].object(CREATOR_POLICY)).expect(200))
        request.addfinalizer(lambda: admin.delete(bindings[0].object(CREATOR_POLICY)).expect(200))
    elif version < POLICIES_SINCE:
        configuration = admin.get(MUTATING_WEBHOOKS.object(CONFIGURATION_NAME)).expect(200)
        rule = configuration["webhooks"][0]["rules"][0]
        configuration["webhooks"][0]["rules"] = [{**rule, "apiGroups": [ACCESS_GRANTS.group]}]
        served = admin.get(VALIDATING_WEBHOOKS.object(CONFIGURATION_NAME)).expect(200)["webhooks"][0]["clientConfig"]
        configuration["webhooks"][0]["clientConfig"]["url"] = served["url"].replace("/validate", "/mutate")
        admin.put(MUTATING_WEBHOOKS.object(CONFIGURATION_NAME), configuration).expect(200)
    else:
        pytest.skip(
            f"kube-apiserver {version[0]}.{version[1]} serves no mutating policies; the client names the creator"
        )
    (case,) = (case for case in CASES if case.name == "create-in-foreign-name")
    with RawClient(guarded.connection(BOB, GROUPS[BOB])) as bob:
        collection = ACCESS_GRANTS.collection(NAMESPACE)
        wait_until(lambda: bob.post(collection, case.manifest, dryRun="All").status == 201, "the creator is filled in")
        for claims in ({**me(BOB), "username": ALICE}, None):
            manifest = case.manifest
            manifest["spec"] = {**manifest["spec"], "createdBy": claims}
            made = bob.post(collection, manifest, dryRun="All").expect(201)
            creator = made["spec"]["createdBy"]
            assert (creator["username"], sorted(creator["groups"])) == (BOB, sorted(me(BOB)["groups"]))
            assert made["metadata"]["annotations"]["access.cluster.x-k8s.io/created-by"] == BOB


def test_what_a_parser_says_is_said_before_1_25(guarded: ControlPlane, version: tuple[int, int]) -> None:
    if version >= POLICIES_SINCE:
        pytest.skip("CEL rules of the definitions say it there: tests/e2e/test_access_objects.py")
    (case,) = (case for case in CASES if case.name == "create")
    manifest = case.manifest
    manifest["metadata"]["name"] = "host-bits"
    manifest["spec"] = {**manifest["spec"], "ingress": [{"ipBlock": {"cidr": "198.51.100.7/24"}}]}
    with RawClient(guarded.connection(ALICE, GROUPS[ALICE])) as alice:
        said = alice.post(ACCESS_GRANTS.collection(NAMESPACE), manifest).expect(422)["message"]
    assert "spec.ingress[0].ipBlock.cidr must be a network in canonical form" in said


@contextmanager
def serving(
    control_plane: ControlPlane, admin: RawClient, metrics: Metrics, clients: WebhookClients = ANY_CLIENT
) -> Iterator[int]:
    """The controller's webhook, with the rules of the chart; yields its port."""
    try:
        rendered = render_chart({"ssh": {"enabled": True}, "access": {"enabled": True, "webhook": {"enabled": True}}})
    except MissingPart as missing:
        skip_or_fail(missing)
    roles = [one for one in safe_load_all(rendered) if one and one["kind"] in ("Role", "ClusterRole")]
    own = ("node-attestation-access-proof", "node-attestation-access-webhook")
    grant(admin, WEBHOOK, [rule for role in roles if role["metadata"]["name"] in own for rule in role["rules"]])
    install_webhook(admin, MUTATING_WEBHOOKS, 1)
    ports: list[int] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with Client(control_plane.connection(WEBHOOK, ())) as client:
            place = WebhookPlace(NAMESPACE, ("localhost",))
            server = access_webhook_server("127.0.0.1", 0, client, CONTROLLERS, place, metrics, clients)
            async with server as (_, port):
                ports.append(port)
                await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        wait_until(lambda: bool(ports), "the webhook listens")
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def install_webhook(admin: RawClient, resource: Resource, port: int) -> None:
    """As the chart does, with an address instead of a Service. The controller writes caBundle."""
    is_mutating = resource is MUTATING_WEBHOOKS
    path = "mutate" if is_mutating else "validate"
    rule = {
        # The mutating one looks at nothing until a test says so: it would fill in the names that should be refused.
        "apiGroups": ["none.example.org" if is_mutating else ACCESS_GRANTS.group],
        "apiVersions": ["*"],
        "operations": ["CREATE"] if is_mutating else ["CREATE", "UPDATE"],
        "resources": ["accessgrants", "accessapprovals"] if is_mutating else ["*/*"],
    }
    webhook = {
        "name": f"{path}.access.cluster.x-k8s.io",
        "clientConfig": {"url": f"https://localhost:{port}/{path}"},
        "rules": [rule],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = "MutatingWebhookConfiguration" if is_mutating else "ValidatingWebhookConfiguration"
    body = {
        "apiVersion": resource.api_version,
        "kind": kind,
        "metadata": {"name": CONFIGURATION_NAME},
        "webhooks": [webhook],
    }
    admin.post(resource.collection(), body).expect(201)


def _create(admin: RawClient, resource: Resource, kind: str, spec: dict[str, Any]) -> None:
    body = {"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": CREATOR_POLICY}, "spec": spec}
    admin.post(resource.collection(), body).expect(201)


def _wait_until_guarded(control_plane: ControlPlane) -> None:
    """Until each kind of object is guarded: an API server reads policies and configurations seconds later."""
    named = {
        case.name: case
        for case in CASES
        if case.name in ("create-in-foreign-name", "approve-in-foreign-name", "make-bastion-by-user")
    }
    for case in named.values():
        with RawClient(control_plane.connection(case.user, GROUPS.get(case.user, ()))) as client:

            def refused(client: RawClient = client, case: Case = case) -> bool:
                answer: Answer = client.post(case.resource.collection(NAMESPACE), case.manifest, dryRun="All")
                return answer.status == 403 and str(case.says) in answer.message

            wait_until(refused, f"{case.resource.plural} are guarded")
    assert named["create-in-foreign-name"].says == messages.NOT_YOUR_NAME


def _tidy(admin: RawClient) -> None:
    for kind in KINDS:
        for found in admin.get(kind.collection(NAMESPACE)).expect(200)["items"]:
            path = kind.object(found["metadata"]["name"], NAMESPACE)
            admin.patch(path, {"metadata": {"finalizers": None}})
            admin.delete(path)
    for found in admin.get(CLUSTER_ROLES.collection()).expect(200)["items"]:
        name = found["metadata"]["name"]
        if name.startswith("rotation-"):
            admin.delete(CLUSTER_ROLE_BINDINGS.object(name))
            admin.delete(CLUSTER_ROLES.object(name))
