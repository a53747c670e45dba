"""Secrets are planted in every place that can hold one; no log, output or endpoint contains any."""

from __future__ import annotations

import base64
import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from keyed_mac.controller import KeyedMACServerPlugin
from prometheus_client import generate_latest

from signer.controller.telemetry.logs import configure_logging
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, EVENTS, NODE_ATTESTATION_POLICIES, SECRETS
from signer.store.controller_key import SECRET_NAME
from signer.testing.api import faults
from signer.testing.fixtures import embedded_api
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.integration.fixtures import SECRETS_IN_PLAY, Harness, node_of, provider_id
from tests.support.node_program import NodeProgram

pytestmark = pytest.mark.slow

KUBECONFIG_TOKEN: Final = "planted-kubeconfig-token-4f1d9c"
IN_AN_EXCEPTION: Final = "planted-in-an-exception-77aa31"
BOOTSTRAP_TOKEN: Final = "abcdef.plantedsecret000"
SHORTEST: Final = 8


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that is logged, at the lowest level."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging(as_json=True, level=logging.DEBUG, stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    for own in ("signer", "attestors"):
        logging.getLogger(own).setLevel(logging.NOTSET)
    logging.captureWarnings(False)


class Planted:
    """Secrets by what they are."""

    def __init__(self) -> None:
        self.secrets: dict[str, str] = {}

    def add(self, what: str, secret: bytes | str) -> None:
        """``secret`` as it is, and each long line of it: a part of a key is as bad."""
        text = secret.decode("latin-1") if isinstance(secret, bytes) else secret
        lines = [line for line in text.splitlines() if "-----" not in line and len(line) >= SHORTEST]
        self.secrets |= {f"{what}, line {number}": line for number, line in enumerate(lines)}
        self.secrets[f"{what}, base64"] = base64.b64encode(text.encode("latin-1")).decode("ascii")

    def found_in(self, text: str) -> list[str]:
        """The planted secrets that the text contains."""
        return [what for what, secret in self.secrets.items() if secret in text]


def plant(harness: Harness, cluster: WorldCluster) -> Planted:
    """What the controllers of this harness keep secret."""
    planted = Planted()
    for secret in SECRETS_IN_PLAY:
        planted.add("the attestor's settings", secret)
    planted.add("the cluster's CA key", cluster.api.ca_key_pem)
    connection = embedded_api(cluster).connection("attestation-controller", ("system:masters",))
    planted.add("the kubeconfig's client key", connection.client_key or connection.bearer_token or "")
    planted.add("a kubeconfig's token", KUBECONFIG_TOKEN)
    planted.add("what an exception says", IN_AN_EXCEPTION)
    planted.add("a KubeadmConfig's token", BOOTSTRAP_TOKEN.partition(".")[2])
    return planted


def shown(harness: Harness, *clusters: WorldCluster) -> str:
    """All that people see: Events, conditions of policies and of requests."""
    found: list[Any] = [*harness.management.client.items(EVENTS.collection("default"))]
    found += harness.management.client.items(NODE_ATTESTATION_POLICIES.collection("default"))
    for cluster in clusters:
        for item in cluster.client().items(CERTIFICATE_SIGNING_REQUESTS.collection()):
            found.append(item.get("status", {}).get("conditions"))
    return repr(found)


def test_no_secret_is_logged_or_shown(
    harness: Harness, log: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = harness.cluster()
    planted = plant(harness, cluster)
    malformed = harness.cluster("malformed")
    kubeconfig = f"users: [{{user: {{token: {KUBECONFIG_TOKEN}, exec: {{}}}}}}]\nclusters: {KUBECONFIG_TOKEN}"
    malformed.put_secret("kubeconfig", {"value": kubeconfig.encode()})
    controller = harness.run()
    key = harness.management.client.get(SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE))
    for name, value in key["data"].items():
        planted.add(f"the controller key's {name}", base64.b64decode(value))
    machine = cluster.add_machine("tokened", provider_id=provider_id("tokened"))
    cluster.add_kubeadm_config("tokened", BOOTSTRAP_TOKEN, machine)

    # One joins through the program; one is denied; one waits for its Machine; one meets a defect of the attestor.
    cluster.add_machine("joins", provider_id=provider_id("joins"))
    program = NodeProgram(tmp_path / "joins", node_of(cluster, "joins"))
    token = program.supply_bootstrap(cluster)
    planted.add("the bootstrap token", token.partition(".")[2])
    ran = program.credential()
    assert ran.exit_code == 0, ran.log
    planted.add(
        "the node's key", program.client_pair.read_bytes().partition(b"PRIVATE KEY-----")[2].partition(b"-----END")[0]
    )
    cluster.add_machine("denied", provider_id=provider_id("denied"))
    denied = node_of(cluster, "denied", node_name="somebody-else").client_request("denied")
    cluster.submit_with_token(denied)
    planted.add(
        "evidence",
        base64.b64decode(denied["spec"]["request"]).rpartition(b"DATA-----\n")[0].rpartition(b"DATA-----\n")[2],
    )
    assert cluster.wait_until_decided("denied").condition == "Denied"
    cluster.submit_with_token(node_of(cluster, "waits").client_request("waits"))

    def defect(*_: object) -> None:
        raise RuntimeError(f"cannot verify with {IN_AN_EXCEPTION}")

    with monkeypatch.context() as patch:
        patch.setattr(KeyedMACServerPlugin, "_verify", defect)
        cluster.add_machine("defect", provider_id=provider_id("defect"))
        cluster.submit_with_token(node_of(cluster, "defect").client_request("defect"))
        harness.wait_for_event("InternalError", "defect")
    # An API server that says again what it was sent.
    patched = {500: ("InternalError", f"cannot store: Authorization: Bearer {KUBECONFIG_TOKEN}")}
    monkeypatch.setattr(faults, "_REASONS", {**faults._REASONS, **patched})
    embedded_api(cluster).faults.inject("PUT */approval", status=500, times=2)
    harness.join(cluster, "after-faults")
    refused = NodeProgram(tmp_path / "refused", node_of(cluster, "denied", node_name="somebody-else"))
    planted.add("another bootstrap token", refused.supply_bootstrap(cluster).partition(".")[2])
    second = refused.run("credential", "--timeout", "5")
    assert second.exit_code != 0

    served = generate_latest(controller.options.metrics.registry).decode()
    assert "an attestor failed" in log.getvalue()
    assert '"decision": "Deny"' in log.getvalue()
    everything = {
        "log": log.getvalue(),
        "shown": shown(harness, cluster),
        "metrics": served,
        "node's log": ran.log + second.log + second.output,
    }
    assert {where: planted.found_in(text) for where, text in everything.items()} == {where: [] for where in everything}
    assert len(planted.secrets) > 10
    for one in list(planted.secrets.values())[:3]:
        assert planted.found_in(f"x{one}x"), "the search itself finds"
