"""The node's program gets its first certificate through the controller, and keeps it."""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from attestors.wire.certificate_request import node_subject
from attestors.wire.names import Purpose, SignerName
from authenticator.api.errors import PerhapsDone
from authenticator.api.server import ApiServer
from authenticator.configuration import Given, configure
from authenticator.flow import clock
from authenticator.flow.certificates import NodeCertificates
from authenticator.model.attempt import Step, request_name
from authenticator.model.certificate import load_key
from authenticator.model.failures import ApiUnavailable, ExitCode
from authenticator.store.store import Store
from signer.testing.api import EmbeddedAPI, Request
from signer.testing.fixtures import embedded_api
from signer.testing.world import WorldCluster
from tests.integration.authenticator.fixtures import Timepiece, created, key_of
from tests.integration.fixtures import SECRETS_IN_PLAY, Harness, node_of, provider_id
from tests.support.node_program import V1, V1BETA1, NodeProgram

pytestmark = pytest.mark.slow
"""All together take many seconds, each a fraction of one."""

STORED: Final = {
    "kubelet-authenticator-controller.json",
    "kubelet-authenticator-bootstrap.lock",
    "kubelet-authenticator-client.lock",
    "kubelet-authenticator-client.pem",
    "kubelet-authenticator-cluster.json",
}
"""What is in the store behind a join."""
_NUMBERS: Final = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(shared_harness: Harness) -> WorldCluster:
    """A cluster that the controller watches."""
    cluster = shared_harness.cluster()
    shared_harness.run()
    return cluster


@pytest.fixture
def api(cluster: WorldCluster) -> Iterator[EmbeddedAPI]:
    """Its API server, with a log of requests that holds this test's only; no fault outlives the test."""
    api = embedded_api(cluster)
    api.requests.clear()
    yield api
    api.faults.clear()
    for item in requests(api):
        api.delete("certificatesigningrequests", item["metadata"]["name"])


@pytest.fixture
def program(cluster: WorldCluster, api: EmbeddedAPI, tmp_path: Path) -> NodeProgram:
    """A node on a Machine of this test's own; it has no bootstrap kubeconfig yet."""
    name = f"worker-{next(_NUMBERS)}"
    cluster.add_machine(name, provider_id=provider_id(name))
    return NodeProgram(tmp_path / "node", node_of(cluster, name))


def in_folder(folder: Path, content: str) -> list[str]:
    """The names of the files that hold that text."""
    return [path.name for path in folder.rglob("*") if path.is_file() and content.encode() in path.read_bytes()]


def requests(api: EmbeddedAPI) -> list[dict[str, Any]]:
    """The CertificateSigningRequests that are there."""
    return api.objects("certificatesigningrequests")


@pytest.mark.slow
@pytest.mark.parametrize("api_version", [V1, V1BETA1])
def test_the_first_certificate_is_printed_as_client_go_asked_for_it(
    cluster: WorldCluster, program: NodeProgram, api_version: str
) -> None:
    program.supply_bootstrap(cluster)
    ran = program.credential(api_version)
    certificate = ran.certificate()
    assert set(certificate.subject) == set(node_subject(program.node.node_name))
    printed = json.loads(ran.output)
    assert (printed["apiVersion"], printed["kind"]) == (api_version, "ExecCredential")
    key = load_key(printed["status"]["clientKeyData"])
    assert key.public_key() == certificate.public_key()


@pytest.mark.slow
def test_other_users_cannot_read_the_store(cluster: WorldCluster, program: NodeProgram) -> None:
    program.supply_bootstrap(cluster)
    ran = program.credential()
    ran.certificate()
    assert {path.name for path in program.store.iterdir()} == STORED
    assert {path.stat().st_mode & 0o777 for path in program.store.iterdir()} == {0o600}
    status = json.loads(ran.output)["status"]
    assert program.client_pair.read_text() == status["clientCertificateData"] + status["clientKeyData"]


@pytest.mark.slow
def test_the_stored_certificate_is_printed_without_another_request(
    cluster: WorldCluster, api: EmbeddedAPI, program: NodeProgram
) -> None:
    program.supply_bootstrap(cluster)
    first = program.credential()
    api.requests.clear()
    assert program.credential().certificate() == first.certificate()
    assert [entry for entry in api.requests.matching() if entry.user.startswith("system:node")] == []


@pytest.mark.slow
def test_the_bootstrap_token_is_wiped_with_the_first_certificate(cluster: WorldCluster, program: NodeProgram) -> None:
    token = program.supply_bootstrap(cluster)
    program.run("prepare")
    assert in_folder(program.store, token) == ["kubelet-authenticator-bootstrap.json"]
    assert (program.store / "kubelet-authenticator-bootstrap.json").stat().st_mode & 0o777 == 0o600
    program.credential().certificate()
    assert in_folder(program.store, token) == []


@pytest.mark.slow
def test_the_credential_survives_that_kubeadm_deletes_its_file(
    cluster: WorldCluster, api: EmbeddedAPI, program: NodeProgram
) -> None:
    """kubeadm deletes it a few minutes behind the start of the kubelet, whether there is a certificate or not."""
    program.supply_bootstrap(cluster)
    api.stop_listening()
    program.configure(timeoutSeconds=1)
    assert program.credential().exit_code == ExitCode.UNAVAILABLE
    program.bootstrap_kubeconfig.unlink()
    api.start_listening()
    program.configure()
    program.credential().certificate()


@pytest.mark.slow
def test_without_a_credential_there_is_nothing_to_ask_with(
    cluster: WorldCluster, api: EmbeddedAPI, program: NodeProgram
) -> None:
    ran = program.credential()
    assert (ran.exit_code, ran.output) == (ExitCode.NO_CREDENTIAL, "")
    assert str(program.bootstrap_kubeconfig) in ran.log
    assert created(api) == []


@pytest.mark.slow
def test_no_secret_is_printed(cluster: WorldCluster, program: NodeProgram) -> None:
    token = program.supply_bootstrap(cluster)
    ran = program.credential()
    key = load_key(json.loads(ran.output)["status"]["clientKeyData"])
    der = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    secrets = (token, token.partition(".")[2], base64.b64encode(der).decode(), program.node.settings["machine-key"])
    assert ran.log
    for secret in (*secrets, *SECRETS_IN_PLAY, "PRIVATE KEY"):
        assert secret not in ran.log
    assert ran.log.isascii()


@pytest.mark.slow
def test_the_name_of_a_request_comes_from_its_private_key(
    cluster: WorldCluster, api: EmbeddedAPI, program: NodeProgram
) -> None:
    program.supply_bootstrap(cluster)
    key = load_key(json.loads(program.credential().output)["status"]["clientKeyData"])
    der = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    expected = request_name(der, SignerName(Purpose.CLIENT, "keyed-mac"), Step.FIRST, "v1")
    (found,) = requests(api)
    assert found["metadata"]["name"] == expected
    assert re.fullmatch(r"node-attestation-[0-9a-f]{40}", expected)


@pytest.mark.slow
def test_the_same_node_with_another_key_asks_by_another_name(
    cluster: WorldCluster, api: EmbeddedAPI, program: NodeProgram, tmp_path: Path
) -> None:
    for folder in ("one", "two"):
        again = NodeProgram(tmp_path / folder, program.node)
        again.supply_bootstrap(cluster)
        again.credential().certificate()
    one, two = requests(api)
    assert one["metadata"]["name"] != two["metadata"]["name"]
    assert key_of(one) != key_of(two)


@pytest.mark.slow
def test_the_same_token_that_was_used_is_not_taken_in_again(cluster: WorldCluster, program: NodeProgram) -> None:
    """kubeadm's file may lie there for ever."""
    token = program.supply_bootstrap(cluster)
    program.credential().certificate()
    program.client_pair.unlink()
    ran = program.credential()
    assert ran.exit_code == ExitCode.NO_CREDENTIAL
    assert in_folder(program.store, token) == []


@pytest.mark.slow
def test_request_asks_for_both_certificates_by_hand(
    cluster: WorldCluster, api: EmbeddedAPI, program: NodeProgram
) -> None:
    program.supply_bootstrap(cluster)
    ran = program.run(
        "request", "--serving", "--serving-dns-name", program.node.node_name, "--serving-dns-name", "other.example"
    )
    assert ran.exit_code == ExitCode.DENIED  # the second name is nobody's
    assert program.client_pair.exists()
    assert not program.serving_pair.exists()
    assert "InvalidSubjectAlternativeNames" in ran.log


# Answers that are lost.


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names that were sent to be created, those excepted that the server refused to create."""
    names: list[str] = []
    create = ApiServer.create

    def note(self: ApiServer, signing_request: dict[str, Any]) -> dict[str, Any]:
        name = signing_request["metadata"]["name"]
        try:
            answer = create(self, signing_request)
        except PerhapsDone:
            names.append(name)
            raise
        names.append(name)
        return answer

    monkeypatch.setattr(ApiServer, "create", note)
    yield names
    assert len(names) == len(set(names)), "a name was created twice"


def by_the_node(method: str) -> Any:
    """Matches the node's calls of that method, watches excepted."""

    def matches(request: Request) -> bool:
        joining = request.user.name.startswith("system:bootstrap:")
        return joining and request.method == method and "watch" not in request.query

    return matches


FAULTS: Final[dict[str, Any]] = {
    "lost request": {"drop": "before"},
    "lost answer": {"drop": "after"},
    "500": {"status": 500},
    "503": {"status": 503},
    "504": {"status": 504},
    "429": {"status": 429, "retry_after_seconds": 2},
}


def in_process(cluster: WorldCluster, program: NodeProgram, timepiece: Timepiece) -> NodeCertificates:
    """The same node, in this process and by that clock."""
    program.supply_bootstrap(cluster)
    configuration = configure(Given(config=str(program.configuration)), {})
    return NodeCertificates(configuration, Store(configuration.store), timepiece.clock())


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_join_survives_that_its_request_or_the_answer_is_lost(
    cluster: WorldCluster, api: EmbeddedAPI, program: NodeProgram, posted: list[str], fault: str, times: int
) -> None:
    armed = api.faults.inject(by_the_node("POST"), times=times, **FAULTS[fault])
    in_process(cluster, program, Timepiece()).client()
    # What came through at the first try behind a lost answer is found by its name, and nothing is sent again.
    assert armed.hits == (1 if fault == "lost answer" else times)
    names = {item["metadata"]["name"] for item in requests(api)}
    assert names <= set(posted)
    assert len(names) == 1


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_join_survives_that_what_it_looks_for_cannot_be_read(
    cluster: WorldCluster, api: EmbeddedAPI, program: NodeProgram, posted: list[str], fault: str
) -> None:
    api.faults.inject(by_the_node("POST"), drop="after")
    armed = api.faults.inject(by_the_node("GET"), times=3, **FAULTS[fault])
    in_process(cluster, program, Timepiece()).client()
    assert armed.hits == 3
    assert [item["metadata"]["name"] for item in requests(api)] == posted


@pytest.mark.slow
@pytest.mark.parametrize("fault", [*FAULTS, "410"])
def test_a_join_survives_that_its_watch_breaks(
    cluster: WorldCluster, api: EmbeddedAPI, program: NodeProgram, posted: list[str], fault: str
) -> None:
    def a_watch(request: Request) -> bool:
        return request.user.name.startswith("system:bootstrap:") and "watch=true" in request.query

    options = FAULTS.get(fault, {"status": 410})
    api.faults.inject(a_watch, **options)
    in_process(cluster, program, Timepiece()).client()
    assert len(posted) == len(requests(api)) == 1


def test_a_busy_server_is_retried_after_its_retry_after(
    cluster: WorldCluster, api: EmbeddedAPI, program: NodeProgram
) -> None:
    timepiece = Timepiece()
    api.faults.inject(by_the_node("POST"), status=429, retry_after_seconds=7)
    in_process(cluster, program, timepiece).client()
    assert timepiece.sleeps[0] == 7


def test_a_name_that_is_always_taken_is_given_up(cluster: WorldCluster, api: EmbeddedAPI, program: NodeProgram) -> None:
    """No honest server says of a name that nobody can guess that it is there, and then that it is not."""
    api.faults.inject(by_the_node("POST"), status=409, times=None)
    timepiece = Timepiece()
    with pytest.raises(ApiUnavailable, match="answered 409"):
        in_process(cluster, program, timepiece).client()
    assert sum(timepiece.sleeps) <= program.timeout


def test_the_clock_of_earnest_is_the_systems() -> None:
    earnest = clock.Clock()
    assert abs(earnest.now() - earnest.today().timestamp()) < 5
    assert 0 <= earnest.jitter() < 1
