"""What mirror pods say of the running servers, true or not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.kube.client import JsonObject
from signer.kube.errors import Cause, NotFound, Unreachable
from signer.rotation.control_plane.mirror_pods import NotShown, RunningServer, read_server, running_server
from signer.rotation.control_plane.template import Component
from signer.rotation.phases import SigningPairs
from tests.unit.signer.rotation.control_plane.recorded import recorded

API_SERVER = Component.API_SERVER


def pod(**container: Any) -> dict[str, Any]:
    found = recorded("kube-apiserver-pod")
    found["spec"]["containers"][0].update(container)
    return found


def test_flags_and_start_are_read() -> None:
    server = running_server(pod(), API_SERVER, "cp-0")
    assert isinstance(server, RunningServer)
    assert server.flags["client-ca-file"] == "/etc/kubernetes/pki/rotation/client-ca.crt"
    assert server.started == datetime(2026, 10, 1, 8, 0, 5, tzinfo=UTC)
    assert server.lacks(SigningPairs.ONE_PAIR) == ()


@pytest.mark.parametrize(
    "command",
    [
        ["kube-apiserver"],
        ["kube-apiserver", "--client-ca-file=/etc/kubernetes/pki/ca.crt"],
        [
            "kube-apiserver",
            "--client-ca-file=/etc/kubernetes/pki/rotation/client-ca.crt",
            "--client_ca_file=/etc/kubernetes/pki/ca.crt",
        ],
        ["kube-apiserver", "--client-ca-file", "/etc/kubernetes/pki/rotation/client-ca.crt"],
        [None, 1, "--client-ca-file=" + "x" * 5000],
        "kube-apiserver",
    ],
)
def test_a_server_that_was_started_otherwise_lacks_the_flag(command: Any) -> None:
    server = running_server(pod(command=command), API_SERVER, "cp-0")
    assert isinstance(server, RunningServer)
    assert [one.name for one in server.lacks(SigningPairs.ONE_PAIR)] == ["client-ca-file"]


def test_arguments_are_read_after_the_command() -> None:
    server = running_server(pod(args=["--client-ca-file=/other"]), API_SERVER, "cp-0")
    assert isinstance(server, RunningServer)
    assert server.flags["client-ca-file"] == "/other"


def test_a_word_that_is_longer_than_flags_are_is_left_out() -> None:
    server = running_server(pod(command=["--a=" + "x" * 4096, "--b=c"]), API_SERVER, "cp-0")
    assert isinstance(server, RunningServer)
    assert server.flags == {"b": "c"}


def changed(change: str) -> dict[str, Any]:
    found = pod()
    match change:
        case "no annotation":
            del found["metadata"]["annotations"]["kubernetes.io/config.mirror"]
        case "another node":
            found["spec"]["nodeName"] = "cp-1"
        case "waiting":
            found["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
        case "no status":
            del found["status"]
        case "another container":
            found["status"]["containerStatuses"][0]["name"] = "sidecar"
        case "many words":
            found["spec"]["containers"][0]["command"] = ["--a=b"] * 257
    return found


@pytest.mark.parametrize(
    "change", ["no annotation", "another node", "waiting", "no status", "another container", "many words"]
)
def test_what_is_no_running_mirror_pod_is_not_shown(change: str) -> None:
    assert isinstance(running_server(changed(change), API_SERVER, "cp-0"), NotShown)


@given(st.recursive(st.none() | st.text(max_size=4), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_any_pod_is_read(part: Any) -> None:
    for holder in ("metadata", "spec", "status"):
        assert isinstance(running_server({**pod(), holder: part}, API_SERVER, "cp-0"), NotShown)
    found = pod()
    found["spec"]["containers"] = part
    assert isinstance(running_server(found, API_SERVER, "cp-0"), RunningServer | NotShown)


class Workload:
    """A workload cluster with one mirror pod."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def get(self, path: str) -> JsonObject:
        if self.error:
            raise self.error
        if path != "/api/v1/namespaces/kube-system/pods/kube-apiserver-cp-0":
            raise NotFound("no such pod", status=404)
        return pod()


async def test_it_is_read_by_the_name_of_the_node() -> None:
    assert isinstance(await read_server(Workload(), API_SERVER, "cp-0"), RunningServer)
    assert isinstance(await read_server(Workload(), API_SERVER, "cp-1"), NotShown)
    assert isinstance(await read_server(Workload(), Component.CONTROLLER_MANAGER, "cp-0"), NotShown)


@pytest.mark.parametrize("node_name", ["../cp-0", "n" * 300, "cp\n0"])
async def test_a_node_name_directs_no_call_elsewhere(node_name: str) -> None:
    assert isinstance(await read_server(Workload(), API_SERVER, node_name), NotShown)


async def test_a_cluster_that_cannot_be_asked_says_nothing() -> None:
    with pytest.raises(Unreachable):
        await read_server(Workload(Unreachable("no route", cause=Cause.NETWORK)), API_SERVER, "cp-0")
