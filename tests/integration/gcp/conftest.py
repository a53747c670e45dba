"""A fake Google, and a harness whose controller believes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import attestors.gcp
from attestors.gcp import GCPAttestor
from signer.configuration import OperatorAttestor
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness
from tests.integration.gcp.virtual_machine import OTHER_PROJECT, OTHER_PROJECT_NUMBER, PROJECT, PROJECT_NUMBER
from tests.support.fake_google import FakeGoogle, Service


@pytest.fixture(scope="module")
def running_google() -> Iterator[FakeGoogle]:
    with FakeGoogle() as running, pytest.MonkeyPatch.context() as patch:
        # The one thing that no setting can change: whose certificates are believed.
        patch.setattr(attestors.gcp, "plugin", GCPAttestor(running.pem_certificates_url))
        yield running


@pytest.fixture
def google(running_google: FakeGoogle) -> Iterator[FakeGoogle]:
    yield running_google
    for service in Service:
        running_google.mend(service)


@pytest.fixture(scope="module")
def running(shared_harness: Harness, running_google: FakeGoogle, tmp_path_factory: pytest.TempPathFactory) -> Harness:
    """A harness whose controller looks instances up; its tests only add to it."""
    settings = {
        "projects": {PROJECT: PROJECT_NUMBER, OTHER_PROJECT: OTHER_PROJECT_NUMBER},
        "checkInstance": True,
        "credentialsFile": running_google.write_account_key(tmp_path_factory.mktemp("credentials")),
        "computeEndpoint": running_google.compute_url,
    }
    shared_harness.run(attestors={"gcp": OperatorAttestor(settings=settings)})
    return shared_harness


@pytest.fixture(scope="module")
def cluster(running: Harness) -> WorldCluster:
    return running.cluster("cloud", ["gcp"])


@pytest.fixture(scope="module")
def other_cluster(running: Harness) -> WorldCluster:
    return running.cluster("other", ["gcp"], namespace="elsewhere")
