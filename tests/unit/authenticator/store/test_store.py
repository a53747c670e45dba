from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attestors.wire.names import Purpose
from authenticator.model.attempt import Attempt
from authenticator.model.cluster import Bootstrap, ClientCertificate
from authenticator.model.failures import StoreUnusable
from authenticator.model.reported_trust import ReportedTrust
from authenticator.store.lock import LockHeld
from authenticator.store.store import KnownCluster, Store
from tests.unit.authenticator.builders import (
    TOKEN,
    bootstrap,
    certificate,
    cluster,
    key_pem,
    pair,
    pause,
    pem_of,
    pending,
    secret_line,
)

BOTH = pytest.mark.parametrize("purpose", Purpose)
HELD = Bootstrap(cluster(), ClientCertificate(pem_of(certificate()), key_pem()))
KNOWN = KnownCluster(cluster(tls_server_name="kubernetes"), "d" * 64, reported=ReportedTrust("ab", 7))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "pki")
    made.open()
    return made


def names(store: Store) -> list[str]:
    return sorted(entry.name for entry in store.folder.iterdir())


def crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "replace", broken)


# The folder


def test_the_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    store = Store(tmp_path / "a" / "b")
    store.open()
    store.open()
    assert store.folder.stat().st_mode & 0o022 == 0


def test_the_folder_is_for_others_to_look_into_whatever_the_umask(tmp_path: Path) -> None:
    """The kubelet's own files are beside ours."""
    former = os.umask(0)
    try:
        Store(tmp_path / "lib" / "kubelet" / "pki").open()
    finally:
        os.umask(former)
    for made in ("lib", "lib/kubelet", "lib/kubelet/pki"):
        assert (tmp_path / made).stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777, 0o1777, 0o770])
def test_a_folder_that_others_may_write_in_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(StoreUnusable, match="must not be writable by others: chown and chmod go-w"):
        Store(tmp_path).open()
    with pytest.raises(StoreUnusable, match="must not be writable by others: chown and chmod go-w"):
        Store(tmp_path).check_folder()


def test_checking_creates_no_folder(tmp_path: Path) -> None:
    Store(tmp_path / "pki").check_folder()
    assert not (tmp_path / "pki").exists()


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o700])
def test_a_folder_of_ours_alone_is_good(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    Store(tmp_path).open()
    Store(tmp_path).check_folder()


def test_another_users_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    ours = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: ours + 1)
    with pytest.raises(StoreUnusable, match=rf"must belong to the user .* \(uid {ours + 1}\)"):
        Store(tmp_path).open()


def test_a_file_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnusable, match=r"the store .*file is not a folder: name another one"):
        Store(tmp_path / "file").open()


# Locks


def test_each_certificate_has_a_lock_of_its_own(store: Store) -> None:
    with store.lock(Purpose.CLIENT, timeout=0), store.lock(Purpose.SERVING, timeout=0):
        assert names(store) == ["kubelet-authenticator-client.lock", "kubelet-authenticator-serving.lock"]
        with pytest.raises(LockHeld, match=f"process {os.getpid()}"), store.lock(Purpose.CLIENT, timeout=0):
            raise AssertionError
    with store.lock(Purpose.CLIENT, timeout=0):
        pass


def test_the_bootstrap_credential_has_a_lock_of_its_own_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """``prepare`` does not wait for somebody who is asking, and not without end for anybody."""
    monkeypatch.setattr("authenticator.store.store._BOOTSTRAP_LOCK_SECONDS", 0)
    with store.lock(Purpose.CLIENT, timeout=0), store.lock(Purpose.SERVING, timeout=0), store.bootstrap_lock():
        assert "kubelet-authenticator-bootstrap.lock" in names(store)
        with pytest.raises(LockHeld, match=r"bootstrap\.lock"), store.bootstrap_lock():
            raise AssertionError
    with store.bootstrap_lock():
        pass


def test_a_lock_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    lock = Store(tmp_path / "missing").lock(Purpose.CLIENT, timeout=0)
    with pytest.raises(StoreUnusable, match=r"cannot lock .*client.lock: No such file"), lock:
        raise AssertionError


def test_what_fails_under_the_lock_is_not_the_locks_fault(store: Store) -> None:
    with pytest.raises(FileNotFoundError), store.lock(Purpose.CLIENT, timeout=0):
        raise FileNotFoundError(2, "something else")


# Pairs


def test_the_file_names_stay(store: Store) -> None:
    """The kubelet's configuration names them."""
    assert store.pair_file(Purpose.CLIENT) == store.folder / "kubelet-authenticator-client.pem"
    assert store.pair_file(Purpose.SERVING) == store.folder / "kubelet-authenticator-serving.pem"


@BOTH
def test_a_pair_is_kept(store: Store, purpose: Purpose) -> None:
    assert store.pair(purpose) is None
    kept = pair()
    store.save_pair(purpose, kept)
    found = store.pair(purpose)
    assert found is not None
    assert found.encode() == kept.encode() == store.pair_file(purpose).read_text()
    assert names(store) == [store.pair_file(purpose).name]
    assert store.pair_file(purpose).stat().st_mode & 0o777 == 0o600


def test_a_crash_while_a_pair_is_stored_leaves_the_former(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    former = pair()
    store.save_pair(Purpose.CLIENT, former)
    with monkeypatch.context() as broken:
        crash(broken)
        with pytest.raises(StoreUnusable, match=f"^cannot write {store.folder}: Input/output error$"):
            store.save_pair(Purpose.CLIENT, pair(key=1))
    found = store.pair(Purpose.CLIENT)
    assert found is not None
    assert found.key == former.key
    assert names(store) == ["kubelet-authenticator-client.pem"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "does not begin with a certificate", id="empty"),
        pytest.param("text", "does not begin with a certificate", id="text"),
        pytest.param(pair().encode()[:-50], "does not end with one private key", id="cut-off"),
        pytest.param(pair().certificate + key_pem(1), "do not belong together", id="two-halves"),
        pytest.param(
            pair().encode().replace(secret_line(key_pem()), "A" * 64), "is unreadable|do not belong", id="damaged-key"
        ),
    ],
)
def test_what_is_no_pair_is_for_a_person_to_look_at(store: Store, text: str, message: str) -> None:
    path = store.pair_file(Purpose.CLIENT)
    path.write_text(text)
    with pytest.raises(StoreUnusable, match=message) as refused:
        store.pair(Purpose.CLIENT)
    assert str(path) in str(refused.value)
    assert "move the file away" in str(refused.value)
    assert secret_line(key_pem()) not in str(refused.value)


def test_bytes_are_no_pair(store: Store) -> None:
    store.pair_file(Purpose.CLIENT).write_bytes(b"\xff" * 99)
    with pytest.raises(StoreUnusable, match="does not begin"):
        store.pair(Purpose.CLIENT)


def test_a_file_without_end_is_refused(store: Store) -> None:
    store.pair_file(Purpose.CLIENT).write_bytes(b"x" * (512 * 1024 + 1))
    with pytest.raises(StoreUnusable, match=r"client.pem: larger than 524288 bytes; move it away"):
        store.pair(Purpose.CLIENT)


def test_an_attempt_without_end_is_none(store: Store) -> None:
    (store.folder / "kubelet-authenticator-client.attempt.json").write_bytes(b"x" * (512 * 1024 + 1))
    assert store.attempt(Purpose.CLIENT) == Attempt()


@BOTH
def test_a_pair_of_another_cluster_is_set_aside_and_kept(store: Store, purpose: Purpose) -> None:
    store.set_aside(purpose)
    kept = pair()
    store.save_pair(purpose, kept)
    store.set_aside(purpose)
    assert store.pair(purpose) is None
    former = store.folder / f"kubelet-authenticator-{purpose.value}.former.pem"
    assert former.read_text() == kept.encode()
    assert former.stat().st_mode & 0o777 == 0o600
    assert names(store) == [former.name]


def test_setting_aside_may_fail(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    crash(monkeypatch)
    with pytest.raises(StoreUnusable, match="cannot rename"):
        store.set_aside(Purpose.CLIENT)


# Attempts


@BOTH
def test_an_attempt_is_kept_and_forgotten(store: Store, purpose: Purpose) -> None:
    assert store.attempt(purpose) == Attempt()
    kept = Attempt(pending(), pause())
    store.save_attempt(purpose, kept)
    assert store.attempt(purpose) == kept
    [path] = store.folder.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert purpose.value in path.name
    store.save_attempt(purpose, Attempt())
    store.save_attempt(purpose, Attempt())
    assert store.attempt(purpose) == Attempt()
    assert names(store) == []


def test_the_two_attempts_are_apart(store: Store) -> None:
    store.save_attempt(Purpose.CLIENT, Attempt(pause=pause()))
    assert store.attempt(Purpose.SERVING) == Attempt()


def test_a_crash_while_an_attempt_is_stored_leaves_the_former(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save_attempt(Purpose.CLIENT, Attempt(pending()))
    with monkeypatch.context() as broken:
        crash(broken)
        with pytest.raises(StoreUnusable, match="cannot write"):
            store.save_attempt(Purpose.CLIENT, Attempt(pause=pause()))
    assert store.attempt(Purpose.CLIENT) == Attempt(pending())


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xff", b"[]", b'{"format": 2}'])
def test_what_cannot_be_read_is_no_attempt(store: Store, data: bytes) -> None:
    store.save_attempt(Purpose.CLIENT, Attempt(pending()))
    [path] = store.folder.iterdir()
    path.write_bytes(data)
    assert store.attempt(Purpose.CLIENT) == Attempt()


# The bootstrap credential


@pytest.mark.parametrize("kept", [bootstrap(), HELD], ids=["token", "certificate"])
def test_a_bootstrap_credential_is_kept_and_wiped(store: Store, kept: Bootstrap) -> None:
    assert store.bootstrap() is None
    store.save_bootstrap(kept)
    assert store.bootstrap() == kept
    path = store.folder / "kubelet-authenticator-bootstrap.json"
    assert path.stat().st_mode & 0o777 == 0o600
    store.wipe_bootstrap()
    store.wipe_bootstrap()
    assert store.bootstrap() is None
    assert names(store) == []


def test_a_partly_wiped_copy_counts_as_none_and_is_still_to_be_wiped(store: Store) -> None:
    assert not store.keeps_bootstrap()
    store.save_bootstrap(bootstrap())
    path = store.folder / "kubelet-authenticator-bootstrap.json"
    for zeros in (1, path.stat().st_size):
        path.write_bytes(bytes(zeros) + path.read_bytes()[zeros:])
        assert store.bootstrap() is None
        assert store.keeps_bootstrap()
    store.wipe_bootstrap()
    assert not store.keeps_bootstrap()


def test_a_copy_that_is_a_link_to_nowhere_is_still_to_be_wiped(store: Store) -> None:
    (store.folder / "kubelet-authenticator-bootstrap.json").symlink_to("nowhere")
    assert store.keeps_bootstrap()


def test_wiping_overwrites(store: Store, tmp_path: Path) -> None:
    store.save_bootstrap(bootstrap())
    second = tmp_path / "second"
    second.hardlink_to(store.folder / "kubelet-authenticator-bootstrap.json")
    store.wipe_bootstrap()
    assert set(second.read_bytes()) == {0}


def test_storing_the_credential_or_the_cluster_may_fail(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    crash(monkeypatch)
    with pytest.raises(StoreUnusable, match=r"^cannot write"):
        store.save_bootstrap(bootstrap())
    with pytest.raises(StoreUnusable, match=r"^cannot write"):
        store.save_known_cluster(KNOWN)
    assert names(store) == []


def test_wiping_may_fail(store: Store, tmp_path: Path) -> None:
    (store.folder / "kubelet-authenticator-bootstrap.json").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("untouched")
    with pytest.raises(StoreUnusable, match="cannot wipe"):
        store.wipe_bootstrap()
    assert (tmp_path / "elsewhere").read_text() == "untouched"


# The cluster


def test_the_cluster_is_kept(store: Store) -> None:
    assert store.known_cluster() is None
    store.save_known_cluster(KNOWN)
    assert store.known_cluster() == KNOWN
    assert names(store) == ["kubelet-authenticator-cluster.json"]
    assert TOKEN not in (store.folder / "kubelet-authenticator-cluster.json").read_text()


@pytest.mark.parametrize(
    "document", [None, 7, [], {}, {"certificate": "ab"}, {"certificate": 1, "version": 7}, {"version": -1}]
)
def test_an_unreadable_report_counts_as_none(store: Store, document: Any) -> None:
    """One renewal before its time, and the file is as it should be."""
    store.save_known_cluster(KNOWN)
    path = store.folder / "kubelet-authenticator-cluster.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sshTrust": document}))
    assert store.known_cluster() == replace(KNOWN, reported=ReportedTrust())


def deep(_document: dict[str, Any]) -> str:
    return '{"cluster": ' + "[" * 100_000


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: "",
        lambda _: "[]",
        lambda _: "null",
        lambda _: '["cluster"]',
        lambda _: "{}",
        deep,
        lambda document: json.dumps(document)[:-2],
        lambda document: json.dumps(document | {"cluster": None}),
        lambda document: json.dumps(document | {"cluster": "text"}),
        lambda document: json.dumps(document | {"cluster": document["cluster"] | {"server": "http://x"}}),
        lambda document: json.dumps(document | {"cluster": document["cluster"] | {"server": 7}}),
        lambda document: json.dumps(document | {"cluster": document["cluster"] | {"server": ["https://x"]}}),
        lambda document: json.dumps(document | {"cluster": document["cluster"] | {"certificateAuthority": 7}}),
        lambda document: json.dumps(document | {"cluster": document["cluster"] | {"certificateAuthority": ""}}),
        lambda document: json.dumps(document | {"cluster": document["cluster"] | {"tlsServerName": None}}),
        lambda document: json.dumps({"cluster": document["cluster"]}),
        lambda document: json.dumps({"cluster": document["cluster"], "credential": None, "usedBootstrap": None}),
        lambda document: json.dumps({"cluster": document["cluster"], "credential": ["token"], "usedBootstrap": 7}),
        lambda document: json.dumps({"cluster": document["cluster"], "credential": {"token": 7}, "usedBootstrap": []}),
        lambda document: json.dumps({"cluster": document["cluster"], "credential": {"key": ""}, "usedBootstrap": {}}),
    ],
)
def test_what_is_damaged_is_for_a_person_to_look_at(store: Store, damage: Callable[[dict[str, Any]], str]) -> None:
    store.save_bootstrap(bootstrap())
    store.save_known_cluster(KNOWN)
    reads: dict[str, Callable[[], object]] = {"bootstrap": store.bootstrap, "cluster": store.known_cluster}
    for name, read in reads.items():
        path = store.folder / f"kubelet-authenticator-{name}.json"
        path.write_text(damage(json.loads(path.read_text())))
        with pytest.raises(StoreUnusable, match=f"{path} is damaged: remove it") as refused:
            read()
        assert TOKEN not in str(refused.value)
        assert refused.value.__cause__ is None


def test_what_is_kept_shows_no_secret() -> None:
    assert TOKEN not in repr(bootstrap())
    assert secret_line(key_pem()) not in repr(HELD)
