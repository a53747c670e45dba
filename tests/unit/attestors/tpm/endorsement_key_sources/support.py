"""A management cluster of words, and requests about one machine."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from attestors.contract import (
    AttestationRequest,
    ClaimedMachine,
    Document,
    DocumentKind,
    Host,
    MachineRole,
    NoClaimedMachine,
    NotThere,
)
from attestors.tpm.endorsement import (
    VerifiedEndorsementCertificate,
    load_endorsement_authorities,
    verify_endorsement_certificate,
)
from attestors.tpm.endorsement_key_sources import INVENTORY_KEY, CertificateNotVerified
from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION
from tests.unit.attestors.support import NOW, attestation_request, evidence_of
from tests.unit.attestors.tpm.endorsement.support import intermediate, root
from tests.unit.attestors.tpm.fake_tpm import FakeTPM

CHIP: Final = FakeTPM.new().certified()
OTHER: Final = FakeTPM.new(2).certified()
NOT_VERIFIED: Final = CertificateNotVerified()


def certificate_of(chip: FakeTPM) -> VerifiedEndorsementCertificate:
    """Its certificate, verified."""
    return verify_endorsement_certificate(
        chip.certificate,
        endorsement_key=chip.key.key,
        authorities=load_endorsement_authorities(roots=[root()], intermediates=[intermediate()]),
        at=NOW,
    )


def annotated(said: str | None, key: str = ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION) -> Mapping[str, str]:
    return MappingProxyType({} if said is None else {key: said})


def machine(said: str | None = None, name: str = "worker-1", **facts: Any) -> ClaimedMachine:
    return ClaimedMachine(name, annotated(said), **facts)


@dataclass
class Cluster:
    """What can be looked up; what is an exception is raised. It remembers what it was asked."""

    infrastructure: Mapping[str, str] | NotThere | Exception = field(default_factory=dict)
    documents: Mapping[tuple[DocumentKind, str], Document | Exception] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    on_host: Host | NotThere = field(default_factory=lambda: NotThere("there is no host"))

    async def host(self) -> Host | NotThere:
        self.asked.append("host")
        return self.on_host

    async def infrastructure_annotations(self) -> Mapping[str, str] | NotThere:
        self.asked.append("InfraMachine")
        if isinstance(self.infrastructure, Exception):
            raise self.infrastructure
        return self.infrastructure

    async def document(self, kind: DocumentKind, name: str) -> Document | NotThere:
        self.asked.append(f"{kind.value} {name}")
        found = self.documents.get((kind, name), NotThere(f"{kind.value} {name} is not there"))
        if isinstance(found, Exception):
            raise found
        return found


def listed(text: str, version: str = "1", key: str = INVENTORY_KEY) -> Cluster:
    """A cluster with ConfigMap ``inventory`` of that content."""
    document = Document(MappingProxyType({key: text}), version)
    return Cluster(documents={(DocumentKind.CONFIG_MAP, "inventory"): document})


def request(
    claimed: ClaimedMachine | NoClaimedMachine | None = None, cluster: Cluster | None = None, **changes: Any
) -> AttestationRequest:
    made = attestation_request(evidence_of({}))
    return replace(made, machine=claimed or machine(), management=cluster or Cluster(), **changes)


def at_once(asking: Coroutine[Any, Any, Any]) -> Any:
    """Nothing here waits for anybody."""
    try:
        asking.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


ROLES: Final = tuple(MachineRole)
