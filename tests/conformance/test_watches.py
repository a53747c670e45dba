"""Watches: which events come, from where, and how a stream ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import Clients, refused
from tests.support.raw_client import Answer, RawClient, Watch
from tests.support.signing_requests import COLLECTION, condition, signing_request, with_conditions

_NOT_A_VERSION = {400, 422, 500}
"""1.20 calls a resourceVersion that is no number its own fault (500), later versions the client's."""


@pytest.fixture
def config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def _config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


def _version(admin: RawClient, path: str) -> str:
    return str(admin.get(path).expect(200)["metadata"]["resourceVersion"])


def test_life_of_an_object(admin: RawClient, config_maps: str, name: str) -> None:
    path = f"{config_maps}/{name}"
    with admin.watch(config_maps, resourceVersion=_version(admin, config_maps), labelSelector=f"run={name}") as watch:
        created = admin.post(config_maps, _config_map(name, run=name)).expect(201)
        changed = admin.patch(path, {"data": {"a": "b"}}).expect(200)
        admin.delete(path).expect(200)
        added, modified, deleted = watch.take(3)
    assert (added.type, added.object) == ("ADDED", created)
    assert (modified.type, modified.object) == ("MODIFIED", changed)
    assert (deleted.type, deleted.object["data"]) == ("DELETED", {"a": "b"})
    assert deleted.object["metadata"]["uid"] == created["metadata"]["uid"]
    # The version of a DELETED event is that of the deletion, so that a watch can go on behind it.
    assert int(deleted.object["metadata"]["resourceVersion"]) > int(changed["metadata"]["resourceVersion"])


def test_watch_starts_behind_its_version(admin: RawClient, config_maps: str, name: str) -> None:
    first = admin.post(config_maps, _config_map(f"{name}-1", run=name)).expect(201)
    admin.post(config_maps, _config_map(f"{name}-2", run=name)).expect(201)
    version = first["metadata"]["resourceVersion"]
    with admin.watch(config_maps, resourceVersion=version, labelSelector=f"run={name}") as watch:
        (event,) = watch.take(1)
    assert (event.type, event.name) == ("ADDED", f"{name}-2")


@pytest.mark.parametrize("version", ["", "0"])
def test_watch_without_a_version_begins_with_what_is_there(
    admin: RawClient, config_maps: str, name: str, version: str
) -> None:
    admin.post(config_maps, _config_map(f"{name}-1", run=name)).expect(201)
    query = {"resourceVersion": version} if version else {}
    with admin.watch(config_maps, labelSelector=f"run={name}", **query) as watch:
        (present,) = watch.take(1)
        admin.post(config_maps, _config_map(f"{name}-2", run=name)).expect(201)
        (later,) = watch.take(1)
    assert [(event.type, event.name) for event in (present, later)] == [("ADDED", f"{name}-1"), ("ADDED", f"{name}-2")]


def test_label_selector_turns_changes_into_comings_and_goings(admin: RawClient, config_maps: str, name: str) -> None:
    path = f"{config_maps}/{name}"
    version = _version(admin, config_maps)
    with admin.watch(config_maps, resourceVersion=version, labelSelector=f"run={name},shown=yes") as watch:
        admin.post(config_maps, _config_map(name, run=name)).expect(201)
        shown = admin.patch(path, {"metadata": {"labels": {"shown": "yes"}}}).expect(200)
        hidden = admin.patch(path, {"metadata": {"labels": {"shown": "no"}}}).expect(200)
        admin.patch(path, {"data": {"a": "b"}}).expect(200)
        again = admin.patch(path, {"metadata": {"labels": {"shown": "yes"}}}).expect(200)
        events = watch.take(3)
    assert [event.type for event in events] == ["ADDED", "DELETED", "ADDED"]
    assert events[0].object == shown
    assert events[2].object == again
    # The object of such a DELETED event is the old one at the version of the change.
    assert events[1].object["metadata"]["resourceVersion"] == hidden["metadata"]["resourceVersion"]
    assert events[1].object["metadata"]["labels"]["shown"] == "yes"


def test_field_selector_of_the_name(admin: RawClient, config_maps: str, name: str) -> None:
    version = _version(admin, config_maps)
    with admin.watch(config_maps, resourceVersion=version, fieldSelector=f"metadata.name={name}") as watch:
        admin.post(config_maps, _config_map(f"{name}-other")).expect(201)
        admin.post(config_maps, _config_map(name)).expect(201)
        (event,) = watch.take(1)
    assert event.name == name


def test_signing_requests_of_one_signer(admin: RawClient, name: str) -> None:
    signer = f"conformance.example.com/{name}"
    version = _version(admin, COLLECTION)
    with admin.watch(COLLECTION, resourceVersion=version, fieldSelector=f"spec.signerName={signer}") as watch:
        admin.post(COLLECTION, signing_request(f"{name}-other")).expect(201)
        created = admin.post(COLLECTION, signing_request(name, signer=signer)).expect(201)
        decided = with_conditions(created, condition("Approved"))
        approved = admin.put(f"{COLLECTION}/{name}/approval", decided).expect(200)
        added, modified = watch.take(2)
    assert (added.type, added.object) == ("ADDED", created)
    assert (modified.type, modified.object) == ("MODIFIED", approved)


def test_watch_of_all_namespaces(admin: RawClient, config_maps: str, name: str) -> None:
    version = _version(admin, config_maps)
    with admin.watch("/api/v1/configmaps", resourceVersion=version, labelSelector=f"run={name}") as watch:
        admin.post(config_maps, _config_map(name, run=name)).expect(201)
        admin.post("/api/v1/namespaces/default/configmaps", _config_map(name, run=name)).expect(201)
        events = watch.take(2)
    assert [event.object["metadata"]["namespace"] for event in events] == ["conformance", "default"]


def test_finalized_deletion_is_a_change_and_then_a_deletion(admin: RawClient, config_maps: str, name: str) -> None:
    body = _config_map(name, run=name)
    body["metadata"]["finalizers"] = ["example.com/hold"]
    with admin.watch(config_maps, resourceVersion=_version(admin, config_maps), labelSelector=f"run={name}") as watch:
        admin.post(config_maps, body).expect(201)
        admin.delete(f"{config_maps}/{name}").expect(200)
        admin.patch(f"{config_maps}/{name}", {"metadata": {"finalizers": None}}).expect(200)
        events = watch.take(3)
    assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert events[1].object["metadata"]["deletionTimestamp"]


@pytest.mark.slow
def test_stream_ends_cleanly_at_its_timeout(admin: RawClient, config_maps: str, name: str) -> None:
    version = _version(admin, config_maps)
    query = {"resourceVersion": version, "labelSelector": f"run={name}", "timeoutSeconds": "1"}
    with admin.watch(config_maps, **query) as watch:
        admin.post(config_maps, _config_map(name, run=name)).expect(201)
        events = watch.rest()
    assert [event.type for event in events] == ["ADDED"]


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["true", "false"])
def test_bookmarks_carry_a_version_only_and_come_only_when_asked(
    admin: RawClient, config_maps: str, name: str, asked: str
) -> None:
    version = _version(admin, config_maps)
    query = {"resourceVersion": version, "labelSelector": f"run={name}", "timeoutSeconds": "3"}
    with admin.watch(config_maps, **query, allowWatchBookmarks=asked) as watch:
        created = admin.post(config_maps, _config_map(name)).expect(201)
        bookmarks = watch.rest()
    # A server need not send any within a time; kube-apiserver sends one shortly before the timeout.
    assert {event.type for event in bookmarks} <= ({"BOOKMARK"} if asked == "true" else set())
    for event in bookmarks:
        assert event.object["kind"] == "ConfigMap"
        assert "data" not in event.object
        assert {key for key, value in event.object["metadata"].items() if value} == {"resourceVersion"}
    if bookmarks:
        assert int(bookmarks[-1].object["metadata"]["resourceVersion"]) >= int(created["metadata"]["resourceVersion"])


@pytest.mark.slow
def test_version_of_the_future_waits_or_is_refused(admin: RawClient, config_maps: str) -> None:
    future = str(int(_version(admin, config_maps)) + 1_000_000)
    opened = admin.try_watch(config_maps, resourceVersion=future, timeoutSeconds="1")
    if isinstance(opened, Answer):
        refused(opened, 504, "Timeout")
        return
    with opened as watch:
        events = watch.rest()
    assert {event.type for event in events} <= {"ERROR"}


def test_version_that_is_no_number_is_refused(admin: RawClient, config_maps: str) -> None:
    opened = admin.try_watch(config_maps, resourceVersion="new", timeoutSeconds="1")
    if isinstance(opened, Watch):
        with opened as watch:
            (event,) = watch.rest()
        assert (event.type, event.object["kind"]) == ("ERROR", "Status")
        assert event.object["code"] in _NOT_A_VERSION
    else:
        assert opened.status in _NOT_A_VERSION


def test_watch_needs_the_verb(clients: Clients, config_maps: str) -> None:
    opened = clients.user("nobody").try_watch(config_maps)
    assert isinstance(opened, Answer)
    refused(opened, 403, "Forbidden")


def test_deletion_of_one_object_is_seen(admin: RawClient, config_maps: str, name: str) -> None:
    created = admin.post(config_maps, _config_map(name)).expect(201)
    version = created["metadata"]["resourceVersion"]
    query = {"resourceVersion": version, "fieldSelector": f"metadata.name={name}", "timeoutSeconds": "5"}
    with admin.watch(config_maps, **query) as watch:
        admin.delete(f"{config_maps}/{name}").expect(200)
        (event,) = watch.take(1)
    assert (event.type, event.name) == ("DELETED", name)


def test_an_object_is_watched_in_its_collection(admin: RawClient, config_maps: str, name: str) -> None:
    """At its own path it is got, whatever the query says, and that needs no other verb."""
    created = admin.post(config_maps, _config_map(name)).expect(201)
    assert admin.get(f"{config_maps}/{name}", watch="1").expect(200) == created
    refused(admin.get(f"{config_maps}/{name}-absent", watch="1"), 404, "NotFound")


def test_a_watch_matches_no_version(admin: RawClient, config_maps: str) -> None:
    query = {"resourceVersionMatch": "NotOlderThan", "resourceVersion": _version(admin, config_maps)}
    refused(admin.get(config_maps, watch="1", **query), 422, "Invalid")
