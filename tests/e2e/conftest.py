"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.auto_approval_fixtures import AutoApprovalWorld, open_auto_approval_world
from tests.support.binaries import MissingPart, find_control_plane, skip_or_fail


@pytest.fixture(scope="module")
def auto_approval_world(request: pytest.FixtureRequest) -> Iterator[AutoApprovalWorld]:
    """A control plane of the module's own, with kubeadm's grants, kube-controller-manager and a policy in Observe."""
    try:
        find_control_plane().kube_controller_manager()
    except MissingPart as missing:
        skip_or_fail(missing)
    with open_auto_approval_world(request.module.__name__.rpartition(".")[2].replace("_", "-")) as world:
        yield world
