"""Users of containers: a uid is one container's, and another's only when nobody can mistake it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from node_access.containers.users import (
    FIRST_UID,
    POOL_SIZE,
    REST_SECONDS,
    SHELL,
    InvalidState,
    Pool,
    Users,
    load_users,
    require_own_database,
    save_users,
    used_uids,
    write_database,
)
from tests.unit.node_access.containers.made import MadeNode

A, B, C = "shop_a_app", "shop_b_app", "shop_c_app"
LONGEST = f"{'n' * 63}_{'p' * 253}_{'c' * 63}"


def users(size: int = 2) -> Users:
    return Users(Pool(1000, size))


def test_the_pool_is_outside_known_ranges_and_larger_than_a_node() -> None:
    assert POOL_SIZE >= 500 * 8
    assert FIRST_UID > 1_878_982_656  # the last of systemd's
    assert FIRST_UID + POOL_SIZE < 2**31


def test_each_container_has_a_uid_of_its_own() -> None:
    known = users()
    known.update([B, A], 0, ())
    assert known.present() == {A: 1000, B: 1001}
    assert known.name_of(1000) == A
    for uid in (999, 1002):
        with pytest.raises(KeyError):
            known.name_of(uid)


def test_an_exhausted_pool_gives_nobody_anothers_uid() -> None:
    known = users()
    known.update([A, B, C], 0, ())
    assert (known.present(), known.without) == ({A: 1000, B: 1001}, {C})
    assert known.needs_update([A, B, C])
    known.update([A, C], 1, ())
    assert known.present() == {A: 1000}
    known.update([A, C], 1 + REST_SECONDS, ())
    assert (known.present(), known.without) == ({A: 1000, C: 1001}, set())


def test_a_uid_rests_before_it_is_another_containers() -> None:
    """sshd may have asked for its user when it was the former one's."""
    known = users(1)
    known.update([A], 0, ())
    known.update([B], 10, ())
    with pytest.raises(KeyError):
        known.name_of(1000)
    known.update([B], 9 + REST_SECONDS, ())
    assert known.present() == {}
    known.update([B], 10 + REST_SECONDS, ())
    assert known.present() == {B: 1000}


def test_a_uid_that_a_process_has_is_not_given_away() -> None:
    known = users(1)
    known.update([A], 0, ())
    known.update([B], 10, {1000})
    known.update([B], 10 + 10 * REST_SECONDS, {1000})
    assert known.present() == {}
    known.update([A], 10 + 10 * REST_SECONDS, {1000})
    assert known.present() == {A: 1000}
    known.update([B], 10 + 10 * REST_SECONDS, {1000})
    known.update([B], 11 + 11 * REST_SECONDS, ())
    assert known.present() == {B: 1000}
    assert users(2).by_name == {}
    fresh = users(2)  # its state was lost, and sessions go on
    fresh.update([B], 0, {1000})
    assert fresh.present() == {B: 1001}


def test_a_container_that_comes_back_has_its_uid_again() -> None:
    known = users()
    known.update([A, B], 0, ())
    known.update([B], 10, ())
    assert known.needs_update([B])
    known.update([B, A], 20, ())
    assert known.present() == {A: 1000, B: 1001}
    assert not known.needs_update([A, B])


def test_a_restart_keeps_who_has_which(tmp_path: Path) -> None:
    known = users()
    known.update([A, B], 0, ())
    save_users(known, tmp_path / "users.json")
    loaded = load_users(tmp_path / "users.json", Pool(1000, 2), 50)
    assert loaded.present() == {}
    loaded.update([B, C], 51, ())
    assert (loaded.present(), loaded.without) == ({B: 1001}, {C})
    assert (tmp_path / "users.json").stat().st_mode & 0o777 == 0o600
    assert load_users(tmp_path / "missing", Pool(), 0).by_name == {}


@pytest.mark.parametrize(
    "found",
    [
        {A: 1000, B: 1000},
        {A: 5},
        {A: "1000"},
        {A: True},
        {"root": 1000},
        {"shop_deploy.a.1_app:x:0:0": 1000},
        [],
        "",
    ],
    ids=str,
)
def test_a_foreign_map_stops_the_agent(tmp_path: Path, found: object) -> None:
    (tmp_path / "users.json").write_text(json.dumps({"users": found}))
    with pytest.raises(InvalidState, match="remove it"):
        load_users(tmp_path / "users.json", Pool(1000, 2), 0)
    (tmp_path / "users.json").write_text("{")
    with pytest.raises(InvalidState, match="remove it"):
        load_users(tmp_path / "users.json", Pool(1000, 2), 0)


def test_the_database_is_sshds(tmp_path: Path) -> None:
    path = tmp_path / "passwd"
    write_database({LONGEST: 1001, A: 1000}, 64000, path)
    lines = path.read_text().splitlines()
    assert lines == [f"{LONGEST}:*:1001:64000::/:{SHELL}", f"{A}:*:1000:64000::/:{SHELL}"]
    assert path.stat().st_mode & 0o777 == 0o644
    require_own_database(path, Pool(1000, 2))
    assert [one.name for one in tmp_path.iterdir()] == ["passwd"]


@pytest.mark.parametrize("content", ["alice:x:1500:1500::/home/alice:/bin/sh\n", "nonsense\n", "a:b:c\n"])
def test_others_users_are_not_replaced(tmp_path: Path, content: str) -> None:
    path = tmp_path / "passwd"
    path.write_text(content)
    with pytest.raises(InvalidState, match="/etc/passwd"):
        require_own_database(path, Pool(1000, 2))
    require_own_database(tmp_path / "missing", Pool(1000, 2))


@pytest.mark.parametrize("uids", ["1001 0 0 0", "0 1001 0 0", "0 0 1001 0", "0 0 0 1001"])
def test_each_kind_of_uid_of_a_process_counts(tmp_path: Path, uids: str) -> None:
    node = MadeNode(tmp_path)
    node.add_process("17", own=set(), uids=uids)
    node.add_process("18", own=set(), uids="5 5 5 5")
    (node.proc / "sys").mkdir()
    assert used_uids(Pool(1000, 2), node.proc) == {1001}
