"""A webhook authorizer that lets bootstrap tokens in is down while the controller looks, on a real kube-apiserver."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from signer.controller.auto_approval.findings import Situation
from signer.controller.auto_approval.removal import AutoApprovalRemoval
from signer.kube.client import Client
from signer.kube.resources import CLUSTER_ROLE_BINDINGS
from signer.model.condition import PolicyCondition
from tests.support import kubeadm
from tests.support.binaries import MissingPart, find_control_plane, skip_or_fail
from tests.support.control_plane import ControlPlane
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient
from tests.unit.signer.builders import cluster_view, policy
from tests.unit.signer.store.removed_bindings_fixtures import ObjectStore, removed_bindings

pytestmark = [pytest.mark.real, pytest.mark.slow]

CA_CERT_HASH: Final = f"sha256:{'ab' * 32}"


class Authorizer(BaseHTTPRequestHandler):
    """Says yes where a bootstrap token asks for its first certificate, and has no opinion else."""

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["content-length"])))
        asked = review["spec"].get("resourceAttributes") or {}
        is_token = "system:bootstrappers" in (review["spec"].get("groups") or [])
        review["status"] = {"allowed": is_token and asked.get("subresource") == "nodeclient"}
        body = json.dumps(review).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Into nothing."""


@pytest.fixture
def authorizer() -> Iterator[ThreadingHTTPServer]:
    """Answers until it is shut down."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Authorizer) as server:
        answering = threading.Thread(target=server.serve_forever)
        answering.start()
        yield server
        server.shutdown()
        answering.join()


@pytest.fixture
def plane(authorizer: ThreadingHTTPServer, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane that asks it after Node and RBAC (the flags add up), and remembers no answer."""
    try:
        find_control_plane()
    except MissingPart as missing:
        skip_or_fail(missing)
    named = {"name": "webhook", "cluster": {"server": f"http://127.0.0.1:{authorizer.server_port}/"}}
    context = {"name": "webhook", "context": {"cluster": "webhook", "user": "webhook"}}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [named],
        "users": [{"name": "webhook", "user": {}}],
        "contexts": [context],
        "current-context": "webhook",
    }
    file = tmp_path / "webhook.kubeconfig"
    file.write_text(json.dumps(kubeconfig))
    flags = [
        "--authorization-mode=Webhook",
        f"--authorization-webhook-config-file={file}",
        "--authorization-webhook-version=v1",
        "--authorization-webhook-cache-authorized-ttl=0s",
        "--authorization-webhook-cache-unauthorized-ttl=0s",
    ]
    with ControlPlane(apiserver_flags=flags) as started:
        started.seed_kubeadm()
        yield started


async def look(plane: ControlPlane, kept: ObjectStore) -> PolicyCondition:
    situation = Situation(policy(mode="Enforce"), cluster_view(), CA_CERT_HASH, (), frozenset())
    async with Client(plane.connection()) as client:
        return await AutoApprovalRemoval(removed_bindings(kept)).reconcile(client, situation)


async def test_a_webhook_that_is_down_has_not_said_no(plane: ControlPlane, authorizer: ThreadingHTTPServer) -> None:
    kept = ObjectStore()
    condition = await look(plane, kept)
    assert (condition.met, condition.reason) == (False, "GrantedByAuthorizer"), condition
    authorizer.shutdown()
    authorizer.server_close()
    condition = await look(plane, kept)
    assert (condition.met, condition.reason) == (None, "AuthorizerFailed"), condition
    assert "connection refused" in condition.message


async def test_a_binding_of_a_role_that_is_missing_is_no_failure() -> None:
    """RBAC tells of it as a reason: every cluster that was cleaned up by hand would have an Unknown for ever."""
    try:
        find_control_plane()
    except MissingPart as missing:
        skip_or_fail(missing)
    with ControlPlane() as plane:
        binding = kubeadm.cluster_role_binding("dangling", "absent", "system:bootstrappers")
        attributes = {"verb": "create", "group": "certificates.k8s.io", "version": "*"}
        attributes |= {"resource": "certificatesigningrequests", "subresource": "nodeclient"}
        review = kubeadm.subject_access_review("system:bootstrap:abcdef", ["system:bootstrappers"], attributes)
        with RawClient(plane.connection()) as admin:
            admin.post(CLUSTER_ROLE_BINDINGS.collection(), binding).expect(201)

            def status() -> dict[str, Any]:
                answer = admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review).expect(201)
                return dict(answer["status"])

            wait_until(lambda: '"absent" not found' in status().get("reason", ""), "RBAC tells of the missing role")
            assert "evaluationError" not in status()
        assert (await look(plane, ObjectStore())).met is True
