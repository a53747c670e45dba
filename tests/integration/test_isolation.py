"""One workload API is hostile or broken: joins elsewhere are decided as before."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest

from signer.controller import workload_access
from signer.kube.client import Client
from signer.testing.world import WorldCluster
from tests.integration import hostile_servers
from tests.integration.fixtures import Harness, assert_readable
from tests.integration.hostile_servers import Behaviour, hostile_server

BEHAVIOURS: Final[dict[str, tuple[Behaviour, bool, bool]]] = {
    "accepts and never shakes hands": (hostile_servers.hangs, False, True),
    "hangs": (hostile_servers.hangs, True, True),
    "garbage": (hostile_servers.garbage, True, True),
    "no JSON": (hostile_servers.no_json, True, True),
    "endless list": (hostile_servers.endless_list, True, True),
    "endless watch": (hostile_servers.endless_watch, True, True),
    "endless bookmarks": (hostile_servers.endless_bookmarks, True, True),
    "endless pages": (hostile_servers.endless_pages, True, True),
    "drips a handshake": (hostile_servers.dripping_handshake, False, True),
    "drips a head": (hostile_servers.dripping_head, True, True),
    "drips a body": (hostile_servers.dripping_body, True, True),
    "huge answer": (hostile_servers.huge_answer, True, True),
    "a million values": (hostile_servers.values_bomb, True, True),
    "compressed bomb": (hostile_servers.compressed_bomb, True, True),
    "redirects": (hostile_servers.redirects, True, True),
    "wrong CA": (hostile_servers.hangs, True, False),
}
WAITED_FOR: Final = (
    "accepts and never shakes hands",
    "hangs",
    "drips a handshake",
    "drips a head",
    "drips a body",
)
"""Only the client's timeout ends these."""
HARMLESS_BUT_USELESS: Final = ("endless bookmarks",)
"""Nothing tells it from an API server where nothing happens."""


@pytest.fixture(scope="module")
def harness(shared_harness: Harness, short_waits: None) -> Iterator[Harness]:
    """One harness; its controller gives up after a second rather than half a minute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workload_access, "Client", partial(Client, timeout_seconds=1.0, maximum_event_bytes=1 << 20))
        patch.setattr(workload_access, "MAXIMUM_BODY_BYTES", 1 << 20)
        shared_harness.run()
        yield shared_harness


@pytest.fixture(scope="module")
def healthy(harness: Harness) -> WorldCluster:
    """Whose joins must go on."""
    cluster = harness.cluster("healthy")
    harness.join(cluster)
    return cluster


@pytest.mark.parametrize(
    "snapshot",
    [pytest.param(snapshot, marks=pytest.mark.slow if snapshot in WAITED_FOR else ()) for snapshot in BEHAVIOURS],
)
def test_others_join_as_before(harness: Harness, healthy: WorldCluster, snapshot: str) -> None:
    behaviour, tls, trusted = BEHAVIOURS[snapshot]
    with hostile_server(behaviour, tls=tls, trusted=trusted) as kubeconfig:
        hostile = harness.cluster("hostile-" + snapshot.lower().replace(" ", "-"), ())
        hostile.put_secret("kubeconfig", {"value": kubeconfig})
        hostile.authorize("keyed-mac")
        harness.join(healthy)
        met = "True" if snapshot in HARMLESS_BUT_USELESS else "False"
        condition = harness.wait_for_condition(hostile, "WorkloadClusterReachable", met)
        assert_readable(condition["message"], "\x1b")
        harness.join(healthy)
        harness.wait_for_condition(healthy, "Ready", "True")
