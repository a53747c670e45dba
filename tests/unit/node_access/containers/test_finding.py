"""Which containers a node has, and in which of them sessions may be opened."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from node_access.containers.documents import MAXIMUM_BYTES, Unreadable
from node_access.containers.finding import (
    Bundles,
    NotOpen,
    control_groups_of,
    find_running,
    open_container,
    parse_bundle,
    shares_network_with_node,
)
from tests.unit.node_access.containers.made import ANNOTATIONS, FIRST_PROCESS, IDENTIFIER, NAME, MadeNode


@pytest.fixture
def node(tmp_path: Path) -> MadeNode:
    return MadeNode(tmp_path)


def test_a_container_has_the_name_that_the_runtime_interface_wrote(node: MadeNode) -> None:
    node.add()
    assert node.bundle().name == NAME
    running = node.opened()
    assert (running.runtime, running.process_id) == ("runc", FIRST_PROCESS)
    assert not shares_network_with_node(running, node.proc)


@pytest.mark.parametrize(
    "tenants",
    [
        {"io.kubernetes.pod.name": "other", "io.kubernetes.pod.namespace": "kube-system"},
        {"io.kubernetes.container.name": "other", "io.kubernetes.cri-o.ContainerName": "other"},
        {"sandbox-name": "other", "io.kubernetes.cri.sandbox-name ": "other"},
    ],
    ids=["kubelet", "cri-o", "similar"],
)
def test_other_annotations_name_nothing(node: MadeNode, tenants: dict[str, str]) -> None:
    node.add(annotations={**ANNOTATIONS, **tenants})
    assert node.bundle().name == NAME


@pytest.mark.parametrize("missing", [one for one in ANNOTATIONS if "type" not in one])
@pytest.mark.parametrize("value", [None, 1, ["web-0"], "", "a_b", "x:0:0", "A", "a\n", "../a", "a" * 300])
def test_what_is_no_name_is_skipped(node: MadeNode, missing: str, value: Any) -> None:
    node.add(annotations={**ANNOTATIONS, missing: value})
    found, skipped = Bundles(node.tasks).all()
    assert found == []
    assert skipped[0].identifier == IDENTIFIER


def test_a_sandbox_is_no_container_and_no_news(node: MadeNode) -> None:
    node.add(annotations={**ANNOTATIONS, "io.kubernetes.cri.container-type": "sandbox"})
    assert Bundles(node.tasks).all() == ([], [])


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"a": 1, "a": 2}', b'{"a": NaN}', b"[" * 100_000, b'{"annotations": []}',
     b'{"a":' * 70 + b"1" + b"}" * 70],
    ids=["empty", "cut", "list", "bytes", "twice", "constant", "deep", "annotations", "nested"],
)  # fmt: skip
def test_what_is_no_specification_is_unreadable(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(Unreadable):
        parse_bundle(IDENTIFIER, tmp_path, content)


def test_a_large_or_foreign_file_is_skipped(node: MadeNode) -> None:
    bundle = node.add()
    file = bundle / "config.json"
    content = file.read_bytes()
    file.write_bytes(content.ljust(MAXIMUM_BYTES))
    assert len(Bundles(node.tasks).all()[0]) == 1
    file.write_bytes(content.ljust(MAXIMUM_BYTES + 1))
    assert Bundles(node.tasks).all()[0] == []
    (node.folder / "elsewhere").write_bytes(content)
    file.unlink()
    file.symlink_to(node.folder / "elsewhere")
    assert Bundles(node.tasks).all()[0] == []
    for name in ("no-identifier", "A" * 64, "a" * 63):
        shutil.copytree(bundle, node.tasks / name, symlinks=False)
    assert Bundles(node.tasks).all()[0] == []


def test_each_skipped_folder_is_told_once_and_read_again_when_it_changes(node: MadeNode) -> None:
    bundle = node.add(annotations={**ANNOTATIONS, "io.kubernetes.cri.sandbox-name": "A"})
    bundles = Bundles(node.tasks)
    assert len(bundles.all()[1]) == 1
    assert bundles.all()[1] == []
    (bundle / "config.json").unlink()
    (bundle / "config.json").write_text(json.dumps({"annotations": ANNOTATIONS}))
    assert [one.name for one in bundles.all()[0]] == [NAME]


def test_a_node_without_containerd_has_no_containers(tmp_path: Path) -> None:
    assert Bundles(tmp_path / "missing").all() == ([], [])


@pytest.mark.parametrize(
    ("kind", "own", "why"),
    [
        ("hostPID", {"mnt", "net"}, "hostPID"),
        ("file systems", {"pid", "net"}, "file systems"),
        ("hostUsers", {"pid", "mnt", "net", "user"}, "hostUsers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_namespaces_of_the_node_are_refused(node: MadeNode, kind: str, own: set[str], why: str) -> None:
    node.add()
    node.add_process(str(FIRST_PROCESS), own=own)
    with pytest.raises(NotOpen, match=why):
        node.opened()


def test_the_nodes_network_is_seen(node: MadeNode) -> None:
    node.add()
    node.add_process(str(FIRST_PROCESS), own={"pid", "mnt"})
    assert shares_network_with_node(node.opened(), node.proc)


def test_an_agent_in_a_network_of_its_own_still_sees_the_nodes(node: MadeNode) -> None:
    node.add()
    node.add_process("self", own={"net"})
    node.add_process(str(FIRST_PROCESS), own={"pid", "mnt"})
    assert shares_network_with_node(node.opened(), node.proc)


def test_without_the_state_of_runc_or_crun_it_is_another_runtime(node: MadeNode) -> None:
    node.add()
    (node.root / IDENTIFIER / "state.json").unlink()
    with pytest.raises(NotOpen, match="Kata Containers and gVisor"):
        node.opened()


@pytest.mark.parametrize(
    "changes",
    [
        {"init_process_pid": 1},
        {"init_process_pid": True},
        {"init_process_pid": "4000001"},
        {"cgroup_paths": {"": "relative"}},
        {"cgroup_paths": {"": "/a/../b"}},
        {"cgroup_paths": {"": 1}},
        {"cgroup_paths": []},
    ],
    ids=str,
)
def test_a_state_that_is_not_understood_is_refused(node: MadeNode, changes: dict[str, Any]) -> None:
    node.add()
    node.keep_state(**changes)
    with pytest.raises(NotOpen, match="not understood"):
        node.opened()


def test_a_state_of_another_process_is_refused(node: MadeNode) -> None:
    node.add()
    node.keep_state(init_process_pid=FIRST_PROCESS + 1)
    with pytest.raises(NotOpen, match="do not agree"):
        node.opened()


def test_a_label_of_selinux_is_refused(node: MadeNode) -> None:
    node.add(process={"selinuxLabel": "system_u:system_r:container_t:s0:c1,c2"})
    with pytest.raises(NotOpen, match="SELinux"):
        node.opened()


def test_a_process_that_comes_again_is_another_container(node: MadeNode) -> None:
    node.add()
    running = node.opened()
    running.require_same(node.proc)
    node.add_process(str(FIRST_PROCESS), own={"pid", "mnt", "net"}, started=99)
    with pytest.raises(NotOpen, match="has ended"):
        running.require_same(node.proc)


def test_a_container_that_does_not_run_is_refused(node: MadeNode) -> None:
    bundle = node.add()
    (bundle / "init.pid").write_text("x")
    with pytest.raises(NotOpen, match="unknown"):
        node.opened()
    (bundle / "init.pid").unlink()
    with pytest.raises(NotOpen, match="does not run"):
        node.opened()


def test_two_that_run_under_one_name_are_refused(node: MadeNode) -> None:
    node.add()
    node.add("b" * 64, pid=FIRST_PROCESS + 1)
    bundles, _ = Bundles(node.tasks).all()
    assert len(bundles) == 2
    with pytest.raises(NotOpen, match="several"):
        find_running(bundles, lambda one: open_container(one, node.root, node.proc))
    (node.tasks / ("b" * 64) / "init.pid").unlink()
    found = find_running(bundles, lambda one: open_container(one, node.root, node.proc))
    assert found.bundle.identifier == IDENTIFIER
    with pytest.raises(NotOpen, match="does not run"):
        find_running([], lambda one: open_container(one, node.root, node.proc))


def test_control_groups_of_both_versions_are_found(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "7").mkdir()
    (tmp_path / "self/mountinfo").write_text(
        "30 20 0:25 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"
        "31 20 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        "32 20 0:25 /pod /elsewhere rw - cgroup cgroup rw,freezer\n"
    )
    (tmp_path / "7/cgroup").write_text("6:freezer:/pod/x\n5:cpu:/pod/x\n0::/pod/x\n")
    found = control_groups_of(7, tmp_path)
    assert found == {"freezer": "/sys/fs/cgroup/freezer/pod/x", "": "/sys/fs/cgroup/unified/pod/x"}
    (tmp_path / "7/cgroup").write_text("6:freezer:/\n0::/\n")
    assert control_groups_of(7, tmp_path) == {}
