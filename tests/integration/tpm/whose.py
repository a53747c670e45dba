"""Clusters that prefer one or the other source of whose TPM it is, and machines with bootstrap tokens of their own."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from attestors.wire.names import ANNOTATION_PREFIX
from signer.configuration import OperatorAttestor
from signer.kube.client import JsonObject
from signer.model.cluster import CONTROL_PLANE_LABEL
from signer.model.explain_command import without_hint
from signer.testing.world import Verdict, WorldCluster
from tests.integration.fixtures import Harness, assert_readable, certificate_of, pending, provider_id
from tests.integration.tpm.fake_tpm_node import FakeTPMNode
from tests.support.processes import wait_until
from tests.unit.attestors.tpm.endorsement.support import intermediate, root
from tests.unit.attestors.tpm.fake_tpm import FakeTPM

NUMBERS: Final = itertools.count(5000)
SEVERAL_KEYS: Final = "several-keys"
"""The namespace where chips may have two endorsement keys."""
FIRST_USE: Final = ("MachineAnnotation", "TrustOnFirstUse")


def chip() -> FakeTPM:
    """A chip that nobody has seen, by the maker whom the operator trusts."""
    return FakeTPM.new(next(NUMBERS)).certified()


def csr(what: str = "csr") -> str:
    """A name for a request."""
    return f"{what}-{next(NUMBERS)}"


@dataclass(frozen=True)
class OperatorFolder:
    """What the operator mounts: authorities, and a deny list."""

    path: Path

    def __post_init__(self) -> None:
        for name, content in (("roots", root()), ("intermediates", intermediate())):
            (self.path / name).mkdir()
            (self.path / name / "maker.der").write_bytes(content)
        self.deny()

    @property
    def denied(self) -> Path:
        return self.path / "denied"

    def deny(self, *chips: FakeTPM) -> None:
        """Write the deny list, as a careful operator does: in one go."""
        self.write(*(chip.fingerprint for chip in chips))

    def write(self, *entries: str) -> None:
        """Write these entries: keys or chips."""
        new = self.path / "denied.new"
        new.write_text("\n".join(["# These and no others.", *entries]) + "\n")
        new.replace(self.denied)

    @property
    def attestors(self) -> dict[str, OperatorAttestor]:
        """The controller's configuration."""
        settings = {
            "endorsementRootsFolder": str(self.path / "roots"),
            "endorsementIntermediatesFolder": str(self.path / "intermediates"),
            "deniedEndorsementKeysFile": str(self.denied),
            "allowTrustOnFirstUse": True,
            "endorsementKeyTemplates": ["ecc-p256"],
        }
        several = {"endorsementKeyTemplates": ["rsa-2048", "ecc-p256"]}
        return {"tpm": OperatorAttestor(settings=settings, settings_by_namespace={SEVERAL_KEYS: several})}


def cluster_of(
    harness: Harness,
    name: str,
    *sources: str,
    inventory: str = "",
    builtin_serving_requests: str = "Ignore",
    **more: Any,
) -> WorldCluster:
    """A cluster whose policy prefers these sources; ``inventory`` is the ConfigMap's name."""
    settings: dict[str, Any] = {"endorsementKeySources": list(sources)} if sources else {}
    if inventory:
        settings["inventory"] = {"kind": "ConfigMap", "name": inventory}
    authorized = [{"name": "tpm", "settings": settings}]
    return harness.cluster(
        name,
        ["tpm"],
        policy={"authorizedAttestors": authorized, "builtinServingRequests": builtin_serving_requests},
        **more,
    )


def add_worker(
    cluster: WorldCluster,
    *,
    owner: JsonObject | None = None,
    control_plane: bool = False,
    annotations: Mapping[str, str] | None = None,
) -> FakeTPMNode:
    """A Machine whose bootstrap token Cluster API made for it alone, and its node with a chip that nobody has said."""
    name = f"worker-{next(NUMBERS)}"
    machine = cluster.add_machine(name, owner=owner)
    token = cluster.api.bootstrap_token()
    cluster.add_kubeadm_config(name, token, machine)
    # Its provider ID comes last, as from a provider: by then the token is known.
    labels = {CONTROL_PLANE_LABEL: ""} if control_plane else {}
    patch = {
        "metadata": {"labels": labels, "annotations": dict(annotations or {})},
        "spec": {"providerID": provider_id(name)},
    }
    cluster.patch_machine(name, patch)
    return FakeTPMNode(cluster, name, chip(), token=token)


def nudge(node: FakeTPMNode) -> None:
    """Change the Machine, so that what waits for it is looked at again at once."""
    annotations = {f"{ANNOTATION_PREFIX}/of-no-meaning": f"{next(NUMBERS)}"}
    node.cluster.patch_machine(node.machine, {"metadata": {"annotations": annotations}})


def decided_at_last(node: FakeTPMNode, name: str) -> Verdict:
    """The verdict of a request that waits; what it waits for may be seen a second after it has changed."""

    def decided() -> bool:
        nudge(node)
        return node.cluster.verdict(name).condition != ""

    wait_until(decided, f"{name} is decided")
    return node.cluster.verdict(name)


def assert_denied(verdict: Verdict, reason: str, part: str = "") -> None:
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Denied", reason, b""), verdict
    assert_readable(verdict.message)
    assert part in verdict.message


def assert_joins(node: FakeTPMNode) -> FakeTPMNode:
    """Returns it as it renews."""
    verdict = node.attest(csr())
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    assert certificate_of(verdict).subject.rfc4514_string() == f"CN=system:node:{node.machine},O=system:nodes"
    return node.joined(verdict)


def assert_waits(harness: Harness, node: FakeTPMNode, part: str, *, about: str = "", kind: str = "Machine") -> str:
    """Its first request waits and is not challenged. Returns the request's name.

    Another one is posted where nothing is said of ``part``: tokens may be known later than Machines, and of a request
    that waits a reason is said once.
    """
    name = csr()
    node.post(name, node.chip.first())
    try:
        message = harness.wait_for_event("EndorsementKeyUnknown", about or node.machine, kind, part=part, seconds=3)
    except AssertionError:
        name = csr()
        node.post(name, node.chip.first())
        message = harness.wait_for_event("EndorsementKeyUnknown", about or node.machine, kind, part=part)
    assert_readable(message)
    assert without_hint(message).endswith(f"the request shows {node.chip.fingerprint}")
    assert pending(node.cluster, name).annotations == {}
    return name
