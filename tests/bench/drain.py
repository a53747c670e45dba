"""Measures draining a backlog of pending requests: time and CPU until every request has its certificate."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from signer.configuration import OperatorAttestor
from signer.kube.client import Client, JsonObject
from signer.kube.connection import ClusterConnection
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.api.kubeconfig import kubeconfig_of
from signer.testing.world import Verdict
from tests.bench.load import Load

_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Drained:
    """One drain, measured from the first certificate to the last."""

    what: str
    requests: int
    seconds: float
    cpu_seconds: float
    """CPU time of the deciding process only."""

    @property
    def per_second(self) -> float:
        """Certificates per second."""
        return self.requests / self.seconds

    @property
    def cpu_milliseconds(self) -> float:
        """CPU time of the deciding process per certificate."""
        return 1000 * self.cpu_seconds / self.requests

    def as_json(self) -> dict[str, float | str | int]:
        """For the machine-readable report."""
        return {**asdict(self), "per_second": self.per_second, "cpu_milliseconds": self.cpu_milliseconds}


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far (``/proc/PID/stat``, fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class NotIssued(Exception):
    """An honest request got no certificate, so the measurement is invalid."""


class Watcher(threading.Thread):
    """Watches CSRs from before the deciding process starts until the last one has its certificate."""

    def __init__(self, connection: ClusterConnection, names: Iterable[str]) -> None:
        super().__init__(name="watcher", daemon=True)
        self._connection = connection
        self._left = set(names)
        self._opened: Future[None] = Future()
        self._done: Future[None] = Future()
        self._certificates: list[bytes] = []
        self.seen: dict[str, float] = {}
        """When the watch showed each certificate, by ``time.monotonic``."""
        self.pid: int | None = None
        self.cpu_at_first = 0.0

    @property
    def first(self) -> float:
        """When the first certificate was seen; 0 before."""
        return min(self.seen.values(), default=0.0)

    @property
    def last(self) -> float:
        """When the last certificate was seen; 0 before."""
        return max(self.seen.values(), default=0.0)

    def watch(self) -> Watcher:
        """Start, and return once the watch is open."""
        self.start()
        self._opened.result()
        return self

    def wait(self, decider: subprocess.Popen[bytes]) -> None:
        """Wait until every request has its certificate.

        Raises:
            NotIssued: a request was denied, or the deciding process has ended.
            TimeoutError: a request has no certificate after 15 minutes.
        """
        while self.is_alive():
            self.join(_LOOK_SECONDS)
            if self.is_alive() and decider.poll() is not None:
                raise NotIssued(f"the deciding process ended with {decider.returncode}")
        self._done.result()

    def check_issued_by(self, key_pem: bytes) -> None:
        """Check that every certificate was signed with that RSA key of a CA.

        Raises:
            cryptography.exceptions.InvalidSignature: a certificate was not.
        """
        key = load_pem_private_key(key_pem, None)
        if not isinstance(key, rsa.RSAPrivateKey):
            raise TypeError("the benchmark's CA needs an RSA key")
        for pem in self._certificates:
            certificate = x509.load_pem_x509_certificate(pem)
            algorithm = certificate.signature_hash_algorithm
            if algorithm is None:
                raise TypeError("the signature has no hash algorithm")
            signed = certificate.tbs_certificate_bytes
            key.public_key().verify(certificate.signature, signed, padding.PKCS1v15(), algorithm)

    def run(self) -> None:
        """See :class:`threading.Thread`."""
        try:
            asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            for future in (self._opened, self._done):
                if not future.done():
                    future.set_exception(error)
        else:
            self._done.set_result(None)

    async def _run(self) -> None:
        path = CERTIFICATE_SIGNING_REQUESTS.collection()
        async with Client(self._connection, timeout_seconds=120) as client, asyncio.timeout(900):
            listed = await client.get(path, {"limit": 1})
            version = listed["metadata"]["resourceVersion"]
            self._opened.set_result(None)
            while self._left:
                async for event in client.watch(path, {"resourceVersion": version}, timeout_seconds=600):
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._take(event["object"])
                    if not self._left:
                        return

    def _take(self, manifest: JsonObject) -> None:
        name = manifest["metadata"].get("name")  # a bookmark has none
        if name not in self._left:
            return
        verdict = Verdict.of(manifest)
        if verdict.condition in ("Denied", "Failed"):
            raise NotIssued(f"{name}: {verdict.condition}, {verdict.reason}: {verdict.message}")
        if not verdict.certificate:
            return
        self._left.discard(name)
        self._certificates.append(verdict.certificate)
        if not self.seen and self.pid is not None:
            self.cpu_at_first = cpu_seconds(self.pid)
        self.seen[name] = time.monotonic()

    def drained(self, what: str, requests: int, decider: subprocess.Popen[bytes]) -> Drained:
        """Wait for the last certificate; time and CPU before the first certificate (start-up) do not count."""
        self.wait(decider)
        return Drained(what, requests - 1, self.last - self.first, cpu_seconds(decider.pid) - self.cpu_at_first)


CONTROLLER: Sequence[str] = ("signer.cli",)
"""The module that runs the controller, and that module's own arguments."""


@contextmanager
def controller_process(
    connection: ClusterConnection,
    attestors: Mapping[str, OperatorAttestor],
    *,
    audited: bool = False,
    program: Sequence[str] = CONTROLLER,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the controller in a process, as operators do."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig, config = Path(folder) / "kubeconfig", Path(folder) / "config.yaml"
        kubeconfig.write_text(kubeconfig_of(connection, "management"))
        allowed = {provider: {"settings": dict(attestor.settings)} for provider, attestor in attestors.items()}
        config.write_text(yaml.safe_dump({"attestors": allowed}))
        command = [sys.executable, "-m", *program, "run"]
        if audited:
            command += ["--audit-log-path", str(Path(folder) / "audit.log")]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen([*command, "--kubeconfig", str(kubeconfig), "--config", str(config)], stderr=log)
            try:
                yield process
            finally:
                process.terminate()
                process.wait(timeout=30)


def drain_with_controller(
    what: str, load: Load, names: set[str], *, audited: bool = False, program: Sequence[str] = CONTROLLER
) -> Drained:
    """Start the controller on a backlog of pending requests, and wait for all certificates."""
    watcher = Watcher(load.cluster.api.connection(), names).watch()
    management = load.cluster.management.api.connection()
    with controller_process(management, load.configuration.attestors, audited=audited, program=program) as process:
        watcher.pid = process.pid
        return watcher.drained(what, len(names), process)
