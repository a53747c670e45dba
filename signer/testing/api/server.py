"""HTTP: one handler that authenticates, authorizes and dispatches every request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from . import bodies, discovery, tables
from .authentication import Authenticator
from .authorization import Authorization, describe
from .bodies import is_true
from .faults import Fault, Faults, LoggedRequest, Request, RequestLog
from .identity import AUTHENTICATED, User
from .operations import DeleteOptions, Operations, WriteOptions
from .reading import WatchOptions, list_body, list_page, watch_lines
from .resource_types import Served
from .reviews import KINDS, review
from .routes import Route, parse
from .status import (
    APIError,
    Target,
    forbidden,
    method_not_allowed,
    no_such_resource,
    success,
    too_large,
)
from .strategy import Attributes
from .watch_log import Stored
from .webhooks import Attempt, ServiceAddresses, Webhooks

_LOG = logging.getLogger(__name__)
_HEALTH = ("/healthz", "/livez", "/readyz")
_JSON = "application/json"
_OPERATIONS = {"POST": "CREATE", "PUT": "UPDATE", "PATCH": "UPDATE"}
_encode = msgspec.json.Encoder().encode
Hook = Callable[[str, str, User], None]
"""Called on each authenticated request with method, path and user, in the server's thread."""


@dataclass(slots=True)
class Settings:
    """Settings that a test may change while the server runs."""

    bookmark_seconds: float = 60.0
    late_events_seconds: float = 0.0
    watch_backlog: int = 10_000
    """Events that may wait for a slow watcher before its stream is closed."""
    hook: Hook | None = None
    services: ServiceAddresses = field(default_factory=dict)
    """Where the Services listen that admission webhooks name."""


def json_response(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type=_JSON)


def error_response(error: APIError) -> web.Response:
    response = json_response(_encode(error.status()), error.code)
    if error.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    return response


class Handler:
    """The API as a handler for ``aiohttp.web.Server``."""

    def __init__(
        self,
        operations: Operations,
        authenticator: Authenticator,
        authorization: Authorization,
        faults: Faults,
        requests: RequestLog,
        settings: Settings,
    ) -> None:
        self._operations = operations
        self._webhooks = Webhooks(operations, settings.services)
        self._authenticator = authenticator
        self._authorization = authorization
        self._faults = faults
        self._requests = requests
        self._settings = settings

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        user_name, fault = "", None
        try:
            user = self._authenticate(request)
            user_name = user.name
            if self._settings.hook is not None:
                self._settings.hook(request.method, request.path, user)
            fault = self._faults.take(Request(request.method, request.path, request.query_string, user))
            if fault is not None and (dropped := await self._before(fault, request, user_name)) is not None:
                return dropped
            not_served = fault is not None and fault.not_served
            response = _page_not_found() if not_served else await self._dispatch(request, user)
        except APIError as error:
            response = error_response(error)
        except web.HTTPRequestEntityTooLarge:
            response = error_response(too_large(bodies.MAXIMUM_BODY_BYTES))
        except Exception:  # noqa: BLE001 - the one place that answers 500: a bug here must not hang a client
            _LOG.exception("embedded API: %s %s failed", request.method, request.path)
            response = error_response(APIError(500, "InternalError", "Internal error occurred", {}))
        if fault is not None and fault.drop == "after":
            return self._drop(request, user_name)
        if not response.prepared:
            self._log(request, user_name, response.status)
        return response

    def _log(self, request: web.BaseRequest, user: str, status: int) -> None:
        self._requests.append(LoggedRequest(request.method, request.path, request.query_string, user, status))

    async def _before(self, fault: Fault, request: web.BaseRequest, user: str) -> web.StreamResponse | None:
        if fault.delay_seconds:
            await asyncio.sleep(fault.delay_seconds)
        if fault.drop == "before":
            return self._drop(request, user)
        if fault.status is not None:
            raise fault.error()
        return None

    def _drop(self, request: web.BaseRequest, user: str) -> web.StreamResponse:
        self._log(request, user, 0)
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=503)

    def _authenticate(self, request: web.BaseRequest) -> User:
        transport = request.transport
        tls = transport.get_extra_info("ssl_object") if transport is not None else None
        certificate = tls.getpeercert(True) if tls is not None else None
        headers = request.headers
        user = self._authenticator.authenticate(certificate, headers.get("Authorization"))
        for name in headers:
            if name.lower().startswith("impersonate-"):
                return self._impersonate(request, user)
        return user

    def _impersonate(self, request: web.BaseRequest, user: User) -> User:
        headers = request.headers
        name, groups = headers.get("Impersonate-User", ""), headers.getall("Impersonate-Group", [])
        if not name:
            raise APIError(500, "InternalError", "requested impersonation without impersonating a user", {})
        asked = [Attributes("impersonate", "", "users", name=name)]
        service_account = name.split(":")
        if name.startswith("system:serviceaccount:") and len(service_account) == 4:
            _, _, namespace, account = service_account
            asked = [Attributes("impersonate", "", "serviceaccounts", name=account, namespace=namespace)]
        asked += [Attributes("impersonate", "", "groups", name=group) for group in groups]
        extra: dict[str, tuple[str, ...]] = {}
        for header in {header.lower() for header in headers if header.lower().startswith("impersonate-extra-")}:
            key, values = header.removeprefix("impersonate-extra-"), tuple(headers.getall(header))
            extra[key] = values
            group = "authentication.k8s.io"
            asked += [Attributes("impersonate", group, "userextras", key, value) for value in values]
        for attributes in asked:
            if not self._authorization.authorize(user, attributes).allowed:
                target = Target(attributes.group, attributes.resource, "", attributes.name)
                raise forbidden(target, describe(user, attributes))
        complete = tuple(groups) if AUTHENTICATED in groups else (*groups, AUTHENTICATED)
        return User(name, complete, headers.get("Impersonate-Uid", ""), extra)

    def _authorize(self, route: Route, user: User, selected_name: str) -> None:
        attributes = route.attributes(selected_name=selected_name)
        answer = self._authorization.authorize(user, attributes)
        if answer.allowed:
            return
        text = describe(user, attributes) + (f": {answer.reason}" if answer.reason else "")
        if not route.resource:
            raise APIError(403, "Forbidden", f"forbidden: {text}", {})
        raise forbidden(Target(route.group, route.resource, "", attributes.name), text)

    async def _dispatch(self, request: web.BaseRequest, user: User) -> web.StreamResponse:
        query: Mapping[str, str] = request.query if request.query_string else {}
        route = parse(request.method, request.path, watch=is_true(query, "watch"))
        served = self._operations.catalogue.served(route.group, route.version, route.resource)
        selected = ""
        if "fieldSelector" in query and served is not None:
            selected = bodies.read_selector(query, served.type.strategy).single_name()
        self._authorize(route, user, selected)
        if not route.resource:
            return self._plain(request)
        if served is None:
            return await self._review(request, route, user)
        if (route.group, route.resource, route.subresource, request.method) == ("", "serviceaccounts", "token", "POST"):
            content_type = bodies.media_type(request.headers.get("Content-Type"))
            asked = bodies.read_object(await request.read(), content_type)
            tokens = self._authenticator.service_account_tokens
            return json_response(_encode(tokens.issue(route.namespace, route.name, asked)), 201)
        self._check_shape(route, served)
        bodies.check_accept(request.headers.get("Accept", ""))
        method = request.method
        if method in ("GET", "HEAD"):
            if route.verb == "get":
                return self._get(request, route, served)
            if route.verb == "watch":
                return await self._watch(request, route, served, query, user)
            return self._list(request, route, served, query)
        body = await request.read()
        content_type = bodies.media_type(request.headers.get("Content-Type"))
        if method == "DELETE":
            return await self._delete(request, route, served, body, content_type, query, user)
        options = bodies.read_write_options(query)
        namespace = _namespace(route, served)
        attempt = Attempt(
            served, _OPERATIONS[method], route.subresource, namespace, route.name, user, dry_run=options.dry_run
        )
        if self._webhooks.concern(attempt):
            stored, created = await self._judged(
                attempt, body, content_type, query, options, is_patch=method == "PATCH"
            )
        elif method == "POST":
            value = bodies.read_object(body, content_type)
            stored, created = self._operations.create(served, route.namespace, value, user, options), True
        elif method == "PUT":
            value = bodies.read_object(body, content_type)
            stored, created = self._operations.replace(
                served, namespace, route.name, route.subresource, value, user, options
            )
        else:
            patch = bodies.read_patch(body, content_type, query)
            stored, created = self._operations.patch(
                served, namespace, route.name, route.subresource, content_type, patch, user, options
            )
        return self._answer(request, served, stored, 201 if created else 200)

    async def _judged(
        self,
        attempt: Attempt,
        body: bytes,
        content_type: str,
        query: Mapping[str, str],
        options: WriteOptions,
        *,
        is_patch: bool,
    ) -> tuple[Stored, bool]:
        """A write that admission webhooks judge."""
        served, namespace, name = attempt.served, attempt.namespace, attempt.name
        if attempt.operation == "CREATE":
            return await self._webhooks.create(attempt, bodies.read_object(body, content_type), options), True

        def make(old: Stored | None) -> dict[str, Any]:
            if is_patch:
                patch = bodies.read_patch(body, content_type, query)
                return self._operations.patched(
                    served, namespace, name, attempt.subresource, content_type, patch, old, options
                )
            value = bodies.read_object(body, content_type)
            self._operations.decode_replacement(served, namespace, name, attempt.subresource, value, old, options)
            return value

        return await self._webhooks.change(attempt, make, options)

    def _answer(self, request: web.BaseRequest, served: Served, stored: Stored, status: int) -> web.Response:
        if tables.wants_table(request.headers.get("Accept", "")):
            metadata = {"resourceVersion": stored.value["metadata"].get("resourceVersion", "")}
            return json_response(_encode(tables.table(served, [stored], metadata)), status)
        return json_response(served.encode(stored), status)

    def _check_shape(self, route: Route, served: Served) -> None:
        """Methods and URLs that this resource does not have. Raises APIError."""
        resource = served.type
        if route.subresource and route.subresource not in resource.subresources:
            raise no_such_resource()
        if route.namespace and not resource.namespaced and resource.identity != ("", "namespaces"):
            raise no_such_resource()
        if resource.namespaced and not route.namespace and (route.name or route.verb == "create"):
            # Objects in namespaces have no URL without one; over all namespaces there are only list and watch.
            raise method_not_allowed() if route.verb == "create" else no_such_resource()
        named = bool(route.name)
        allowed = {"create": not named, "update": named, "patch": named}.get(route.verb, True)
        if route.subresource and route.verb in {"create", "delete", "watch"}:
            allowed = False
        if not allowed or (route.verb == "deletecollection" and route.verb not in resource.verbs):
            raise method_not_allowed()

    def _plain(self, request: web.BaseRequest) -> web.Response:
        path = request.path
        if path.rstrip("/") in _HEALTH or path.startswith(tuple(f"{entry}/" for entry in _HEALTH)):
            return web.Response(text="ok")
        host = urlsplit(f"//{request.host}").netloc
        if path.rstrip("/") == "/version":
            document: dict[str, Any] | None = discovery.version_info(self._operations.server_version)
        else:
            document = discovery.document(self._operations.catalogue, path, host)
        if document is None:
            return _page_not_found()
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        return json_response(_encode(document))

    async def _review(self, request: web.BaseRequest, route: Route, user: User) -> web.Response:
        known = KINDS.get((route.group, route.resource))
        if known is None or route.version != "v1":
            return _page_not_found()
        if route.verb != "create" or route.name:
            raise method_not_allowed()
        body = bodies.read_object(await request.read(), bodies.media_type(request.headers.get("Content-Type")))
        return json_response(_encode(review(route.resource, body, route.namespace, user, self._authorization)), 201)

    def _get(self, request: web.BaseRequest, route: Route, served: Served) -> web.Response:
        stored = self._operations.find(served, _namespace(route, served), route.name)
        return self._answer(request, served, stored, 200)

    def _list(self, request: web.BaseRequest, route: Route, served: Served, query: Mapping[str, str]) -> web.Response:
        page = list_page(self._operations.store, served, _namespace(route, served), query)
        if tables.wants_table(request.headers.get("Accept", "")):
            return json_response(_encode(tables.table(served, page.objects, page.metadata)))
        return json_response(list_body(served, page))

    async def _delete(
        self,
        request: web.BaseRequest,
        route: Route,
        served: Served,
        body: bytes,
        content_type: str,
        query: Mapping[str, str],
        user: User,
    ) -> web.Response:
        options = bodies.read_delete_options(body, content_type, query)
        namespace = _namespace(route, served)
        if route.name:
            last, gone = await self._delete_one(served, namespace, route.name, user, options)
            if not gone:
                return json_response(served.encode(last))
            uid = last.value["metadata"]["uid"]
            return json_response(_encode(success(served.type.target(route.name), uid)))
        page = list_page(self._operations.store, served, namespace, query)
        for stored in page.objects:
            await self._delete_one(served, *stored.key, user, options)
        return json_response(list_body(served, page))

    async def _delete_one(
        self, served: Served, namespace: str, name: str, user: User, options: DeleteOptions
    ) -> tuple[Stored, bool]:
        attempt = Attempt(served, "DELETE", "", namespace, name, user, dry_run=options.dry_run)
        if self._webhooks.concern(attempt):
            return await self._webhooks.delete(attempt, options)
        return self._operations.delete(served, namespace, name, user, options)

    async def _watch(
        self, request: web.BaseRequest, route: Route, served: Served, query: Mapping[str, str], user: User
    ) -> web.StreamResponse:
        options = WatchOptions.read(query, served)
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        response.enable_chunked_encoding()
        writer = await response.prepare(request)
        if writer is not None and hasattr(writer, "send_headers"):
            writer.send_headers()
        self._log(request, user.name, 200)
        settings = self._settings
        lines = watch_lines(
            self._operations.store,
            served,
            _namespace(route, served),
            options,
            bookmark_seconds=settings.bookmark_seconds,
            limit=settings.watch_backlog,
            late_seconds=settings.late_events_seconds,
        )
        try:
            async for chunk in lines:
                if chunk:
                    await response.write(chunk)
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            # The client has disconnected.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
        finally:
            await lines.aclose()
        return response


def _namespace(route: Route, served: Served) -> str:
    return route.namespace if served.type.namespaced else ""


def _page_not_found() -> web.Response:
    """Go's ``http.NotFound``."""
    return web.Response(text="404 page not found\n", status=404)
