"""Control groups of sessions, with the kernel's own."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_access.containers.session_groups import NoGroup, SessionGroup, runtime_option, session_group
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.processes import wait_until

SESSION = "0123456789abcdef"


@pytest.fixture(params=["freezer", "unified"])
def container(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The group of a container."""
    hierarchy = Path("/sys/fs/cgroup", request.param)
    if request.param == "unified" and not hierarchy.exists():
        hierarchy = Path("/sys/fs/cgroup")
    if not (hierarchy / "cgroup.procs").exists() or os.geteuid() != 0:
        skip_or_fail(MissingPart(f"there is no {hierarchy}, or the tests do not run as root"))
    group = hierarchy / f"test-{secrets.token_hex(4)}"
    group.mkdir()
    yield group
    group.rmdir()


@pytest.mark.slow
def test_everything_in_it_ends_and_the_container_goes_on(container: Path) -> None:
    name = "freezer" if container.parent.name == "freezer" else ""
    group = session_group({name: str(container)}, SESSION, "runc")
    group.make()
    script = (
        "echo $$ > $0/cgroup.procs; (setsid sleep 1000 &) ; setsid nohup sh -c 'sleep 1000 & sleep 1000' & sleep 1000"
    )
    inside = subprocess.Popen(["sh", "-c", script, group.path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    outside = subprocess.Popen(["sh", "-c", "echo $$ > $0/cgroup.procs; exec sleep 1000", container])
    try:
        wait_until(lambda: len(Path(group.path, "cgroup.procs").read_text().split()) >= 5, "all run")
        wait_until(lambda: (container / "cgroup.procs").read_text() != "", "the container runs")
        group.end()
        assert not Path(group.path).exists()
        inside.wait(timeout=30)
        assert outside.poll() is None
        group.end()  # once more, after an agent's restart
    finally:
        for one in (inside, outside):
            one.kill()
            one.wait()


def test_what_forks_all_the_time_ends_too(container: Path) -> None:
    name = "freezer" if container.parent.name == "freezer" else ""
    group = session_group({name: str(container)}, SESSION, "runc")
    group.make()
    script = "echo $$ > $0/cgroup.procs; while :; do (sleep 0.01 &) ; done"
    inside = subprocess.Popen(["sh", "-c", script, group.path])
    try:
        wait_until(lambda: len(Path(group.path, "cgroup.procs").read_text().split()) > 2, "it forks")
        group.end()
        assert not Path(group.path).exists()
    finally:
        inside.kill()
        inside.wait()


def test_runc_takes_version_1_where_both_are(tmp_path: Path) -> None:
    groups = {name: str(tmp_path / (name or "unified")) for name in ("freezer", "", "memory", "cpu")}
    for path in groups.values():
        Path(path).mkdir()
        Path(path, "cgroup.procs").touch()
    group = session_group(groups, SESSION, "runc")
    assert (group.path, group.beside) == (f"{tmp_path}/freezer/node-access-{SESSION}", ())
    assert runtime_option(groups, group) == f"freezer:node-access-{SESSION}"
    only = {"": groups[""]}
    assert runtime_option(only, session_group(only, SESSION, "runc")) == f"node-access-{SESSION}"


def test_crun_gets_one_in_each_hierarchy(tmp_path: Path) -> None:
    """It would leave the container's limits where there is none."""
    groups = {name: str(tmp_path / name) for name in ("freezer", "memory", "pids")}
    for path in groups.values():
        Path(path).mkdir()
        Path(path, "cgroup.procs").touch()
    group = session_group(groups, SESSION, "crun")
    group.make()
    assert [Path(path).parent.name for path in group.beside] == ["memory", "pids"]
    assert all(Path(path).is_dir() for path in (group.path, *group.beside))


@pytest.mark.parametrize(
    "path",
    ["/sys/fs/cgroup/freezer", "/a/node-access-1", f"/a/../node-access-{SESSION}", f"node-access-{SESSION}", ""],
)
def test_a_record_of_something_else_ends_nothing(path: str) -> None:
    with pytest.raises(NoGroup):
        SessionGroup(path)
    with pytest.raises(NoGroup):
        SessionGroup(f"/a/b/node-access-{SESSION}", (path,))


def test_without_a_group_there_is_no_session(tmp_path: Path) -> None:
    with pytest.raises(NoGroup):
        session_group({}, SESSION, "runc")
    with pytest.raises(NoGroup):
        session_group({"freezer": str(tmp_path / "gone")}, SESSION, "runc")
