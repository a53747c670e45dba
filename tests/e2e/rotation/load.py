"""Clients that ask the API servers all the time during a rotation, each on a new connection, and count what fails.

Each does what it should: it takes new trust and new credentials as they are published. What is counted is a rotation's
fault alone: a certificate that a client refuses, or a credential that a server refuses. That an API server is being
replaced is none: a balancer with health checks would not lead there.
"""

from __future__ import annotations

import functools
import http.client
import json
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Protocol, Self

from signer.kube.connection import ClusterConnection
from signer.kube.tls import client_context
from tests.support.kubectl import find_kubectl

_TIMEOUT_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.5


@dataclass
class Figures:
    """What was met during one step of the rotation."""

    began: float
    """By the monotonic clock."""
    answered: int = 0
    unavailable: int = 0
    failed: int = 0


@dataclass
class Outcomes:
    """What the clients met, by client and kind, and by step."""

    answered: Counter[str] = field(default_factory=Counter)
    unavailable: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    """Refused credentials and refused certificates, with the client's name."""
    steps: dict[str, Figures] = field(default_factory=dict)
    """In the order in which they were entered. A step is seen up to a second late."""
    _step: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def total(self) -> int:
        """Requests that were answered."""
        return sum(self.answered.values())

    def enter(self, step: str) -> None:
        """What is met from now on belongs to that step."""
        with self._lock:
            self._step = step
            self.steps.setdefault(step, Figures(time.monotonic()))

    def answer(self, name: str) -> None:
        """A client was answered."""
        with self._lock:
            self.answered[name] += 1
            self._figures().answered += 1

    def miss(self, name: str) -> None:
        """A client reached no API server."""
        with self._lock:
            self.unavailable[name] += 1
            self._figures().unavailable += 1

    def fail(self, text: str) -> None:
        """A client refused a certificate, or its credential was refused."""
        with self._lock:
            self.failures.append(f"{time.strftime('%H:%M:%S')} {text}")
            self._figures().failed += 1

    def _figures(self) -> Figures:
        return self.steps.setdefault(self._step, Figures(time.monotonic()))


@dataclass(frozen=True)
class LoadClient:
    """One client."""

    name: str
    connection: Callable[[], ClusterConnection]
    path: str = "/version"
    pause: float = 0.25


class Repeated(Protocol):
    """Another client."""

    @property
    def pause(self) -> float:
        """Seconds between two requests."""
        ...

    def ask(self, outcomes: Outcomes) -> None:
        """One request, counted there."""
        ...


_NONE: Final[Mapping[str, Repeated]] = MappingProxyType({})


class Load:
    """Runs the clients in threads; a context manager."""

    def __init__(
        self, clients: list[LoadClient], where: Callable[[], str], also: Mapping[str, Repeated] = _NONE
    ) -> None:
        """``where`` says where the rotation is, for the report. ``also`` are other clients, by name: each counts its
        own requests in :attr:`outcomes`, which they get.
        """
        self._where = where
        self._stop = threading.Event()
        self.outcomes = Outcomes()
        loops: list[tuple[Callable[[], object], float]] = [(self._follow, _LOOK_SECONDS)]
        loops += [(functools.partial(self.ask, one), one.pause) for one in clients]
        loops += [(functools.partial(one.ask, self.outcomes), one.pause) for one in also.values()]
        self._threads = [threading.Thread(target=self._run, args=loop, daemon=True) for loop in loops]

    def __enter__(self) -> Self:
        self._follow()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def add(self, client: LoadClient) -> None:
        """Another client, from now on."""
        thread = threading.Thread(
            target=self._run, args=(functools.partial(self.ask, client), client.pause), daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Ask nothing more."""
        self._stop.set()
        for thread in self._threads:
            thread.join(_TIMEOUT_SECONDS)

    def _run(self, ask: Callable[[], object], pause: float) -> None:
        while not self._stop.is_set():
            ask()
            self._stop.wait(pause)

    def _follow(self) -> None:
        self.outcomes.enter(self._where())

    def ask(self, client: LoadClient) -> None:
        """One request on a new connection."""
        try:
            status = status_of(client.connection(), client.path)
        except ssl.SSLCertVerificationError as error:
            self._failed(client, f"refuses the server's certificate: {error.verify_message}")
        except ssl.SSLEOFError:  # the balancer closed the connection to a server that does not listen
            self.outcomes.miss(client.name)
        except ssl.SSLError as error:
            self._failed(client, f"TLS: {error.reason}")
        except (OSError, http.client.HTTPException):
            self.outcomes.miss(client.name)
        else:
            if status == 401:
                self._failed(client, "401")
            else:
                self.outcomes.answer(client.name)

    def _failed(self, client: LoadClient, what: str) -> None:
        self.outcomes.fail(f"{self._where()}: {client.name} {what}")


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
            self._outcomes.answer("kubectl")
        elif is_refusal(done.stderr):
            self._outcomes.fail(f"kubectl: {done.stderr.strip()}")
        else:
            self._outcomes.miss("kubectl")


def is_refusal(text: str) -> bool:
    """Whether client-go says there that a certificate or a credential was refused."""
    return any(word in text for word in ("x509", "Unauthorized", "certificate"))
