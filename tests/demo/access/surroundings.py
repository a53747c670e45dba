"""What runs before the scene begins: the webhook that proves creators, and the bastion controller."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from node_access.bastions.suite import OWNER
from signer.access.admission.policies import Controllers
from signer.access.admission.webhook import CONFIGURATION_NAME, MUTATE_PATH, VALIDATE_PATH, WebhookPlace
from signer.controller.access_webhook import access_webhook_server
from signer.controller.telemetry.metrics import Metrics
from signer.crds import access_definitions
from signer.kube.client import Client
from signer.kube.resources import ACCESS_GRANTS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from signer.testing.api import EmbeddedAPI
from signer.testing.clients import LoopThread
from signer.testing.world import CONTROLLER_NAMESPACE
from tests.deploy.embedded import ROOT
from tests.support.bastions.local_cloud import LocalCloud
from tests.support.processes import free_port, wait_until
from tests.support.yaml_documents import safe_load, safe_load_all

NAMESPACE: Final = "default"
PEOPLE: Final = ("alice", "bob")
CONTROLLERS: Final = Controllers(
    *(f"system:serviceaccount:{CONTROLLER_NAMESPACE}:{name}" for name in ("node-attestation", "bastions"))
)
_RBAC: Final = "rbac.authorization.k8s.io"
_ROLES: Final = ROOT / "deploy/rbac/access-users.yaml"
_HOST: Final = "127.0.0.1"
_NAME: Final = "localhost"
"""In the webhook's certificate."""


def prepare(api: EmbeddedAPI) -> None:
    """The kinds, the roles of the chart, and people who may ask for the login root."""
    for text in access_definitions():
        api.install_crd(safe_load(text))
    for role in safe_load_all(_ROLES.read_text(encoding="utf-8")):
        if role:
            api.apply(role)
    metadata = {"name": "login-root", "namespace": NAMESPACE}
    rule = {"apiGroups": [ACCESS_GRANTS.group], "resources": ["logins"], "resourceNames": ["root"], "verbs": ["use"]}
    api.apply({"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]})
    for kind, role in (("Role", "login-root"), ("ClusterRole", "node-access-user")):
        api.apply(
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": role, "namespace": NAMESPACE},
                "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role},
                "subjects": [{"kind": "User", "apiGroup": _RBAC, "name": person} for person in PEOPLE],
            }
        )


@contextlib.contextmanager
def webhook(api: EmbeddedAPI) -> Iterator[None]:
    """The controller's webhook, named by its address; the chart names a Service. The controller writes caBundle."""
    port = free_port()
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        api.create(_configuration(port, is_mutating=resource is MUTATING_WEBHOOKS))
    with LoopThread("webhook") as thread:
        stop = thread.run(_event())
        running = thread.start(_serve(api, port, stop))
        try:
            wait_until(lambda: running.done() or _is_trusted(api), "the webhook has a certificate")
            if running.done():
                running.result()
            yield
        finally:
            thread.call(stop.set)
            running.result()


async def _event() -> asyncio.Event:
    return asyncio.Event()


async def _serve(api: EmbeddedAPI, port: int, stop: asyncio.Event) -> None:
    async with Client(api.connection(CONTROLLERS.grants)) as client:
        place = WebhookPlace(CONTROLLER_NAMESPACE, (_NAME,))
        async with access_webhook_server(_HOST, port, client, CONTROLLERS, place, Metrics()):
            await stop.wait()


def _is_trusted(api: EmbeddedAPI) -> bool:
    found = (api.get(one.plural, CONFIGURATION_NAME) for one in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS))
    return all(webhook["clientConfig"].get("caBundle") for one in found for webhook in one["webhooks"])


def _configuration(port: int, *, is_mutating: bool) -> dict[str, Any]:
    kinds = ["accessgrants", "accessapprovals"]
    return {
        "apiVersion": VALIDATING_WEBHOOKS.api_version,
        "kind": "MutatingWebhookConfiguration" if is_mutating else "ValidatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION_NAME},
        "webhooks": [
            {
                "name": f"{'mutating' if is_mutating else 'validating'}.{ACCESS_GRANTS.group}",
                "clientConfig": {"url": f"https://{_NAME}:{port}{MUTATE_PATH if is_mutating else VALIDATE_PATH}"},
                "rules": [
                    {
                        "apiGroups": [ACCESS_GRANTS.group],
                        "apiVersions": ["*"],
                        "operations": ["CREATE"] if is_mutating else ["CREATE", "UPDATE"],
                        "resources": kinds if is_mutating else ["*/*"],
                        "scope": "Namespaced",
                    }
                ],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


def bastion_command(
    python: str, folder: Path, api: EmbeddedAPI, cloud: LocalCloud, *, address: str, node_port: int
) -> list[str]:
    """The command line of the bastion controller, whose bastions are sshds of this host at that address and lead to
    nodes' sshd on one port.
    """
    folder.mkdir(mode=0o700)
    kubeconfig, secret, configuration = (folder / name for name in ("kubeconfig", "secret", "bastions.yaml"))
    kubeconfig.write_text(api.kubeconfig("management", CONTROLLERS.bastions))
    secret.write_bytes(b"demo" * 8)
    settings = {**cloud.settings, "address": address, "egress": [f"{address}/32"]}
    local = {"namespaces": [NAMESPACE], "settings": settings}
    targets = {"targetNetworks": [f"{address}/32"], "targetPorts": [node_port]}
    configuration.write_text(json.dumps({"owner": OWNER, "providers": {"local": local}, **targets}))
    return [
        *(python, "-m", "signer.bastions.entry", "run", f"--kubeconfig={kubeconfig}"),
        *(f"--config={configuration}", f"--host-key-secret={secret}"),
    ]
