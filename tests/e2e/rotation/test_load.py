"""The load counts what is a rotation's fault as failed, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from signer.kube.connection import ClusterConnection
from signer.testing.api import EmbeddedAPI
from tests.e2e.rotation.load import Load, LoadClient, Outcomes, is_refusal
from tests.support.certificates import CertificateAuthority
from tests.support.processes import free_port, wait_until


@pytest.fixture(scope="module")
def api() -> Iterator[EmbeddedAPI]:
    with EmbeddedAPI() as api:
        yield api


def ask(connection: ClusterConnection) -> Outcomes:
    """One request of one client."""
    load = Load([], lambda: "Switch")
    load.outcomes.enter("Switch")
    load.ask(LoadClient("worker-1", lambda: connection))
    return load.outcomes


def test_an_answer(api: EmbeddedAPI) -> None:
    outcomes = ask(api.connection())
    assert (outcomes.total, outcomes.failures) == (1, [])
    assert outcomes.steps["Switch"].answered == 1


def test_a_refused_credential_fails(api: EmbeddedAPI) -> None:
    other = CertificateAuthority.like_cluster_api().issue_client("system:node:worker-1", ["system:nodes"])
    outcomes = ask(replace(api.connection(), client_certificate=other[0], client_key=other[1], tls=None))
    assert outcomes.total == 0
    assert [one.partition(" ")[2] for one in outcomes.failures] == ["Switch: worker-1 401"]
    assert outcomes.steps["Switch"].failed == 1


def test_a_refused_server_fails(api: EmbeddedAPI) -> None:
    other = CertificateAuthority.like_cluster_api().certificate_pem
    outcomes = ask(replace(api.connection(), certificate_authority=other, tls=None))
    assert outcomes.total == 0
    assert "worker-1 refuses the server's certificate" in outcomes.failures[0]


def test_a_server_that_does_not_listen_is_unavailable(api: EmbeddedAPI) -> None:
    outcomes = ask(replace(api.connection(), server=f"https://127.0.0.1:{free_port()}", tls=None))
    assert (outcomes.total, outcomes.failures, outcomes.steps["Switch"].unavailable) == (0, [], 1)


def test_clients_ask_until_they_are_stopped_and_steps_are_counted_apart(api: EmbeddedAPI) -> None:
    step = "Accept"
    with Load([LoadClient("worker-1", api.connection, pause=0.01)], lambda: step) as load:
        wait_until(lambda: load.outcomes.total >= 3, "the client asks")
        step = "Switch"
        wait_until(lambda: "Switch" in load.outcomes.steps, "the step is seen")
        wait_until(lambda: load.outcomes.steps["Switch"].answered >= 3, "the client goes on")
    total = load.outcomes.total
    assert sum(one.answered for one in load.outcomes.steps.values()) == total
    assert load.outcomes.failures == []


@pytest.mark.parametrize("text", ["tls: x509: certificate signed by unknown authority", "error: Unauthorized"])
def test_what_client_go_says_of_a_refusal(text: str) -> None:
    assert is_refusal(text)
    assert not is_refusal("dial tcp 127.0.0.1:6443: connect: connection refused")
