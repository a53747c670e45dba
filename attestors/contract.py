"""The plugin contract: what an attestor implements, and the outcomes it may return.

An attestor says *which machine* the evidence proves. It does not choose the Machine object, the node name or the
certificate: the core does that from the outcome, so no attestor can forget it (the Cluster API proposal's
``MachineName``, moved). The proposal's ``VerifyClientAttestationData`` and ``VerifyServingAttestationData`` are
:meth:`ControllerHalf.verify_client` and :meth:`ControllerHalf.verify_serving`.

A success is a :class:`VerifiedIdentity`, which needs a :class:`~attestors.wire.binding.ProvenBinding`: no attestor can
skip the comparison.
Only an attestor that declares itself :attr:`Security.INSECURE` may return :class:`AssertedIdentity`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final, Protocol, TypeAlias

from attestors.wire.binding import Binding, ProvenBinding
from attestors.wire.evidence import Evidence
from attestors.wire.names import Purpose

IPAddress: TypeAlias = IPv4Address | IPv6Address

_REASON: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")
_MAXIMUM_MESSAGE_CHARACTERS: Final = 512
_MAXIMUM_IDENTITY_CHARACTERS: Final = 1024


class InvalidOutcome(ValueError):
    """An attestor built an outcome that the contract does not allow: a defect of the attestor, never the node's."""


class InvalidSettings(ValueError):
    """An attestor's settings are wrong; the message names the setting and what it should be."""


class EvidenceUnavailable(Exception):
    """The node half cannot gather evidence; the message says why and what to do, for a person at that node."""


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
        if self.security is Security.INSECURE and (self.renews or self.serves):
            raise InvalidOutcome("an insecure attestor can neither renew nor sign serving certificates")
        if not self.evidence_versions:
            raise InvalidOutcome("an attestor must read at least one evidence version")


@dataclass(frozen=True, slots=True)
class ClaimedMachine:
    """What the management cluster says of the Machine whose provider ID a request claims.

    The claim is not proven by it. Whoever may write the cluster's Machines, and the platform's controllers, wrote the
    annotations: a node cannot.
    """

    name: str
    annotations: Mapping[str, str]
    """Those for attestors: their keys begin with ``attestation.cluster.x-k8s.io/``."""


@dataclass(frozen=True, slots=True)
class NoClaimedMachine:
    """No Machine has the claimed provider ID yet, or it is an instance of a MachinePool that has no Machine."""


@dataclass(frozen=True, slots=True)
class AttestationRequest:
    """One request as an attestor's controller half sees it.

    Shape, requester and policy were checked before; nothing in here is believed yet but ``binding``, ``cluster``,
    ``machine`` and ``now``, which are ours.
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
    machine: ClaimedMachine | NoClaimedMachine = NoClaimedMachine()


@dataclass(frozen=True, slots=True)
class VerifiedIdentity:
    """The evidence proves which machine asked, and was made for this very request."""

    provider_id: str
    """What the evidence proves, in the form of ``Machine.spec.providerID``; the core compares it with the claim."""
    identity: str
    """What stays the same for this hardware or instance for as long as it exists, such as a hash of its EK."""
    binding: ProvenBinding
    node_names: tuple[str, ...] = ()
    """Node names that the evidence or the platform gives to this machine; empty when it does not say."""
    dns_names: tuple[str, ...] = ()
    """DNS names that belong to this machine, as the platform says; empty when it does not say."""
    ip_addresses: tuple[IPAddress, ...] = ()
    """IP addresses that belong to this machine, as the platform says; empty when it does not say."""

    def __post_init__(self) -> None:
        _check_identity(self.identity)
        # The type says so already, but not every attestor is type-checked, and the request's own Binding looks alike.
        if type(self.binding) is not ProvenBinding:
            raise InvalidOutcome("a verified identity needs the ProvenBinding that Binding.prove() returned")


@dataclass(frozen=True, slots=True)
class AssertedIdentity:
    """Nothing was proven: the node says who it is. Only from insecure attestors, which need three opt-ins to run."""

    provider_id: str
    identity: str

    def __post_init__(self) -> None:
        _check_identity(self.identity)


@dataclass(frozen=True, slots=True)
class Denied:
    """The evidence is wrong for good. ``reason`` is CamelCase; ``message`` says what to mend and holds no secret."""

    reason: str
    message: str

    def __post_init__(self) -> None:
        _check_reason_and_message(self.reason, self.message)


@dataclass(frozen=True, slots=True)
class ChallengeIssued:
    """Good so far; the node must now prove that the evidence is live.

    ``challenge`` goes into an annotation of the CSR and is readable by every bootstrap token: no secret in clear.
    """

    challenge: str

    def __post_init__(self) -> None:
        if not 0 < len(self.challenge) <= 16 * 1024:
            raise InvalidOutcome("a challenge has 1 to 16384 characters")


@dataclass(frozen=True, slots=True)
class NotProvableYet:
    """Neither right nor wrong yet: a cloud is unreachable, an instance too new to be listed. Never the node's fault."""

    reason: str
    message: str
    retry_after: timedelta = timedelta(seconds=10)

    def __post_init__(self) -> None:
        _check_reason_and_message(self.reason, self.message)
        if not timedelta(seconds=1) <= self.retry_after <= timedelta(minutes=10):
            raise InvalidOutcome("retry_after is between 1 second and 10 minutes")


@dataclass(frozen=True, slots=True)
class Plausible:
    """Nothing that can be told locally speaks against the evidence. It admits nothing."""


Screened: TypeAlias = Plausible | Denied

Outcome: TypeAlias = VerifiedIdentity | AssertedIdentity | Denied | ChallengeIssued | NotProvableYet


class NoChallengeKeys(Exception):
    """There are no keys for challenges here: settings that were made without a controller."""


def no_challenge_keys() -> tuple[bytes, ...]:
    """The keys of settings that were made without a controller.

    Raises:
        NoChallengeKeys: always.
    """
    raise NoChallengeKeys("challenges need the controller's keys, and these settings have none")


@dataclass(frozen=True, slots=True)
class AttestorSettings:
    """Settings for one attestor in one cluster, from two sources of different trust.

    ``operator`` comes from the controller's own configuration and may hold secrets; ``policy`` comes from the cluster's
    NodeAttestationPolicy, which a tenant writes. An attestor must not let the latter widen the former.
    """

    operator: Mapping[str, Any] = field(default_factory=dict, repr=False)
    policy: Mapping[str, Any] = field(default_factory=dict)
    challenge_keys: Callable[[], tuple[bytes, ...]] = field(default=no_challenge_keys, repr=False, compare=False)
    """Keys of 32 bytes for this attestor's challenges, the newest first: what a challenge needs to be remembered by
    nobody, good after a restart and on another replica. To be asked for each time: keys are rotated. It raises where
    there are none at the moment, which makes the request wait."""


class ControllerHalf(Protocol):
    """Verifies evidence, in the management cluster. One instance serves one workload cluster, many requests at once.

    No method needs to catch anything: :class:`~attestors.wire.evidence.MalformedEvidence` and
    :class:`~attestors.wire.binding.BindingMismatch` become denials, every other exception a counted Defer. Check
    locally before calling out.
    """

    def screen(self, request: AttestationRequest) -> Screened:
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
    """What the node half needs to make evidence."""

    binding: Binding
    cluster: str
    """The cluster's CA certificate hash, ``sha256:`` and hexadecimal digits."""
    evidence_version: str
    purpose: Purpose
    challenge: str
    """The controller's challenge, or the empty string on the first request."""


class NodeHalf(Protocol):
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

    def controller_half(self, settings: AttestorSettings) -> ControllerHalf:
        """The controller half with these settings.

        Raises:
            InvalidSettings: a setting is wrong.
            ImportError: a library of the attestor's extra is not installed.
        """
        ...

    def node_half(self, settings: Mapping[str, str]) -> NodeHalf:
        """The node half with these settings (flags, environment or file of ``kubelet-authenticator``).

        Raises:
            InvalidSettings: a setting is wrong.
            ImportError: a library of the attestor's extra is not installed.
        """
        ...


def _check_identity(identity: str) -> None:
    if not 0 < len(identity) <= _MAXIMUM_IDENTITY_CHARACTERS:
        raise InvalidOutcome(f"an identity has 1 to {_MAXIMUM_IDENTITY_CHARACTERS} characters")


def _check_reason_and_message(reason: str, message: str) -> None:
    if not _REASON.fullmatch(reason):
        raise InvalidOutcome("a reason is one CamelCase word of at most 64 characters")
    if not 0 < len(message) <= _MAXIMUM_MESSAGE_CHARACTERS or not message.isprintable():
        raise InvalidOutcome(f"a message has 1 to {_MAXIMUM_MESSAGE_CHARACTERS} printable characters")
