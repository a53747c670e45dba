"""Plays the controller's part of AccessGrants: real certificates in the status, new ones after each heartbeat.

It checks nothing: it is there for tests of the client.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from attestors.wire.ssh.certificate import Certificate, CertificateKind, SignedCertificate
from attestors.wire.ssh.key_line import key_line, parse_key_line
from attestors.wire.ssh.keys import PublicKey
from attestors.wire.ssh.options import Extension
from attestors.wire.ssh.principals import LoginOnNode, UserPrincipal
from attestors.wire.ssh.signatures import PrivateKey, public_key_of, sign
from signer.kube.connection import ClusterConnection
from signer.kube.errors import ApiError
from signer.kube.resources import ACCESS_GRANTS
from signer.testing.clients import BlockingClient
from tests.support.closing import ClosedAtTheEnd
from tests.support.openssh import private_key

USER_AUTHORITY: Final = private_key("ed25519", 310)
HOST_AUTHORITY: Final = private_key("ed25519", 311)
NAMESPACE: Final = "default"
HEARTBEAT: Final = "access.cluster.x-k8s.io/heartbeat"
_POLL_SECONDS: Final = 0.05
_CONDITIONS: Final = ("CreatorProven", "Authorized", "Approved", "BastionReady", "Ready")


@dataclass(slots=True)
class Behaviour:
    """What the next status is like. Tests change it."""

    address: str = "127.0.0.1"
    port: int = 22
    time_to_live: float = 3600.0
    certificate_seconds: float = 1800.0
    bastion: Mapping[str, Any] = field(default_factory=dict)
    """``status.ingress``."""
    bastion_key: str = ""
    """Line of its host key."""
    holds: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Conditions that are False: reason and message."""
    is_silent: bool = False
    """Nothing is answered."""
    change: Callable[[dict[str, Any]], None] = lambda status: None
    """Changes the status before it is written."""
    on_issue: Callable[[dict[str, Any]], None] = lambda grant: None
    """Called with the grant before its certificates are written."""


def issue(
    key: PublicKey, *principals: UserPrincipal, seconds: float = 1800.0, by: PrivateKey = USER_AUTHORITY, **changes: Any
) -> SignedCertificate:
    """A user certificate."""
    now = int(time.time())
    made = Certificate(
        **{
            "public_key": key,
            "kind": CertificateKind.USER,
            "serial": int.from_bytes(os.urandom(7), "big") + 1,
            "key_id": "grant/default/test/uid/alice",
            "principals": principals,
            "valid_after": now - 60,
            "valid_before": int(now + seconds),
            "authority": public_key_of(by),
            "nonce": os.urandom(32),
            "extensions": (Extension.PERMIT_PORT_FORWARDING, Extension.PERMIT_PTY),
            **changes,
        }
    )
    return SignedCertificate(made, sign(by, made.signed_bytes))


def status_of(grant: Mapping[str, Any], behaviour: Behaviour) -> dict[str, Any]:
    """The status of a grant that was just kept alive."""
    spec, metadata = grant["spec"], grant["metadata"]
    cluster, now = spec["clusterRef"]["name"], time.time()
    nodes = spec["target"].get("nodes", ["worker-1"])
    key = parse_key_line(spec["sshPublicKey"])
    logins = spec.get("logins", ["root"])
    hops = {"node": issue(key, *(LoginOnNode(login, node) for login in logins for node in nodes),
                          seconds=behaviour.certificate_seconds)}  # fmt: skip
    known = [f"@cert-authority *.{cluster}.{metadata['namespace']} {key_line(public_key_of(HOST_AUTHORITY))}"]
    if behaviour.bastion:
        hops["bastion"] = issue(key, LoginOnNode("bastion", metadata["uid"]), seconds=behaviour.certificate_seconds)
        known.append(f"bastion {behaviour.bastion_key}")
    status: dict[str, Any] = {
        "observedGeneration": metadata["generation"],
        "lastHeartbeatTimestamp": _text(now),
        "expirationTimestamp": _text(now + behaviour.time_to_live),
        "certificates": [
            {"hop": hop, "certificate": one.line, "serial": str(one.certificate.serial)} for hop, one in hops.items()
        ],
        "knownHosts": known,
        "targets": [{"node": node, "addresses": [behaviour.address], "port": behaviour.port} for node in nodes],
        "conditions": [_condition(name, behaviour) for name in _CONDITIONS],
        **({"ingress": dict(behaviour.bastion)} if behaviour.bastion else {}),
    }
    if behaviour.holds:
        del status["certificates"]
    behaviour.change(status)
    return status


class GrantController(ClosedAtTheEnd):
    """Answers grants until it is closed."""

    def __init__(self, connection: ClusterConnection) -> None:
        self.behaviour = Behaviour()
        self.client = BlockingClient(connection)
        self._seen: dict[str, tuple[object, ...]] = {}
        self._stop = threading.Event()
        self.client.__enter__()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._stop.set()
        self._thread.join()
        self.client.__exit__(None, None, None)

    def grants(self) -> list[dict[str, Any]]:
        """All grants."""
        return self.client.items(ACCESS_GRANTS.collection(NAMESPACE))

    def forget(self) -> None:
        """Delete every grant, and behave as at first."""
        self.behaviour = Behaviour()
        for one in self.grants():
            with contextlib.suppress(ApiError):
                self.client.delete(ACCESS_GRANTS.object(one["metadata"]["name"], NAMESPACE))

    def answer(self, name: str) -> None:
        """Write the status of a grant now, with new certificates."""
        grant = self.client.get(ACCESS_GRANTS.object(name, NAMESPACE))
        self._write(grant)

    def _run(self) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            if self.behaviour.is_silent:
                continue
            for grant in self.grants():
                metadata = grant["metadata"]
                beat = (metadata.get("annotations") or {}).get(HEARTBEAT)
                seen = (beat, metadata["generation"], id(self.behaviour.holds))
                if self._seen.get(metadata["uid"]) != seen:
                    with contextlib.suppress(ApiError):  # deleted since
                        self._write(grant)
                        self._seen[metadata["uid"]] = seen

    def _write(self, grant: dict[str, Any]) -> None:
        self.behaviour.on_issue(grant)
        path = f"{ACCESS_GRANTS.object(grant['metadata']['name'], NAMESPACE)}/status"
        self.client.patch(path, {"status": {"certificates": None, **status_of(grant, self.behaviour)}})


def _condition(name: str, behaviour: Behaviour) -> dict[str, Any]:
    reason, message = behaviour.holds.get(name, ("SuccessfullyReconciled", ""))
    return {
        "type": name,
        "status": "False" if name in behaviour.holds or (behaviour.holds and name == "Ready") else "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": _text(time.time()),
    }


def _text(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
