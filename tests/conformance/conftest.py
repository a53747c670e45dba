"""Every conformance test runs against the embedded API and against a real kube-apiserver."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator

import pytest

from tests.conformance.api import Api, Clients, open_embedded_api, version_of
from tests.support.raw_client import RawClient

_NUMBERS = itertools.count()


@pytest.fixture(
    scope="session",
    params=["embedded", pytest.param("real", marks=(pytest.mark.real, pytest.mark.slow))],
)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """A running API server with kubeadm's grants. Tests share it, so each uses names of its own."""
    if request.param == "real":
        yield request.getfixturevalue("real_control_plane")
        return
    with open_embedded_api() as embedded:
        yield embedded


@pytest.fixture(scope="session")
def admin(api: Api) -> Iterator[RawClient]:
    """A client of the group system:masters."""
    with RawClient(api.connection("system:admin", ("system:masters",))) as client:
        yield client


@pytest.fixture(scope="session")
def version(admin: RawClient) -> tuple[int, int]:
    """Kubernetes version of the server, as (major, minor)."""
    return version_of(admin)


@pytest.fixture(scope="session")
def namespace(admin: RawClient) -> str:
    """A namespace for this run."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "conformance"}}
    # The real server outlives this fixture where files follow each other that need now one server, now the other.
    admin.post("/api/v1/namespaces", body).expect(201, 409)
    return "conformance"


@pytest.fixture
def clients(api: Api) -> Iterator[Clients]:
    """Clients as other users, closed after the test."""
    with contextlib.ExitStack() as stack:
        yield Clients(api, stack)


@pytest.fixture(scope="session")
def token(api: Api) -> str:
    """A bootstrap token of kubeadm's group."""
    return api.bootstrap_token()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses and that begins no other test's name."""
    text = re.sub(r"[^a-z0-9]+", "-", request.node.originalname.lower()).strip("-")
    return f"{text[:40].strip('-')}-{next(_NUMBERS)}-x"
