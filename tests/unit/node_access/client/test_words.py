"""Names, addresses, durations, and text that a terminal must not obey."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_access.client.errors import WrongUse
from node_access.client.words import (
    ContainerDestination,
    destination,
    destination_of,
    duration,
    duration_text,
    forward,
    label,
    login_name,
    network,
    node_name,
    object_name,
    printable,
    time,
    time_text,
)

KNOWN = [("worker-1", "production"), ("db.corp", "staging.blue")]


@given(st.text())
def test_a_terminal_obeys_nothing(text: str) -> None:
    assert all(unicodedata.category(one)[0] != "C" and one not in "\u2028\u2029" for one in printable(text))


@pytest.mark.parametrize("text", ["\x1b]0;title\x07", "\x9b2J", "a\nb", "a\rb", "\u202eevil", "\x7f", "\ud800"])
def test_escapes_are_shown(text: str) -> None:
    assert printable(text).isprintable()
    assert "\\" in printable(text)


def test_long_text_is_cut() -> None:
    assert printable("x" * 2000) == "x" * 1023 + "…"


@pytest.mark.parametrize("text", ["-oProxyCommand=x", "A", "a b", "", "a;b", "../a", "a\n", "a%h", "é", "10.0.0.1"])
def test_what_is_no_node(text: str) -> None:
    with pytest.raises(WrongUse):
        node_name(text)


@pytest.mark.parametrize("text", ["-l", "", "A", "a/b", "a" * 254, "a\n"])
def test_what_is_no_object(text: str) -> None:
    with pytest.raises(WrongUse):
        object_name(text, "a name")
    with pytest.raises(WrongUse):
        label(text, "a name")


@pytest.mark.parametrize("text", ["-root", "root@x", "", "Root", "root,admin", "a b"])
def test_what_is_no_login(text: str) -> None:
    with pytest.raises(WrongUse):
        login_name(text)


def test_addresses_become_networks() -> None:
    assert str(network("198.51.100.7")) == "198.51.100.7/32"
    assert str(network("2001:db8::/48")) == "2001:db8::/48"


@pytest.mark.parametrize(
    "text",
    ["198.51.100.7/24", "::", "224.0.0.1", "::ffff:198.51.100.7", "fe80::1%eth0", "host", "1.2.3.4/33"],
)
def test_what_is_no_network_of_a_client(text: str) -> None:
    with pytest.raises(WrongUse):
        network(text)


def test_durations() -> None:
    assert duration("1h30m5s") == timedelta(hours=1, minutes=30, seconds=5)
    assert [duration_text(duration(one)) for one in ("8h", "90m", "5m1s", "7s")] == ["8h", "1h30m", "5m", "7s"]
    for text in ("", "0h", "1d", "-1h", "1h ", "1.5h"):
        with pytest.raises(WrongUse):
            duration(text)


def test_times() -> None:
    moment = datetime(2026, 11, 27, 14, 0, tzinfo=UTC)
    assert time(time_text(moment)) == time("2026-11-27T14:00:00.5Z") == moment
    for text in ("2026-11-27", "2026-11-27T14:00:00+00:00", "2026-13-27T14:00:00Z"):
        with pytest.raises(ValueError, match="time"):
            time(text)


@pytest.mark.parametrize(
    "text", ["8080:localhost:80", "127.0.0.1:8080:10.0.0.1:80", "[::1]:80:[2001:db8::1]:443", "*:1:a:2"]
)
def test_forwards(text: str) -> None:
    assert forward(text) == text


@pytest.mark.parametrize("text", ["8080", "-R1:a:2", "1:-a:2", "1:a b:2", "/tmp/x:/tmp/y", "1:a:2:3:4:5", ""])
def test_what_is_no_forward(text: str) -> None:
    with pytest.raises(WrongUse):
        forward(text)


@pytest.mark.parametrize(
    ("text", "cluster", "found"),
    [
        ("worker-2.production", "", "worker-2.production"),
        ("ip-1.ec2.internal.production", "", "ip-1.ec2.internal.production"),
        ("worker-1", "", "worker-1.production"),
        ("db.corp", "", "db.corp.staging.blue"),
        ("db.corp.staging.blue", "", "db.corp.staging.blue"),
        ("ip-1.ec2.internal", "production", "ip-1.ec2.internal.production"),
        ("worker-1.production", "production", "worker-1.production"),
    ],
)
def test_destinations(text: str, cluster: str, found: str) -> None:
    assert str(destination(text, cluster, KNOWN)) == found


def test_a_name_of_two_clusters_is_asked_for() -> None:
    both = [*KNOWN, ("worker-1", "other"), ("db.corp", "other")]
    for text in ("worker-1", "worker-9", "db.corp"):
        with pytest.raises(WrongUse, match=r"NODE\.CLUSTER"):
            destination(text, "", both)


RUNNING = [
    ("web_shop-0_app", "production"),
    ("web_deploy.shop_app", "staging"),
    ("web_two-0_app", "a"),
    ("web_two-0_app", "b"),
]


@pytest.mark.parametrize(
    ("text", "cluster", "container", "user", "of"),
    [
        ("web_shop-0_app.production", "", "web_shop-0_app", "web_shop-0_app", "production"),
        ("web_shop-0_app", "production", "web_shop-0_app", "web_shop-0_app", "production"),
        ("web_shop-0_app.a.b", "a.b", "web_shop-0_app", "web_shop-0_app", "a.b"),
        ("web_shop-0_app", "", "web_shop-0_app", "web_shop-0_app", "production"),
        ("web_deploy.shop_app", "", "web_deploy.shop_app", "web_deploy.shop_app", "staging"),
        ("web_deploy.shop.2_app", "", "web_deploy.shop_app", "web_deploy.shop.2_app", "staging"),
        ("web_sts.db.0_app", "c", "web_sts.db_app", "web_sts.db.0_app", "c"),
        ("web_ds.db_app.c", "", "web_ds.db_app", "web_ds.db_app", "c"),
        ("web_job.db_app.c", "", "web_job.db_app", "web_job.db_app", "c"),
        ("web_a.b-0_app.c", "", "web_a.b-0_app", "web_a.b-0_app", "c"),
    ],
)
def test_containers(text: str, cluster: str, container: str, user: str, of: str) -> None:
    found = destination_of(text, cluster, RUNNING)
    assert isinstance(found, ContainerDestination)
    assert (str(found.container), found.user, found.cluster) == (container, user, of)
    assert str(found) == f"{container}.{of}"


@pytest.mark.parametrize(
    ("text", "cluster", "why"),
    [
        ("web_shop-0", "c", "name the container, too"),
        ("web_shop-0_app_x", "c", "name the container, too"),
        ("web_shop-0_app", "other/x", "the name of a Cluster"),
        ("web_shop-0_app.c\n", "", "the name of a Cluster"),
        ("web_shop-9_app", "", "which Cluster"),
        ("web_two-0_app", "", "which Cluster"),
        ("-oProxyCommand=x_shop-0_app", "c", "the namespace has not the form of one"),
        ("web_$(id)_app", "c", "the pod has not the form of one"),
        ("web_shop-0_App", "c", "the container has not the form of one"),
    ],
)
def test_what_names_no_container(text: str, cluster: str, why: str) -> None:
    with pytest.raises(WrongUse, match=why):
        destination_of(text, cluster, RUNNING)
