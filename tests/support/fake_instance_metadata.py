"""A fake of EC2's instance metadata service, version 2, on loopback, for the AWS attestor's agent plugin.

moto does not implement it. This fake requires session tokens, as an instance with IMDSv2 does, and fails as a test
configures it.
"""

from __future__ import annotations

import collections
import json
import secrets
import socket
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self

from tests.support import aws_documents

TOKEN_PATH: Final = "/latest/api/token"
DOCUMENT_PATH: Final = "/latest/dynamic/instance-identity/document"
PKCS7_PATH: Final = "/latest/dynamic/instance-identity/rsa2048"
ROLE_PATH: Final = "/latest/meta-data/iam/security-credentials/"
_TOKEN_HEADER: Final = "x-aws-ec2-metadata-token"
_LIFETIME_HEADER: Final = "x-aws-ec2-metadata-token-ttl-seconds"


@dataclass(frozen=True)
class Instance:
    """The metadata of one instance."""

    document: bytes = field(default_factory=aws_documents.document)
    signer: aws_documents.Authority | None = None
    role: str | None = "worker-node"
    access_key_id: str = "ASIAIOSFODNN7EXAMPLE"
    secret_access_key: str = field(default="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", repr=False)
    session_token: str = field(default="FwoGZXIvYXdzEXAMPLE/token+with=signs/" + "x" * 700, repr=False)

    def pages(self) -> dict[str, bytes]:
        """The content of each path."""
        pages = {
            DOCUMENT_PATH: self.document,
            PKCS7_PATH: aws_documents.recorded(aws_documents.sign(self.document, self.signer)),
        }
        if self.role is not None:
            pages[ROLE_PATH] = self.role.encode()
            pages[ROLE_PATH + self.role] = json.dumps(self.credentials(), indent=2).encode()
        return pages

    def credentials(self) -> dict[str, str]:
        """Credentials of its role."""
        return {
            "Code": "Success",
            "LastUpdated": "2026-01-02T02:04:06Z",
            "Type": "AWS-HMAC",
            "AccessKeyId": self.access_key_id,
            "SecretAccessKey": self.secret_access_key,
            "Token": self.session_token,
            "Expiration": "2026-01-02T08:04:06Z",
        }


@dataclass(frozen=True)
class Answer:
    """A response that replaces the usual one once."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Hang:
    """Accepts the request and never responds, as if the hop limit were too small."""


@dataclass(frozen=True)
class Reset:
    """Resets the connection."""


@dataclass(frozen=True)
class Asked:
    """One received request."""

    method: str
    path: str
    headers: Mapping[str, str]


class FakeInstanceMetadata:
    """A context manager; listens from construction on."""

    def __init__(self, instance: Instance | None = None) -> None:
        """Serve the metadata of ``instance`` (default: one in eu-west-1)."""
        self.pages = (instance or Instance()).pages()
        self.asked: list[Asked] = []
        self.tokens: set[str] = set()
        self._instead: dict[str, collections.deque[Answer | Hang | Reset]] = collections.defaultdict(collections.deque)
        self._closed = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        """The URL for the agent plugin's setting ``metadata-endpoint``."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return self._server.server_port

    def instead(self, path: str, *answers: Answer | Hang | Reset) -> None:
        """Use these responses for the next requests of this path."""
        self._instead[path].extend(answers)

    def paths(self) -> list[str]:
        """The requested paths, without those for tokens."""
        return [asked.path for asked in self.asked if asked.path != TOKEN_PATH]

    def __enter__(self) -> Self:
        """Serve."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop, and end hanging requests."""
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, asked: Asked) -> Answer | Hang | Reset:
        self.asked.append(asked)
        if self._instead[asked.path]:
            return self._instead[asked.path].popleft()
        if asked.path == TOKEN_PATH:
            lifetime = asked.headers.get(_LIFETIME_HEADER, "")
            if asked.method != "PUT" or "x-forwarded-for" in asked.headers:
                return Answer(403)
            if not lifetime.isdecimal() or not 1 <= int(lifetime) <= 21600:
                return Answer(400)
            token = secrets.token_urlsafe(41) + "=="
            self.tokens.add(token)
            return Answer(200, token.encode(), {_LIFETIME_HEADER: lifetime})
        if asked.headers.get(_TOKEN_HEADER) not in self.tokens:
            return Answer(401, b"Unauthorized")
        if asked.method != "GET" or asked.path not in self.pages:
            return Answer(404, b"Not Found")
        return Answer(200, self.pages[asked.path])

    def _handler(fake) -> type[BaseHTTPRequestHandler]:  # noqa: N805  the handler has a self of its own
        class Handler(BaseHTTPRequestHandler):
            def _handle(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                answer = fake._answer(Asked(self.command, self.path, headers))
                if isinstance(answer, Hang):
                    fake._closed.wait()
                elif isinstance(answer, Reset):
                    # Unread data and no lingering: the other side sees a reset.
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                else:
                    self.send_response(answer.status)
                    for name, value in answer.headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(answer.body)))
                    self.end_headers()
                    self.wfile.write(answer.body)
                self.close_connection = True

            do_GET = do_PUT = do_POST = _handle  # noqa: N815  the names of http.server

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        return Handler
