"""Clients that ask the API servers all the time during a rotation, each on a new connection, and count what fails.

Each does what it should: it takes new trust and new credentials as they are published. What is counted is a rotation's
fault alone: a certificate that a client refuses, or a credential that a server refuses. That an API server is being
replaced is none: a balancer with health checks would not lead there.
"""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from signer.kube.connection import ClusterConnection
from signer.kube.tls import client_context
from tests.support.kubectl import find_kubectl

_TIMEOUT_SECONDS: Final = 10.0


@dataclass
class Outcomes:
    """What the clients met, by client and kind."""

    answered: Counter[str] = field(default_factory=Counter)
    unavailable: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    """Refused credentials and refused certificates, with the client's name."""

    @property
    def total(self) -> int:
        """Requests that were answered."""
        return sum(self.answered.values())


@dataclass(frozen=True)
class LoadClient:
    """One client."""

    name: str
    connection: Callable[[], ClusterConnection]
    path: str = "/version"
    pause: float = 0.25


class Load:
    """Runs the clients in threads; a context manager."""

    def __init__(self, clients: list[LoadClient], where: Callable[[], str]) -> None:
        """``where`` says where the rotation is, for the report of a failure."""
        self._clients = clients
        self._where = where
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.outcomes = Outcomes()
        self._threads = [threading.Thread(target=self._run, args=(one,), daemon=True) for one in clients]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(_TIMEOUT_SECONDS)

    def _run(self, client: LoadClient) -> None:
        while not self._stop.is_set():
            self.ask(client)
            self._stop.wait(client.pause)

    def ask(self, client: LoadClient) -> None:
        """One request on a new connection."""
        try:
            status = status_of(client.connection(), client.path)
        except ssl.SSLCertVerificationError as error:
            self._failed(client, f"refuses the server's certificate: {error.verify_message}")
        except ssl.SSLEOFError:  # the balancer closed the connection to a server that does not listen
            with self._lock:
                self.outcomes.unavailable[client.name] += 1
        except ssl.SSLError as error:
            self._failed(client, f"TLS: {error.reason}")
        except (OSError, http.client.HTTPException):
            with self._lock:
                self.outcomes.unavailable[client.name] += 1
        else:
            if status == 401:
                self._failed(client, "401")
                return
            with self._lock:
                self.outcomes.answered[client.name] += 1

    def _failed(self, client: LoadClient, what: str) -> None:
        with self._lock:
            self.outcomes.failures.append(f"{time.strftime('%H:%M:%S')} {self._where()}: {client.name} {what}")


def status_of(connection: ClusterConnection, path: str = "/version") -> int:
    """The status of one request on a new connection. Raises OSError and ssl.SSLError."""
    host, _, port = connection.server.removeprefix("https://").rpartition(":")
    context = client_context(replace(connection, tls=None))
    http_connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=_TIMEOUT_SECONDS)
    try:
        http_connection.request("GET", path)
        answer = http_connection.getresponse()
        answer.read()
        return answer.status
    finally:
        http_connection.close()


class KubectlLoad:
    """A current client-go that reads a kubeconfig at each start: ``kubectl get --raw``."""

    def __init__(self, kubeconfig: Callable[[], bytes], folder: Path, outcomes: Outcomes) -> None:
        self._kubeconfig = kubeconfig
        self._file = folder / "kubeconfig"
        self._outcomes = outcomes
        self._kubectl = find_kubectl()

    def ask(self) -> None:
        """One request."""
        self._file.write_bytes(self._kubeconfig())
        done = subprocess.run(
            [self._kubectl, f"--kubeconfig={self._file}", "get", "--raw=/version", "--request-timeout=10s"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        if done.returncode == 0:
            json.loads(done.stdout)
            self._outcomes.answered["kubectl"] += 1
        elif any(word in done.stderr for word in ("x509", "Unauthorized", "certificate")):
            self._outcomes.failures.append(f"kubectl: {done.stderr.strip()}")
        else:
            self._outcomes.unavailable["kubectl"] += 1
