"""Lists in pages and watches: reading many objects."""

from __future__ import annotations

import asyncio
import base64
import binascii
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from .bodies import is_true, read_number, read_selector
from .resource_types import Served
from .selectors import Selector
from .status import APIError, Target, bad_request, expired, forbidden_field, invalid, unsupported, version_too_large
from .store import Collection, Store
from .watch_log import Key, Stored, View, Watcher, event_line

_CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. "
    "You can start a new list without the continue parameter."
)
_MATCH = "resourceVersionMatch"
_MATCHES = ("Exact", "NotOlderThan", "")
_LIST_OPTIONS = Target("meta.k8s.io", "", "ListOptions")
_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list."""

    objects: list[Stored]
    metadata: dict[str, Any]


def _token(revision: int, key: Key) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode({"rv": revision, "start": key})).decode().rstrip("=")


def _read_token(text: str) -> tuple[int, Key]:
    try:
        value = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        namespace, name = value["start"]
        return int(value["rv"]), (str(namespace), str(name))
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise bad_request("continue key is not valid") from error


def _check_version_match(query: Mapping[str, str], *, watch: bool) -> None:
    """Raises APIError 400 or 422 where ``resourceVersionMatch`` and its neighbours do not go together."""
    match, version = query.get(_MATCH, ""), query.get("resourceVersion", "")
    if match not in _MATCHES:
        raise invalid(_LIST_OPTIONS, [unsupported(_MATCH, match, _MATCHES)])
    if match:
        reason = ""
        if watch:
            reason = "" if is_true(query, "sendInitialEvents") else "is forbidden for watch"
        elif not version:
            reason = "is forbidden unless resourceVersion is provided"
        elif query.get("continue"):
            reason = "is forbidden when continue is provided"
        elif match == "Exact" and version == "0":
            reason = '"Exact" is forbidden for resourceVersion "0"'
        if reason:
            raise invalid(_LIST_OPTIONS, [forbidden_field(_MATCH, f"{_MATCH} {reason}")])
    if not watch and query.get("continue") and version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")


def list_page(store: Store, served: Served, namespace: str, query: Mapping[str, str]) -> Page:
    """One page of a consistent list. Raises APIError 400, 410, 422 or 504."""
    _check_version_match(query, watch=False)
    collection = store.collection(*served.type.identity)
    selector = read_selector(query, served.type.strategy)
    limit, wanted = read_number(query, "limit"), read_number(query, "resourceVersion")
    if wanted > store.revision:
        raise version_too_large(wanted, store.revision)
    revision, objects, start = store.revision, collection.objects, None
    if token := query.get("continue"):
        revision, start = _read_token(token)
        try:
            objects = collection.at(revision)
        except APIError as error:
            raise expired(_CONTINUE_EXPIRED) from error
    elif wanted and query.get("resourceVersionMatch") == "Exact":
        revision, objects = wanted, collection.at(wanted)
    keys = collection.order() if objects is collection.objects else sorted(objects)
    matching = _matching(served, objects, keys, namespace, selector, start)
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    if limit and len(matching) > limit:
        metadata["continue"] = _token(revision, matching[limit - 1].key)
        if selector.empty:
            metadata["remainingItemCount"] = len(matching) - limit
        matching = matching[:limit]
    return Page(matching, metadata)


def _matching(
    served: Served,
    objects: Mapping[Key, Stored],
    keys: list[Key],
    namespace: str,
    selector: Selector,
    start: Key | None,
) -> list[Stored]:
    fields = served.type.strategy.fields
    return [
        objects[key]
        for key in keys
        if (not namespace or key[0] == namespace)
        and (start is None or key > start)
        and (selector.empty or selector.matches(objects[key].value, fields))
    ]


def list_body(served: Served, page: Page) -> bytes:
    """The list as JSON, from the encoded objects."""
    head = {"kind": served.type.list_kind, "apiVersion": served.api_version, "metadata": page.metadata}
    items = b",".join([served.list_item(stored) for stored in page.objects])
    return msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}"


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """The options of one watch."""

    selector: Selector
    revision: int
    """The start version; 0 means to send the current state as ADDED events first."""
    bookmarks: bool
    announce_initial: bool
    """``sendInitialEvents``: a marked bookmark follows the present state."""
    timeout_seconds: float

    @classmethod
    def read(cls, query: Mapping[str, str], served: Served) -> WatchOptions:
        """Raises APIError 400 or 422."""
        _check_version_match(query, watch=True)
        revision = read_number(query, "resourceVersion")
        report = is_true(query, "sendInitialEvents")
        # Like the real server, a watch without a limit of its own ends after 30 to 60 minutes.
        timeout = read_number(query, "timeoutSeconds") or random.uniform(1800, 3600)  # noqa: S311
        return cls(
            read_selector(query, served.type.strategy),
            0 if report else revision,
            is_true(query, "allowWatchBookmarks"),
            report,
            timeout,
        )


def _bookmark(served: Served, revision: int, annotations: dict[str, str] | None = None) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
    if annotations:
        metadata["annotations"] = annotations
    body = {"kind": served.type.kind, "apiVersion": served.api_version, "metadata": metadata}
    return event_line("BOOKMARK", msgspec.json.encode(body))


async def watch_lines(
    store: Store,
    served: Served,
    namespace: str,
    options: WatchOptions,
    *,
    bookmark_seconds: float,
    limit: int,
    late_seconds: float,
) -> AsyncGenerator[bytes, None]:
    """Chunks of watch events until the watch ends; a compacted start version gives one ERROR event."""
    collection = store.collection(*served.type.identity)
    view = View(namespace, options.selector, served.type.strategy.fields, served.view, served.encode)
    watcher = collection.log.open(view, limit)
    try:
        try:
            first = _first_lines(store, collection, served, options, view)
        except APIError as error:
            yield event_line("ERROR", msgspec.json.encode(error.status()))
            return
        await _be_late(late_seconds)
        yield first
        async for chunk in _follow(store, served, options, watcher, bookmark_seconds):
            await _be_late(late_seconds)
            yield chunk
    finally:
        collection.log.close(watcher)


async def _be_late(seconds: float) -> None:
    """By little mostly, as under load: every other time by an eighth of ``seconds`` or less."""
    if seconds:
        await asyncio.sleep(seconds * random.random() ** 3)  # noqa: S311


def _first_lines(store: Store, collection: Collection, served: Served, options: WatchOptions, view: View) -> bytes:
    if options.revision:
        lines = (view.line(change) for change in collection.log.since(options.revision))
        return b"".join(line for line in lines if line is not None)
    present = [collection.objects[key] for key in collection.order()]
    first = b"".join(event_line("ADDED", served.encode(stored)) for stored in present if view.sees(stored))
    if options.announce_initial and options.bookmarks:
        first += _bookmark(served, store.revision, _INITIAL_EVENTS_END)
    return first


async def _follow(
    store: Store, served: Served, options: WatchOptions, watcher: Watcher, bookmark_seconds: float
) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    end = loop.time() + options.timeout_seconds
    next_bookmark = loop.time() + bookmark_seconds
    while not watcher.stopped:
        if watcher.pending:
            yield watcher.take()
            if watcher.overflowed:
                return
            continue
        watcher.wake.clear()
        until = min(end, next_bookmark) if options.bookmarks else end
        try:
            async with asyncio.timeout_at(until):
                await watcher.wake.wait()
        except TimeoutError:
            if watcher.pending:
                continue
            if options.bookmarks:
                yield _bookmark(served, store.revision)
            next_bookmark = loop.time() + bookmark_seconds
            if loop.time() >= end:
                return
