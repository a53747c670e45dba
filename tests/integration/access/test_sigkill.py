"""SIGKILL of the real controller at each write of a grant's life: the next process leaves nothing behind (test 36).

The API servers are in this process, and the controller is the command line in another one. It dies before a write is
carried out, or after that and before the answer comes, so every gap between two writes is taken. The audit log is a
file, so also the gap between its line and the write of status is real.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from attestors.wire import statement
from attestors.wire.ssh.certificate import parse_certificate_line
from attestors.wire.ssh.krl import parse_revocation_list
from attestors.wire.statement import MAXIMUM_NODE_ACCESS_TRUST_BYTES, NodeAccessTrust
from attestors.wire.statement.names import NODE_ACCESS_CONFIG_MAP, STATEMENT_KEY, STATEMENT_NAMESPACE
from signer.audit.access_line import EndLine, GrantsSoFar, IssuanceLine, read_end_line, read_issuance_line
from signer.audit.chain import ACCESS_ENDED, ACCESS_ISSUED, ChainedLine, read_lines
from signer.kube.resources import ACCESS_GRANTS
from signer.model.access.bastion import FINALIZER as BASTION_FINALIZER
from signer.model.access.grant import HEARTBEAT_ANNOTATION
from signer.model.fields import parse_time
from signer.testing.api import Request
from signer.testing.fixtures import embedded_api
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.integration.access.test_wing import SSH, install
from tests.integration.access.world import BASTION, ready_bastion
from tests.integration.fixtures import CONTROLLER_USER, Harness
from tests.integration.host_certificates import wait_for_authorities
from tests.integration.test_kill import configure, controller
from tests.support.access_objects import ALICE, USER_KEY

pytestmark = pytest.mark.slow

LONG: Final = bool(os.environ.get("NODE_ATTESTATION_ACCESS"))
KILLS: Final = 6
"""In CI: a kill costs two seconds, for the next process to start. ``make access`` kills at each write, twice."""
STAGE_SECONDS: Final = 60.0
Way = Literal["before", "after"]
WAYS: Final[tuple[Way, ...]] = ("before", "after")
WRITES: Final = {
    "finalizer": "PATCH */accessgrants/repair",
    "record, journal and certificates": "PATCH */accessgrants/repair/status",
    "bastion made": "POST */bastions",
    "bastion deleted": "DELETE */bastions/repair",
    "list of revocations": "* */configmaps*-ssh-access-revocations",
    "trust bundle": "PUT */configmaps/node-access-trust",
}
"""The writes of a grant's life, by what they write."""


def is_of_life(request: Request) -> bool:
    """Whether the controller writes for the grant, not by the way: dry runs, reviews, Events and reports are left."""
    call = f"{request.method} {request.path}"
    return (
        request.user.name == CONTROLLER_USER
        and request.method != "GET"
        and "dryRun" not in request.query
        and any(fnmatch(call, pattern) for pattern in WRITES.values())
    )


class Reaper:
    """Sends SIGKILL to the controller at one write of its own, once, and keeps the writes."""

    def __init__(self, *apis: Any) -> None:
        self._lock = threading.Lock()
        self._victim: subprocess.Popen[bytes] | None = None
        self._way: Way = "before"
        self._left = 0
        self.writes: list[str] = []
        for api in apis:
            for way in WAYS:
                api.faults.inject(lambda request, way=way: self._strikes(request, way), drop=way, times=None)

    def aim(self, victim: subprocess.Popen[bytes], number: int, way: Way) -> None:
        """At that write from now on, counted from 0."""
        with self._lock:
            self._victim, self._left, self._way = victim, number, way

    def rest(self) -> None:
        """Aim no more."""
        with self._lock:
            self._victim = None

    def _strikes(self, request: Request, way: Way) -> bool:
        if not is_of_life(request):
            return False
        with self._lock:
            if way == WAYS[0]:
                self.writes.append(f"{request.method} {request.path}")
            victim = self._victim
            if victim is None or way != self._way:
                return False
            if self._left:
                self._left -= 1
                return False
            self._victim = None
        victim.send_signal(signal.SIGKILL)
        return True


@dataclass
class Life:
    """One controller after the other, and people who make grants."""

    harness: Harness
    cluster: WorldCluster
    folder: Path
    start: Callable[[], subprocess.Popen[bytes]]
    audit: Path
    reaper: Reaper
    process: subprocess.Popen[bytes] = field(init=False)
    deaths: int = 0
    seen: set[str] = field(default_factory=set)
    """Key ids of certificates that people could read."""

    def __post_init__(self) -> None:
        self.process = self.start()

    def whole(self) -> None:
        """A grant with a bastion: made, kept alive, suspended, unsuspended, deleted."""
        self._create()
        self._until("issued", lambda: self._has_certificates(0))
        issued = max(parse_time(one["issuedTime"]) for one in self._journal())
        self._until("a heartbeat in a later second", lambda: datetime.now(UTC) >= issued + timedelta(seconds=1))
        self._edit({"metadata": {"annotations": {HEARTBEAT_ANNOTATION: "1"}}})
        self._until("kept alive", lambda: self._has_certificates(0) and len(self._journal()) == 4)
        self._edit({"spec": {"suspend": True}})
        self._until("suspended", self._is_over)
        assert self.seen <= self.published(), "sessions are reported terminated once nodes can know"
        self._edit({"spec": {"suspend": False}})
        self._until("issued again", lambda: self._has_certificates(1))
        self.harness.api.delete("accessgrants", "repair", "default")
        self._until("gone", lambda: not self._found() and not self.harness.api.objects("bastions", "default"))

    def _until(self, what: str, reached: Callable[[], bool]) -> None:
        """Wait, with a new controller for each that has died, and the bastion controller's work in between."""
        end = time.monotonic() + STAGE_SECONDS
        while not reached():
            if self.process.poll() is not None:
                assert self.process.returncode == -signal.SIGKILL, (self.folder / "log").read_text()[-4000:]
                self.deaths += 1
                self.process = self.start()
            assert time.monotonic() < end, (
                what,
                self._found().get("status"),
                (self.folder / "log").read_text()[-4000:],
            )
            self._bastion_controller()
            self.seen |= {key_id for key_id, _ in self._certificates()}
            time.sleep(0.02)

    def _create(self) -> None:
        self.harness.api.create(
            {
                "apiVersion": ACCESS_GRANTS.api_version,
                "kind": "AccessGrant",
                "metadata": {"name": "repair", "namespace": "default"},
                "spec": {
                    "clusterRef": {"name": self.cluster.name},
                    "target": {"nodes": ["worker-1"]},
                    "sshPublicKey": USER_KEY,
                    "createdBy": dict(ALICE),
                    **BASTION,
                },
            }
        )

    def _edit(self, patch: dict[str, Any]) -> None:
        self.harness.api.patch("accessgrants", "repair", patch, "default")

    def _found(self) -> dict[str, Any]:
        return next(iter(self.harness.api.objects("accessgrants", "default")), {})

    def _status(self) -> dict[str, Any]:
        found: dict[str, Any] = self._found().get("status") or {}
        return found

    def _journal(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = (self._status().get("record") or {}).get("journal", [])
        return entries

    def _certificates(self) -> list[tuple[str, int]]:
        """Key ids and serial numbers of those in the status. Each has its entry in the journal of the same object."""
        status = self._status()
        lines = [one["certificate"] for one in status.get("certificates") or ()]
        found = [parse_certificate_line(line).certificate for line in lines]
        journal = {(one["keyID"], one["serialNumber"]) for one in (status.get("record") or {}).get("journal", ())}
        pairs = [(str(one.key_id), int(one.serial)) for one in found]
        assert {(key_id, str(serial)) for key_id, serial in pairs} <= journal
        return pairs

    def _has_certificates(self, epoch: int) -> bool:
        key_ids = [key_id for key_id, _ in self._certificates()]
        return len(key_ids) == 2 and all(key_id.endswith("/1") is bool(epoch) for key_id in key_ids)

    def _is_over(self) -> bool:
        conditions = self._status().get("conditions") or ()
        over = any(one["type"] == "SessionsTerminated" and one["status"] == "True" for one in conditions)
        return over and not self.harness.api.objects("bastions", "default")

    def _bastion_controller(self) -> None:
        api = self.harness.api
        for bastion in api.objects("bastions", "default"):
            name, metadata = bastion["metadata"]["name"], bastion["metadata"]
            if "deletionTimestamp" in metadata:
                api.patch("bastions", name, {"metadata": {"finalizers": []}}, "default")
            elif BASTION_FINALIZER not in metadata.get("finalizers", ()):
                metadata = api.patch("bastions", name, {"metadata": {"finalizers": [BASTION_FINALIZER]}}, "default")[
                    "metadata"
                ]
                api.patch("bastions", name, {"status": ready_bastion(metadata["generation"])}, "default", "status")

    # What is left

    def logged(self) -> tuple[list[IssuanceLine], list[EndLine]]:
        """The lines of access in the audit log, each verified."""
        issued, ended = [], []
        grants = GrantsSoFar.none()
        for line in read_lines(self.audit):
            assert isinstance(line, ChainedLine), line
            if line.kind == ACCESS_ISSUED:
                issued.append(read_issuance_line(line.content))
                grants.issued(issued[-1])
            if line.kind == ACCESS_ENDED:
                ended.append(read_end_line(line.content))
                grants.end(ended[-1])
        return issued, ended

    def revoked(self) -> dict[str, datetime]:
        """Key ids in the list of revocations, and until when."""
        maps = self.harness.api.objects("configmaps", "default")
        texts = [one["data"]["revocations"] for one in maps if one["metadata"]["name"].endswith("access-revocations")]
        return {entry["keyID"]: parse_time(entry["until"]) for text in texts for entry in json.loads(text)}

    def published(self) -> frozenset[str]:
        """The key ids that the trust bundle revokes, as nodes read it."""
        found = embedded_api(self.cluster).get("configmaps", NODE_ACCESS_CONFIG_MAP, STATEMENT_NAMESPACE)
        text = found["data"][STATEMENT_KEY].encode()
        payload = statement.decode(text, maximum_bytes=MAXIMUM_NODE_ACCESS_TRUST_BYTES).statement.payload
        assert isinstance(payload, NodeAccessTrust)
        listed = parse_revocation_list(payload.revocation_list).certificates
        return frozenset(key_id for one in listed for key_id in one.key_ids)

    def assert_nothing_is_left(self) -> None:
        """No object, no certificate that is not logged or can still be used, and no entry of another one."""
        api = self.harness.api
        assert (api.objects("accessgrants"), api.objects("bastions")) == ([], [])
        issued, ended = self.logged()
        last_end = {line.key_id: line.not_after for line in sorted(issued, key=lambda line: line.not_after)}
        assert self.seen <= last_end.keys(), "each certificate that left was logged"
        assert last_end.keys() == {line.key_id for line in ended}
        assert self.revoked().keys() == self.published() == last_end.keys()
        assert all(until <= last_end[key_id] for key_id, until in self.revoked().items())


@contextmanager
def life(harness: Harness, folder: Path) -> Iterator[Life]:
    """A cluster with an attested node and its SSH authorities, served by the command line."""
    install(harness)
    cluster = harness.cluster(policy={"ssh": {"access": {}}})
    made_the_authorities = harness.run(ssh=SSH)
    harness.join(cluster, "worker-1")
    addresses = [{"type": "InternalIP", "address": "10.0.0.5"}]
    cluster.set_machine_status({"metadata": {"name": "worker-1"}}, {"addresses": addresses})
    wait_for_authorities(cluster)
    made_the_authorities.kill()
    access = {"namespaces": ["default"], "creatorVerification": "Unverified", "bastions": ["local"]}
    configure(harness, folder, ssh={"namespaces": ["default"]}, access=access)
    audit = folder / "audit.log"
    options = ("--ssh", "--access", "--controller-namespace", CONTROLLER_NAMESPACE, "--audit-log-path", str(audit))
    reaper = Reaper(harness.api, embedded_api(cluster))
    with ExitStack() as stack:
        yield Life(harness, cluster, folder, lambda: stack.enter_context(controller(folder, *options)), audit, reaper)


def test_36_sigkill_at_each_write(harness: Harness, tmp_path: Path) -> None:
    """One world for all kills: each is in a life of its own."""
    with life(harness, tmp_path) as lives:
        lives.whole()
        writes = lives.reaper.writes.copy()
        for what, pattern in WRITES.items():
            assert any(fnmatch(call, pattern) for call in writes), f"no life without a write of the {what}"
        points = [(number, way) for number in range(len(writes)) for way in WAYS]
        chosen = points if LONG else points[:: len(points) // KILLS]
        missed = []
        for number, way in chosen:
            deaths = lives.deaths
            lives.reaper.aim(lives.process, number, way)
            lives.whole()
            lives.reaper.rest()
            lives.assert_nothing_is_left()
            assert lives.deaths - deaths <= 1
            if lives.deaths == deaths:
                missed.append((number, way))
        # A life may have a write of conditions more or less than the first one.
        assert all(number >= len(writes) - 2 for number, _ in missed), missed
        print(f"killed at {lives.deaths} of {len(points)} points between writes")
