"""One node with real containers for all tests of this folder that one worker runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.containers.cluster import ContainerCluster, running_kubelet


@pytest.fixture(scope="session")
def container_cluster() -> Iterator[ContainerCluster]:
    """Each test makes Pods of its own. If something of the node is left in the end, the last test fails."""
    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(running_kubelet())
        except MissingPart as missing:
            skip_or_fail(missing)
        yield cluster
        cluster.check_running()
