"""The fake AWS as a context manager, with a thread of its own and controls for tests."""

from __future__ import annotations

import functools
import ssl
import tempfile
import threading
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Self

from aiohttp import web

from attestors.aws.services import Elsewhere
from attestors.clouds.https import Route
from tests.support.certificates import CertificateAuthority
from tests.support.closing import ClosedAtTheEnd
from tests.support.local_servers import HOST, LocalServers

from .accounts import Issuer, Session
from .signature_version_4 import Request
from .sts import Answer, STSServer, respond


class FakeAWS(ClosedAtTheEnd):
    """STS of one region, and one account's token issuer, each with a certificate for its real name.

    Args:
        region: the Region of STS.
        clock: AWS's current time.
        certificate_for: the name in STS's certificate, if it is not STS's own.
    """

    def __init__(
        self,
        region: str = "eu-west-1",
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        certificate_for: str = "",
    ) -> None:
        self.region = region
        self.clock = clock
        self.issuer = Issuer()
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._faults: dict[str, Answer] = {}
        self._issuer_asked: list[str] = []
        self._sts = STSServer(region, self._session_of, self.issuer, lambda: self.clock(), lambda: self._fault("sts"))
        self._certificate_for = certificate_for or self.sts_host
        self._servers = LocalServers("fake AWS")
        self._routes: dict[str, Route] = {}
        self._sts_port = 0

    @property
    def sts_host(self) -> str:
        """STS's real host name."""
        return f"sts.{self.region}.amazonaws.com"

    def __enter__(self) -> Self:
        authority = _authority()
        trusted = ssl.create_default_context(cadata=authority.certificate_pem.decode())
        for host, name, answer in (
            (self.sts_host, self._certificate_for, self._sts.answer),
            (self.issuer.host, self.issuer.host, self._issuer_answer),
        ):
            context = _server_context(*authority.issue_serving("aws", [name]))
            port = self._serve(answer, context)
            self._routes[host] = Route(HOST, port, trusted)
        self._sts_port = self._serve(self._sts.answer, None)
        return self

    def close(self) -> None:
        """Stop listening."""
        self._servers.close()

    def _serve(self, answer: Callable[[web.Request], Awaitable[web.Response]], context: ssl.SSLContext | None) -> int:
        application = web.Application()
        application.router.add_route("*", "/{rest:.*}", answer)
        return self._servers.serve(application, context)

    @property
    def elsewhere(self) -> Elsewhere:
        """The addresses of these services, for the server plugin."""
        return Elsewhere(routes=MappingProxyType(dict(self._routes)))

    @property
    def sts_endpoint(self) -> str:
        """STS without TLS, for an agent plugin that calls it."""
        return f"http://{HOST}:{self._sts_port}"

    def credentials(
        self, instance_id: str, *, account: str, role_name: str, lifetime: timedelta = timedelta(hours=6)
    ) -> Session:
        """Credentials as from an instance's metadata service."""
        return self.remember(
            Session.of_instance(
                instance_id,
                account=account,
                region=self.region,
                role_name=role_name,
                expires_at=self.clock() + lifetime,
            )
        )

    def remember(self, session: Session) -> Session:
        """Register a session at STS, such as one of AssumeRole."""
        with self._lock:
            self._sessions[session.access_key_id] = session
        return session

    def fail(self, service: str, answer: Answer) -> None:
        """Make ``sts``, ``discovery`` or ``keys`` return this answer from now on."""
        with self._lock:
            self._faults[service] = answer

    def recover(self) -> None:
        """End all faults."""
        with self._lock:
            self._faults.clear()

    @property
    def sts_requests(self) -> tuple[Request, ...]:
        """The requests to STS, in order."""
        return tuple(self._sts.seen)

    @property
    def issuer_paths(self) -> tuple[str, ...]:
        """The paths requested from the issuer, in order."""
        return tuple(self._issuer_asked)

    def _session_of(self, access_key: str) -> Session | None:
        with self._lock:
            return self._sessions.get(access_key)

    def _fault(self, service: str) -> Answer | None:
        with self._lock:
            return self._faults.get(service)

    async def _issuer_answer(self, request: web.Request) -> web.Response:
        self._issuer_asked.append(request.path)
        found: Mapping[str, tuple[str, Callable[[], object]]] = {
            "/.well-known/openid-configuration": ("discovery", self.issuer.discovery),
            "/.well-known/jwks.json": ("keys", self.issuer.key_set),
        }
        if request.path not in found:
            return web.Response(status=404)
        service, document = found[request.path]
        fault = self._fault(service)
        return web.json_response(document()) if fault is None else await respond(fault)


@functools.cache
def _authority() -> CertificateAuthority:
    return CertificateAuthority.like_cluster_api()


def _server_context(certificate: bytes, key: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "server.pem")
        path.write_bytes(certificate + key)
        context.load_cert_chain(path)
    return context
