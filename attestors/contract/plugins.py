"""The two halves of an attestor, and what its entry point names."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from attestors.contract.facts import (
    ClaimedMachine,
    ManagementCluster,
    NoClaimedMachine,
    NoManagementCluster,
    OtherToken,
    RequesterCredential,
)
from attestors.contract.outcome import InvalidOutcome, IPAddress, Outcome, PreFiltered, require_tuple_of
from attestors.contract.recorded_calls import UNRECORDED, RecordedCalls
from attestors.contract.settings import AttestorSettings
from attestors.wire.binding import Binding
from attestors.wire.evidence import VERSION_FORM, Evidence
from attestors.wire.names import Purpose

_NO_MACHINE: Final = NoClaimedMachine()
_NOBODY_LOOKED: Final = OtherToken("nobody has looked whose bootstrap token it is")


class EvidenceUnavailable(Exception):
    """The agent plugin cannot gather evidence; the message says why and what to do, for a person at that node."""


class Security(enum.Enum):
    """Whether an attestor proves anything."""

    SECURE = "secure"
    INSECURE = "insecure"


@dataclass(frozen=True, slots=True)
class AttestorDescription:
    """What the core must know of an attestor before it hands it a request.

    An insecure attestor neither renews nor serves (proposal, "Insecure providers").
    """

    provider: str
    """The name in its signer names and in the entry point."""
    security: Security
    evidence_versions: tuple[str, ...]
    """Versions it reads, newest last."""
    renews: bool
    serves: bool

    def __post_init__(self) -> None:
        # Not every attestor is type-checked: the text "insecure" would not be taken for what it says.
        if not isinstance(self.security, Security):
            raise InvalidOutcome("an attestor's security is Security.SECURE or Security.INSECURE")
        if not all(isinstance(declared, bool) for declared in (self.renews, self.serves)):
            raise InvalidOutcome("renews and serves are True or False")
        require_tuple_of("evidence_versions", self.evidence_versions, str)
        if self.security is Security.INSECURE and (self.renews or self.serves):
            raise InvalidOutcome("an insecure attestor can neither renew nor sign serving certificates")
        if not all(VERSION_FORM.fullmatch(version) for version in self.evidence_versions):
            raise InvalidOutcome('an evidence version is "v" and a number')
        if not self.evidence_versions:
            raise InvalidOutcome("an attestor must read at least one evidence version")


@dataclass(frozen=True, slots=True)
class AttestationRequest:
    """One request as an attestor's server plugin sees it.

    Shape, requester and policy were checked before; nothing in here is believed yet but ``binding``, the cluster,
    ``machine``, ``management`` and ``now``, which are ours.
    """

    provider_id: str
    """The claim in the CSR's extension."""
    evidence: Evidence
    binding: Binding
    """What the evidence must commit to."""
    cluster_namespace: str
    cluster_name: str
    csr_uid: str
    """UID of the CertificateSigningRequest, for challenges."""
    dns_names: tuple[str, ...]
    """Subject alternative names asked for; empty for client certificates."""
    ip_addresses: tuple[IPAddress, ...]
    now: datetime
    machine: ClaimedMachine | NoClaimedMachine = _NO_MACHINE
    credential: RequesterCredential = _NOBODY_LOOKED
    management: ManagementCluster = field(default_factory=NoManagementCluster, repr=False, compare=False)
    recorded_calls: RecordedCalls = field(default=UNRECORDED, repr=False, compare=False)
    """Through which others are asked, by attestors that are :class:`~attestors.contract.Auditable`."""


class ServerPlugin(Protocol):
    """Verifies evidence, in the management cluster. One instance serves one workload cluster, many requests at once.

    No method needs to catch anything: :class:`~attestors.wire.evidence.MalformedEvidence` and
    :class:`~attestors.wire.binding.BindingMismatch` become denials, every other exception a counted Defer. Check
    locally before calling out.
    """

    def pre_filter(self, request: AttestationRequest) -> PreFiltered:
        """Say a cheap no where the evidence can be seen to be wrong without asking anybody.

        Asked while a requester has many requests waiting, to find those that deserve their turn: what is refused here
        waits behind what is plausible, and both are judged again in full. For requests of both purposes. Synchronous,
        without network, files or memory of other requests, in about a millisecond: a MAC, a signature, a certificate
        chain. Where it cannot be told, the evidence is plausible. Every exception refuses, and one that is not
        MalformedEvidence or BindingMismatch is logged as a defect.
        """
        ...

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        """Judge the evidence of a request for a kubelet client certificate."""
        ...

    async def verify_serving(self, request: AttestationRequest) -> Outcome:
        """Judge the evidence of a request for a kubelet serving certificate.

        What the platform knows of the machine's names and addresses goes into the outcome; the core compares.
        """
        ...


@dataclass(frozen=True, slots=True)
class GatherRequest:
    """What the agent plugin needs to make evidence."""

    binding: Binding
    cluster: str
    """The cluster's CA certificate hash, ``sha256:`` and hexadecimal digits."""
    evidence_version: str
    purpose: Purpose
    challenge: str
    """The controller's challenge, or the empty string on the first request."""


class AgentPlugin(Protocol):
    """Gathers evidence, on the node. Plain synchronous code: it runs inside a short-lived process."""

    def provider_id(self) -> str:
        """This machine's provider ID, as far as the platform can tell.

        Raises:
            EvidenceUnavailable: the platform does not say; then it must be configured.
        """
        ...

    def gather(self, request: GatherRequest) -> Evidence:
        """Make evidence that commits to ``request.binding``.

        Raises:
            EvidenceUnavailable: with a sentence for a person.
        """
        ...


class Attestor(Protocol):
    """What the entry point names: light to import; each half imports its libraries when it is asked for."""

    @property
    def description(self) -> AttestorDescription:
        """What the core must know before it asks for a half."""
        ...

    def server_plugin(self, settings: AttestorSettings) -> ServerPlugin:
        """The server plugin with these settings.

        Raises:
            InvalidSettings: a setting is wrong.
            ImportError: a library of the attestor's extra is not installed.
        """
        ...

    def agent_plugin(self, settings: Mapping[str, str]) -> AgentPlugin:
        """The agent plugin with these settings (flags, environment or file of ``kubelet-authenticator``).

        Raises:
            InvalidSettings: a setting is wrong.
            ImportError: a library of the attestor's extra is not installed.
        """
        ...
