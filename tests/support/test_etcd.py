"""etcd on slow and normal disks."""

from __future__ import annotations

import base64
import shutil
import time
from pathlib import Path

import pytest

from tests.support.binaries import MissingPart, find_control_plane, skip_or_fail
from tests.support.etcd import NO_SYNCS, Disk, Etcd
from tests.support.processes import Programs

SLOWER_MILLISECONDS = 50.0


def put_seconds(etcd: Etcd) -> float:
    """The time of the fastest of three writes."""
    taken = []
    for number in range(3):
        began = time.monotonic()
        key = base64.b64encode(b"key %d" % number).decode()
        etcd._request("POST", "/v3/kv/put", {"key": key, "value": key})
        taken.append(time.monotonic() - began)
    return min(taken)


@pytest.mark.real
@pytest.mark.slow
def test_a_write_waits_for_a_slow_disk_and_the_process_is_etcds_own() -> None:
    try:
        binary = find_control_plane().etcd
        programs = Programs("slow-disk-")
        try:
            etcd = Etcd(programs, binary, Disk(slower_by_milliseconds=SLOWER_MILLISECONDS))
            assert put_seconds(etcd) >= SLOWER_MILLISECONDS / 1000
            assert etcd.revision() == 4
            pid = programs.process_ids()["etcd"]
            assert Path(f"/proc/{pid}/comm").read_text().strip() == "etcd"
        finally:
            programs.close()
    except MissingPart as missing:
        skip_or_fail(missing)


def test_a_slow_disk_needs_strace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(MissingPart, match="strace"):
        Disk(slower_by_milliseconds=1).command(Path("etcd"))


def test_a_slow_disk_needs_permission_to_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/false")
    with pytest.raises(MissingPart, match="may not trace here"):
        Disk(slower_by_milliseconds=1).command(Path("etcd"))


def test_a_normal_disk_needs_no_strace() -> None:
    assert Disk().command(Path("etcd")) == [Path("etcd")]
    assert not NO_SYNCS.syncs
