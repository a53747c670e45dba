"""The embedded API as a context manager, with its own thread, connections, and direct access for tests."""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
import string
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from signer.kube.connection import ClusterConnection

from . import bodies
from .access import ObjectAccess
from .authentication import Authenticator
from .authorities import Issuer, load_certificates, server_context
from .authorization import Authorization, Mode
from .bootstrap_objects import BOOTSTRAP_GROUP, default_objects, kubeadm_objects
from .builtin import builtin_types
from .faults import Faults, RequestLog
from .garbage import GarbageCollector
from .identity import User
from .kubeconfig import kubeconfig_of
from .operations import Operations
from .resource_types import Catalogue
from .server import Handler, Hook, Settings
from .store import Store
from .thread import LoopThread, stop_accepting

_HOST = "127.0.0.1"
_ADMINISTRATOR = "kubernetes-admin"
_MASTERS = ("system:masters",)
_TOKEN_LETTERS = string.ascii_lowercase + string.digits
NEWEST = "1.36"


_OLDEST = (1, 20)


def _version(text: str) -> tuple[int, int]:
    """Raises ValueError."""
    found = re.fullmatch(r"v?(\d+)\.(\d+)(?:\..+)?", text)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < _OLDEST:
        raise ValueError(
            f"server_version {text!r}: the embedded API plays versions from 1.20 on, such as 1.29 or v1.29.3"
        )
    return version


class EmbeddedAPI(ObjectAccess):
    """A Kubernetes API server on 127.0.0.1 for tests, demonstrations and authors of plugins.

    Args:
        ca_certificate: PEM of the cluster's CA, which issues the serving certificate and client certificates; a
            Cluster API ``<cluster>-ca`` will do. A fresh one is made when both this and ``ca_key`` are left out.
        ca_key: its private key, PEM.
        client_authorities: more CAs (PEM) whose client certificates are believed.
        authorization: ``RBAC`` (with the Node authorizer), or ``AlwaysAllow``.
        seed_kubeadm: add the ClusterRoleBindings of ``kubeadm init``.
        server_version: whose rules hold, ``1.20`` or newer.
        tokens: static bearer tokens.
        watch_window: changes per resource that a watch can start from.
        bookmark_seconds: between bookmarks of one watch.
        late_events_seconds: by how much the events of a watch may come late, as from an API server under load: a test
            that takes what it has just written as known fails then. By how much is random, mostly little.
        garbage_collection: remove dependents of deleted owners and contents of deleted namespaces.
        address: IP address to listen at, which the serving certificate names.
        port: 0 for a free one.
        serving: certificate chain and key (PEM) to present, instead of a certificate of the CA.
        serving_names: further DNS names for the certificate of the CA, as of a load balancer.
        loop_thread: serve in that event loop, with other APIs; the caller starts and stops it. By default, one of its
            own.

    Everything but ``__enter__`` may be called from any thread but the server's own.
    """

    def __init__(
        self,
        *,
        ca_certificate: bytes | None = None,
        ca_key: bytes | None = None,
        client_authorities: bytes = b"",
        authorization: Mode = "RBAC",
        seed_kubeadm: bool = False,
        server_version: str = NEWEST,
        tokens: Mapping[str, User] | None = None,
        watch_window: int = 10_000,
        bookmark_seconds: float = 60.0,
        late_events_seconds: float = 0.0,
        garbage_collection: bool = True,
        address: str = _HOST,
        port: int = 0,
        serving: tuple[bytes, bytes] | None = None,
        serving_names: Sequence[str] = (),
        loop_thread: LoopThread | None = None,
    ) -> None:
        if (ca_certificate is None) != (ca_key is None):
            raise ValueError("a CA needs both its certificate and its key")
        self._issuer = Issuer.load(ca_certificate, ca_key) if ca_certificate and ca_key else Issuer.new()
        self._client_authorities = self._issuer.certificate_pem + b"\n" + client_authorities
        version = _version(server_version)
        self.store = Store(window=watch_window)
        self.catalogue = Catalogue()
        for resource in builtin_types():
            self.catalogue.add(resource)
        self.authorization = Authorization(self.store, authorization)
        """RBAC and the Node authorizer, for direct calls."""
        trusted = load_certificates(self._client_authorities)
        self._authenticator = Authenticator(self.store, trusted, tokens or {}, version)
        self._operations = Operations(self.store, self.catalogue, self.authorization, version)
        self._owns_loop_thread = loop_thread is None
        super().__init__(self._operations, loop_thread or LoopThread("embedded-api"))
        if garbage_collection:
            self._operations.after_removal = GarbageCollector(self._operations).after_removal
        self.faults = Faults()
        """Armed faults: see ``Faults.inject``."""
        self.requests = RequestLog()
        """The log of answered requests."""
        self._settings = Settings(bookmark_seconds=bookmark_seconds, late_events_seconds=late_events_seconds)
        self._handler = Handler(
            self._operations, self._authenticator, self.authorization, self.faults, self.requests, self._settings
        )
        self._address = address
        self._port = port
        self._runner: web.ServerRunner | None = None
        self._listening: socket.socket | None = None
        names = ["localhost", "kubernetes", "kubernetes.default.svc", *serving_names]
        self._serving = self._issuer.serving(names, [address]) if serving is None else serving
        for value in default_objects() + (kubeadm_objects() if seed_kubeadm else []):
            self.create(value)

    # Life

    def __enter__(self) -> Self:
        if self._owns_loop_thread:
            self._loop_thread.start()
        self.start_listening()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and end the thread. May be called repeatedly."""
        if self._loop_thread.running:
            self.stop_listening()
            if self._owns_loop_thread:
                self._loop_thread.stop()

    def start_listening(self) -> None:
        """Listen, on the previous port if there was one."""
        self._loop_thread.wait(self._listen())

    def stop_listening(self) -> None:
        """Close the port and every connection; the objects stay."""
        self._loop_thread.wait(self._close())

    def restart(self) -> None:
        """Break all connections and listen on the same port again, like a restarted API server."""
        self.stop_listening()
        self.start_listening()

    async def _listen(self) -> None:
        if self._runner is not None:
            return
        listening = socket.create_server((self._address, self._port), backlog=512)

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            if self._listening is not listening:  # the handshake of its connection outlived the port
                if request.transport is not None:
                    request.transport.abort()
                return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE)
            return await self._handler(request)

        server = web.Server(handle, request_factory=_request, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await runner.setup()
        context = server_context(*self._serving, self._client_authorities)
        self._runner, self._listening, self._port = runner, listening, listening.getsockname()[1]
        await web.SockSite(runner, listening, ssl_context=context).start()

    async def _close(self) -> None:
        self.store.stop_watchers()
        runner, self._runner = self._runner, None
        listening, self._listening = self._listening, None
        if runner is not None and listening is not None:
            await stop_accepting(listening.fileno())
            await runner.cleanup()

    def accept_clients_of(self, client_authorities: bytes) -> None:
        """Believe client certificates of these CAs (PEM) and of no others, from now on and without a restart: as a
        kube-apiserver does once its ``--client-ca-file`` has changed.
        """
        trusted = load_certificates(client_authorities)
        self._loop_thread.call(lambda: self._authenticator.believe(trusted))

    # Connections

    @property
    def open_connections(self) -> int:
        """How many clients are connected now."""
        return 0 if self._runner is None or self._runner.server is None else len(self._runner.server.connections)

    @property
    def server(self) -> str:
        """``https://127.0.0.1:port``, or the other ``address``."""
        return f"https://{self._address}:{self._port}"

    @property
    def ca_certificate_pem(self) -> bytes:
        return self._issuer.certificate_pem

    @property
    def ca_key_pem(self) -> bytes:
        return self._issuer.key_pem

    def connection(
        self,
        user: str = _ADMINISTRATOR,
        groups: Sequence[str] = _MASTERS,
        lifetime: timedelta = timedelta(days=1),
    ) -> ClusterConnection:
        """A connection with a fresh client certificate: CN is ``user``, O are ``groups``."""
        return self.certificate_connection(*self._issuer.client(user, groups, lifetime))

    def certificate_connection(self, certificate: bytes, key: bytes) -> ClusterConnection:
        """A connection with the caller's client certificate and key (PEM)."""
        authority = self._issuer.certificate_pem
        return ClusterConnection(self.server, authority, client_certificate=certificate, client_key=key)

    def token_connection(self, token: str) -> ClusterConnection:
        """A connection with a bearer token."""
        return ClusterConnection(self.server, self._issuer.certificate_pem, bearer_token=token)

    def kubeconfig(
        self,
        cluster: str = "workload",
        user: str = _ADMINISTRATOR,
        groups: Sequence[str] = _MASTERS,
        connection: ClusterConnection | None = None,
    ) -> str:
        """A kubeconfig as Cluster API writes it: names ``<cluster>-admin``, inline data only."""
        return kubeconfig_of(connection or self.connection(user, groups), cluster)

    def add_token(self, token: str, user: User) -> None:
        """Accept a static bearer token."""
        self._loop_thread.call(lambda: self._authenticator.add_token(token, user))

    def remove_token(self, token: str) -> None:
        """Stop accepting a static bearer token; open watches continue, as on kube-apiserver."""
        self._loop_thread.call(lambda: self._authenticator.remove_token(token))

    def bootstrap_token(self, lifetime: timedelta = timedelta(minutes=15)) -> str:
        """Create a bootstrap token of kubeadm's default group, and return it."""
        identifier, secret = _letters(6), _letters(16)
        self.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": f"bootstrap-token-{identifier}", "namespace": "kube-system"},
                "type": "bootstrap.kubernetes.io/token",
                "stringData": {
                    "token-id": identifier,
                    "token-secret": secret,
                    "expiration": (datetime.now(UTC) + lifetime).strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "usage-bootstrap-authentication": "true",
                    "usage-bootstrap-signing": "true",
                    "auth-extra-groups": BOOTSTRAP_GROUP,
                },
            }
        )
        return f"{identifier}.{secret}"

    # Behaviour

    def compact(self) -> None:
        """Compact the history: watches and lists from older resourceVersions get 410."""
        self._loop_thread.call(self.store.compact)

    def on_request(self, hook: Hook | None) -> None:
        """Call ``hook(method, path, user)`` on each request, in the server's thread; None stops that."""
        self._settings.hook = hook

    def close_watches(self) -> None:
        """End every open watch cleanly, as the real server does from time to time."""
        self._loop_thread.call(self.store.stop_watchers)

    @property
    def resource_version(self) -> int:
        """The newest resourceVersion."""
        return self.store.revision


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=bodies.MAXIMUM_BODY_BYTES)


def _letters(count: int) -> str:
    return "".join(secrets.choice(_TOKEN_LETTERS) for _ in range(count))
