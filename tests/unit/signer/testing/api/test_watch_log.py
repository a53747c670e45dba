"""The window of past changes and who is told what."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from signer.testing.api.selectors import Selector, parse_label_selector
from signer.testing.api.status import APIError
from signer.testing.api.store import Store
from signer.testing.api.watch_log import Stored, View


def _encode(stored: Stored) -> bytes:
    return msgspec.json.encode(stored.value)


def _view(labels: str = "", namespace: str = "") -> View:
    return View(namespace, Selector(labels=parse_label_selector(labels)), lambda value: {}, ("v1", 1), _encode)


def _object(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "uid": name, "labels": labels}}


def _events(chunk: bytes) -> list[tuple[str, str]]:
    decoded = [msgspec.json.decode(line) for line in chunk.splitlines()]
    return [(event["type"], event["object"]["metadata"]["resourceVersion"]) for event in decoded]


def test_watcher_sees_what_matches_its_selector() -> None:
    store = Store(window=10)
    collection = store.collection("", "things")
    watcher = collection.log.open(_view("shown=yes"), limit=10)
    elsewhere = collection.log.open(_view(namespace="other"), limit=10)
    for labels in ({}, {"shown": "yes"}, {"shown": "yes", "a": "b"}):
        store.write(collection, _object("x", **labels))
    store.remove(collection, store.write(collection, _object("x", shown="no")))
    assert _events(watcher.take()) == [("ADDED", "3"), ("MODIFIED", "4"), ("DELETED", "5")]
    assert elsewhere.take() == b""


def test_changes_that_were_pushed_out_are_forgotten() -> None:
    store = Store(window=2)
    collection = store.collection("", "things")
    for name in "abc":
        store.write(collection, _object(name))
    assert [change.revision for change in collection.log.since(2)] == [3, 4]
    with pytest.raises(APIError) as caught:
        collection.log.since(1)
    assert (caught.value.code, caught.value.reason) == (410, "Expired")


def test_compaction_forgets_all_collections_even_later_ones() -> None:
    store = Store(window=10)
    collection = store.collection("", "things")
    store.write(collection, _object("a"))
    store.compact()
    for found in (collection, store.collection("", "later")):
        assert found.log.since(store.revision) == []
        with pytest.raises(APIError):
            found.log.since(1)


def test_state_at_an_older_revision() -> None:
    store = Store(window=10)
    collection = store.collection("", "things")
    first = store.write(collection, _object("a"))
    store.write(collection, _object("b"))
    store.remove(collection, store.write(collection, _object("a", changed="yes")))
    assert list(collection.objects) == [("n", "b")]
    assert collection.at(first.revision) == {("n", "a"): first}


def test_slow_watcher_overflows() -> None:
    store = Store(window=10)
    collection = store.collection("", "things")
    watcher = collection.log.open(_view(), limit=2)
    for name in "abcd":
        store.write(collection, _object(name))
    assert watcher.overflowed
    assert len(watcher.take().splitlines()) == 3
