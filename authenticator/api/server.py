"""The API server over HTTPS: TLS with the cluster's CA only, no redirects, no proxies, bounded answers.

It uses the standard library's client, because a kubelet waits for this program and imports are slow (``kubernetes``
takes a second or more).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from attestors.net.dial import ConnectedSocket, dial
from attestors.net.http_response import StrictResponse
from authenticator.api.errors import (
    AlreadyExists,
    Busy,
    Expired,
    Forbidden,
    NotFound,
    PerhapsDone,
    Rejected,
    Unauthorized,
    Unreachable,
    Untrusted,
)
from authenticator.model.cluster import BearerToken, ClientCertificate, Cluster, Credential
from authenticator.model.unix_time import time_text

SIGNING_REQUESTS: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CALL_SECONDS: Final = 15.0
"""Timeout for connecting, whatever the number of the server's addresses; for the handshake; and for a call after that,
however slowly the answer arrives. kube-apiserver itself gives up after 60."""

_MAXIMUM_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""etcd holds objects of 1.5 MiB; a watch event is such an object in base64 and slightly more."""
_MAXIMUM_MESSAGE_CHARACTERS: Final = 300
_MAXIMUM_RETRY_AFTER_SECONDS: Final = 60.0
_USER_AGENT: Final = "kubelet-authenticator"
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_OUTSIDE_VALIDITY: Final = frozenset({9, 10})
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a watch: its type (``ADDED``, ``MODIFIED``, ``DELETED``, ``BOOKMARK``, ``ERROR``) and its object."""

    type: str
    object: dict[str, Any]


class ApiServer:
    """Calls to one API server with one credential. One connection per call: calls are few, and minutes apart."""

    def __init__(self, cluster: Cluster, credential: Credential, *, seconds: float | None = None) -> None:
        """``seconds`` bounds a call, and the overrun of a watch (:data:`CALL_SECONDS`)."""
        self._cluster = cluster
        self._seconds = CALL_SECONDS if seconds is None else seconds
        self._headers = {"User-Agent": _USER_AGENT}
        self._context = _context(cluster, credential)
        if isinstance(credential, BearerToken):
            self._headers["Authorization"] = f"Bearer {credential.token}"

    def create(self, signing_request: dict[str, Any]) -> dict[str, Any]:
        """Create a CertificateSigningRequest and return it as the server stored it.

        Raises:
            CallFailed: see :mod:`authenticator.api.errors`.
        """
        return self._call("POST", SIGNING_REQUESTS, json.dumps(signing_request).encode("utf-8"))

    def get(self, name: str) -> dict[str, Any]:
        """The CertificateSigningRequest of that name.

        Raises:
            CallFailed: see :mod:`authenticator.api.errors`; NotFound if there is none.
        """
        return self._call("GET", f"{SIGNING_REQUESTS}/{name}", None)

    def read(self, path: str) -> dict[str, Any]:
        """The object at a path.

        Raises:
            CallFailed: see :mod:`authenticator.api.errors`; NotFound if there is none.
        """
        return self._call("GET", path, None)

    def read_metadata(self, path: str) -> dict[str, Any]:
        """The same, without the content of a large object where the server leaves it out (PartialObjectMetadata).

        Raises:
            CallFailed: see :meth:`read`.
        """
        return self._call("GET", path, None, accept=_METADATA_ONLY)

    def watch(self, name: str, resource_version: str, *, seconds: float) -> Iterator[Event]:
        """Changes of the CertificateSigningRequest of that name after ``resource_version``, for some ``seconds``.

        It ends when the server ends it. Shortly after its time it is abandoned, even if the server keeps sending.

        Raises:
            CallFailed: see :mod:`authenticator.api.errors`.
        """
        query = urlencode(
            {
                "watch": "true",
                "fieldSelector": f"metadata.name={name}",
                "resourceVersion": resource_version,
                "timeoutSeconds": max(1, int(seconds)),
            }
        )
        with self._answer("GET", f"{SIGNING_REQUESTS}?{query}", None, timeout=seconds + self._seconds) as answer:
            while line := _during_call(self._cluster, lambda: answer.readline(_MAXIMUM_ANSWER_BYTES + 1)):
                event = _object(self._cluster, line)
                found = event.get("object")
                yield Event(str(event.get("type")), found if isinstance(found, dict) else {})

    def _call(self, method: str, path: str, body: bytes | None, *, accept: str = "application/json") -> dict[str, Any]:
        with self._answer(method, path, body, timeout=self._seconds, accept=accept) as answer:
            content = _during_call(self._cluster, lambda: answer.read(_MAXIMUM_ANSWER_BYTES + 1))
        return _object(self._cluster, content)

    @contextlib.contextmanager
    def _answer(
        self, method: str, path: str, body: bytes | None, *, timeout: float, accept: str = "application/json"
    ) -> Iterator[http.client.HTTPResponse]:
        connection = _Connection(self._cluster, self._context, connecting=self._seconds, exchanging=timeout)
        try:
            _connect(connection, self._cluster)
            typed = {"Content-Type": "application/json"} if body is not None else {}
            headers = self._headers | {"Accept": accept} | typed

            def exchange() -> http.client.HTTPResponse:
                connection.request(method, self._cluster.path + path, body, headers)
                return connection.getresponse()

            with _during_call(self._cluster, exchange) as answer:  # the answer may outlive the connection
                if not 200 <= answer.status < 300:
                    _raise_refusal(answer, self._cluster)
                yield answer
        finally:
            connection.close()


class _Connection(http.client.HTTPSConnection):
    """Connects to the cluster's address, and verifies the certificate for the configured name."""

    response_class = StrictResponse

    def __init__(self, cluster: Cluster, context: ssl.SSLContext, *, connecting: float, exchanging: float) -> None:
        super().__init__(cluster.host, cluster.port, context=context)
        self._cluster = cluster
        self._context_in_use = context
        self._exchanging = exchanging
        self.connecting = connecting
        """Seconds."""

    def connect(self) -> None:
        """Connect within a call's time; the exchange after that may take longer, but is bounded."""
        expected = (self._cluster.tls_server_name or self._cluster.host).rstrip(".")  # the root's: RFC 6066 section 3
        expected.encode("idna")  # report an invalid name before connecting
        with dial(self._cluster.host, self._cluster.port, self.connecting) as plain:
            # It takes the descriptor away from ``plain``.
            connected = self._context_in_use.wrap_socket(plain, server_hostname=expected)
        if isinstance(connected, _DeadlineSocket):
            connected.end = time.monotonic() + self._exchanging
        self.sock = connected


class _DeadlineSocket(ConnectedSocket):
    """A connection with one deadline for all operations: a socket timeout bounds each operation only.

    Without it, a server that sends one byte at a time could block the client for weeks.
    """

    end: float | None = None
    """On the monotonic clock; None during the handshake, which the socket's own timeout bounds as a whole."""

    def recv_into(self, *arguments: Any) -> int:
        """Override of ``socket``.

        Raises:
            TimeoutError: the deadline has passed.
        """
        self._bound()
        return super().recv_into(*arguments)

    def send(self, *arguments: Any) -> int:
        """Override of ``socket``.

        Raises:
            TimeoutError: the deadline has passed.
        """
        self._bound()
        return super().send(*arguments)

    def _bound(self) -> None:
        if self.end is not None:
            left = self.end - time.monotonic()
            if left <= 0:
                raise TimeoutError("the call took too long")
            self.settimeout(left)


def _context(cluster: Cluster, credential: Credential) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = _DeadlineSocket
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Any CA in the kubeconfig is trusted, even an intermediate one, as in Go.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=cluster.certificate_authority)
    if isinstance(credential, ClientCertificate):
        # OpenSSL reads only files. This memory file holds both, so that they cannot be of different pairs.
        descriptor = os.memfd_create("client-certificate", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(f"{credential.certificate}{credential.key}".encode("ascii"))
            file.flush()
            # An encrypted key is refused: without a password, OpenSSL would ask for one at the terminal.
            context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    return context


def _connect(connection: _Connection, cluster: Cluster) -> None:
    try:
        connection.connect()
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in _OUTSIDE_VALIDITY:
            raise Untrusted(
                f"{cluster.server} has a certificate that is not valid at the time of this node's clock, "
                f"{time_text(int(time.time()))} ({error.verify_message}): is the clock right?"
            ) from error
        raise Untrusted(
            f"{cluster.server} has a certificate that does not belong to this cluster's CA or to its name "
            f"({error.verify_message}): is the address or the CA in the kubeconfig out of date, or is there a machine "
            "in the middle?"
        ) from error
    except TimeoutError as error:
        raise Unreachable(f"{cluster.server} does not answer within {connection.connecting:.0f} s") from error
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
        # A load balancer does the same while no API server is behind it.
        raise Unreachable(f"{cluster.server} closed the connection before it presented a certificate") from error
    except ssl.SSLError as error:
        raise Untrusted(f"{cluster.server} does not speak TLS like an API server ({error.reason})") from error
    except OSError as error:
        raise Unreachable(f"{cluster.server} is unreachable: {error.strerror or error}") from error
    except ValueError as error:
        raise Untrusted(f"{cluster.server}: the host or tls-server-name is not a valid name ({error})") from error


def _during_call(cluster: Cluster, step: Any) -> Any:
    """Run a step of a call on an open connection: after a failure it is unknown what the server did."""
    try:
        return step()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise PerhapsDone(f"the connection to {cluster.server} broke: {type(error).__name__}") from error


def _raise_refusal(answer: http.client.HTTPResponse, cluster: Cluster) -> None:
    content = _during_call(cluster, lambda: answer.read(_MAXIMUM_ANSWER_BYTES + 1))
    text = f"{cluster.server} answered {answer.status}: {_message(content)}"
    if answer.status == http.HTTPStatus.TOO_MANY_REQUESTS:
        raise Busy(text, _retry_after(answer))
    if answer.status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
        raise PerhapsDone(text)
    kinds = {401: Unauthorized, 403: Forbidden, 404: NotFound, 409: AlreadyExists, 410: Expired}
    raise kinds.get(answer.status, Rejected)(text)


def _message(content: bytes) -> str:
    """The message of the server's Status, bounded and printable."""
    try:
        status = json.loads(content)
        text = str(status["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        text = "no message"
    return "".join(character for character in text[:_MAXIMUM_MESSAGE_CHARACTERS] if character.isprintable())


def _retry_after(answer: http.client.HTTPResponse) -> float:
    text = answer.getheader("Retry-After", "")
    return min(float(text), _MAXIMUM_RETRY_AFTER_SECONDS) if text.isdecimal() else 1.0


def _object(cluster: Cluster, content: bytes) -> dict[str, Any]:
    if len(content) > _MAXIMUM_ANSWER_BYTES:
        raise PerhapsDone(f"{cluster.server} answered more than {_MAXIMUM_ANSWER_BYTES} bytes")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise PerhapsDone(f"{cluster.server} returned an answer that is not JSON") from None
    if not isinstance(found, dict):
        raise PerhapsDone(f"{cluster.server} returned an answer that is not an object")
    return found
