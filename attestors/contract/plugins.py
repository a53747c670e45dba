"""The agent plugin and the server plugin of an attestor, and the object that its entry point names."""

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
_UNCHECKED_CREDENTIAL: Final = OtherToken("the owner of the bootstrap token was not looked up")


class EvidenceUnavailable(Exception):
    """The agent plugin cannot gather evidence; the message gives cause and remedy, for a person at that node."""


class Security(enum.Enum):
    """Whether an attestor proves anything about the machine."""

    SECURE = "secure"
    INSECURE = "insecure"


class Freshness(enum.Enum):
    """How an attestor knows that evidence is not a replay (proposal, "Provider Specification").

    The binding alone leaves a replay of the same request for the same key. A secure attestor excludes that as well.
    """

    CHALLENGE = "challenge"
    """The node answers a challenge of the controller."""
    TIMESTAMP = "timestamp"
    """The signed part of the evidence states a time, and the attestor refuses evidence that is too old."""
    NONE = "none"
    """It does not know. Only the insecure attestor may say so."""


INSECURE_PROVIDER: Final = "insecure"
"""The only attestor that may prove nothing (proposal: an insecure provider must use this signer)."""


@dataclass(frozen=True, slots=True)
class AttestorDescription:
    """What the core must know about an attestor before it passes it a request."""

    provider: str
    """The provider name, as in its signer names and its entry point."""
    security: Security
    evidence_versions: tuple[str, ...]
    """Evidence versions that the attestor reads, newest last."""
    freshness: Freshness
    attests_without_provider_id: bool = False
    """Whether the attestor can tell by something else than the provider ID which Machine a request comes from. If so,
    the core passes it requests for Machines that show no provider ID yet: see :attr:`ClaimedMachine.match`."""

    @property
    def renews(self) -> bool:
        """Whether nodes renew their client certificates by attestation.

        A secure attestor must renew and serve, an insecure one cannot (proposal, "Provider Specification").
        """
        return self.security is Security.SECURE

    @property
    def serves(self) -> bool:
        """Whether the attestor verifies requests for serving certificates; as :attr:`renews`."""
        return self.security is Security.SECURE

    def __post_init__(self) -> None:
        # Not every attestor is type-checked: the text "insecure" would compare unequal to Security.INSECURE.
        if not isinstance(self.security, Security):
            raise InvalidOutcome("an attestor's security is Security.SECURE or Security.INSECURE")
        if not isinstance(self.freshness, Freshness):
            raise InvalidOutcome("an attestor's freshness is Freshness.CHALLENGE, TIMESTAMP or NONE")
        if not isinstance(self.attests_without_provider_id, bool):
            raise InvalidOutcome("attests_without_provider_id is True or False")
        require_tuple_of("evidence_versions", self.evidence_versions, str)
        insecure = self.security is Security.INSECURE
        if insecure != (self.provider == INSECURE_PROVIDER):
            raise InvalidOutcome(
                f"the attestor called {INSECURE_PROVIDER} is insecure and no other is: {self.provider} declares itself "
                f"{self.security.value}"
            )
        if not insecure and self.freshness is Freshness.NONE:
            raise InvalidOutcome("a secure attestor verifies that evidence is fresh, by a challenge or by a timestamp")
        if insecure and self.freshness is not Freshness.NONE:
            raise InvalidOutcome("an insecure attestor verifies nothing: its freshness is Freshness.NONE")
        if insecure and self.attests_without_provider_id:
            raise InvalidOutcome("an insecure attestor cannot tell which Machine a request comes from")
        if not all(VERSION_FORM.fullmatch(version) for version in self.evidence_versions):
            raise InvalidOutcome('an evidence version is "v" and a number')
        if not self.evidence_versions:
            raise InvalidOutcome("an attestor must read at least one evidence version")


@dataclass(frozen=True, slots=True)
class AttestationRequest:
    """One request as an attestor's server plugin sees it.

    The core has already checked shape, requester and policy. Trust only ``binding``, the cluster, ``machine``,
    ``management`` and ``now``: the core provides them. Everything else is a claim of the requester.
    """

    provider_id: str
    """The provider ID that the CSR's extension claims."""
    evidence: Evidence
    binding: Binding
    """The value that the evidence must commit to."""
    cluster_namespace: str
    cluster_name: str
    cluster_uid: str
    """UID of the Cluster object. ``clusterctl move`` and a restore change it."""
    csr_uid: str
    """UID of the CertificateSigningRequest, for challenges."""
    dns_names: tuple[str, ...]
    """Requested subject alternative names; empty for client certificates."""
    ip_addresses: tuple[IPAddress, ...]
    now: datetime
    machine: ClaimedMachine | NoClaimedMachine = _NO_MACHINE
    credential: RequesterCredential = _UNCHECKED_CREDENTIAL
    management: ManagementCluster = field(default_factory=NoManagementCluster, repr=False, compare=False)
    recorded_calls: RecordedCalls = field(default=UNRECORDED, repr=False, compare=False)
    """Wraps calls to other parties, for attestors that are :class:`~attestors.contract.Auditable`."""


class ServerPlugin(Protocol):
    """Verifies evidence in the management cluster. One instance serves many concurrent requests of one workload
    cluster.

    No method needs to catch exceptions: :class:`~attestors.wire.evidence.MalformedEvidence` and
    :class:`~attestors.wire.binding.BindingMismatch` become denials, and every other exception a counted Defer. Run
    local checks before calls to other services.
    """

    def pre_filter(self, request: AttestationRequest) -> PreFiltered:
        """Deny evidence that local checks alone show to be wrong.

        The core calls this while a requester has many requests waiting. Requests that are denied here queue behind the
        plausible ones; both are later verified in full. It applies to both purposes. The method is synchronous and
        takes about a millisecond: it checks a MAC, a signature or a certificate chain, and uses no network, files or
        memory of other requests. Evidence that it cannot decide on is plausible. Every exception counts as a denial;
        one other than MalformedEvidence or BindingMismatch is logged as a defect.
        """
        ...

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        """Verify the evidence of a request for a kubelet client certificate."""
        ...

    async def verify_serving(self, request: AttestationRequest) -> Outcome:
        """Verify the evidence of a request for a kubelet serving certificate.

        The outcome holds the machine's names and addresses as the platform knows them; the core compares them with the
        request.
        """
        ...


@dataclass(frozen=True, slots=True)
class GatherRequest:
    """The input from which the agent plugin makes evidence."""

    binding: Binding
    cluster: str
    """The cluster's CA certificate hash: ``sha256:`` and hexadecimal digits."""
    evidence_version: str
    purpose: Purpose
    challenge: str
    """The controller's challenge, or the empty string on the first request."""


class AgentPlugin(Protocol):
    """Gathers evidence on the node. Synchronous: it runs inside a short-lived process."""

    def provider_id(self) -> str:
        """This machine's provider ID, as the platform gives it.

        Raises:
            EvidenceUnavailable: the platform does not give it, so it must be configured.
        """
        ...

    def gather(self, request: GatherRequest) -> Evidence:
        """Make evidence that commits to ``request.binding``.

        Raises:
                EvidenceUnavailable: the message tells a person the cause.
        """
        ...


class Attestor(Protocol):
    """The object that the entry point names. Its import is light: each plugin imports its libraries when built."""

    @property
    def description(self) -> AttestorDescription:
        """What the core must know before it builds a plugin."""
        ...

    def server_plugin(self, settings: AttestorSettings) -> ServerPlugin:
        """Build the server plugin with these settings.

        Raises:
            InvalidSettings: a setting is wrong.
            ImportError: a library of the attestor's extra is not installed.
        """
        ...

    def agent_plugin(self, settings: Mapping[str, str]) -> AgentPlugin:
        """Build the agent plugin with these settings (flags, environment or file of ``kubelet-authenticator``).

        Raises:
            InvalidSettings: a setting is wrong.
            ImportError: a library of the attestor's extra is not installed.
        """
        ...
