"""Outcomes: the values, of one closed type, that an attestor may return."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address
from typing import Final, TypeAlias

from attestors.wire.binding import ProvenBinding
from attestors.wire.names import CHALLENGE_ANNOTATION, SUPPORTED_VERSIONS_ANNOTATION

IPAddress: TypeAlias = IPv4Address | IPv6Address

_REASON: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")

_MAXIMUM_MESSAGE_CHARACTERS: Final = 512

_MAXIMUM_IDENTITY_CHARACTERS: Final = 1024

_ANNOTATION: Final = re.compile(
    r"(?:cluster-x-k8s-io|attestation\.cluster\.x-k8s\.io)/[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
)

_MAXIMUM_ANNOTATIONS: Final = 4

_MAXIMUM_ANNOTATION_CHARACTERS: Final = 1024


class InvalidOutcome(ValueError):
    """An attestor built an outcome that the contract forbids: a defect of the attestor, not of the node."""


@dataclass(frozen=True, slots=True)
class VerifiedIdentity:
    """The evidence proves which machine sent the request, and was made for exactly this request."""

    provider_id: str
    """The proven provider ID, in the form of ``Machine.spec.providerID``; the core compares it with the claim."""
    identity: str
    """A value that stays the same for the life of this hardware or instance, such as a hash of its endorsement key."""
    binding: ProvenBinding
    node_names: tuple[str, ...] = ()
    """Node names that the evidence or the platform gives this machine; empty if neither names any."""
    dns_names: tuple[str, ...] = ()
    """DNS names of this machine according to the platform; empty if the platform names none."""
    ip_addresses: tuple[IPAddress, ...] = ()
    """IP addresses of this machine according to the platform; empty if the platform names none."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations that the controller writes on the CertificateSigningRequest on approval, over the requester's own
    values. They show people what the attestor resolved. Keys begin with ``cluster-x-k8s-io/`` or
    ``attestation.cluster.x-k8s.io/``; only the core writes the challenge and the supported versions."""

    hardware: str = ""
    """Another name of the same hardware, if it may come under several identities: the core reserves it for the same
    Machine as the identity, one to one. Empty if the evidence gives no such name."""
    hardware_identity: str = ""
    """What identifies the hardware alone, if ``identity`` is joined from several: the core reserves it for the same
    Machine, too. Only the composite attestor gives it."""

    def __post_init__(self) -> None:
        # The types say so already, but not every attestor is type-checked: bytes would be reserved as other text than
        # their str form, and a plain str instead of a tuple would turn each letter into a name.
        _check_identity(self.provider_id, self.identity)
        for name, value in (("hardware", self.hardware), ("hardware_identity", self.hardware_identity)):
            _check_text(name, value)
            if len(value) > _MAXIMUM_IDENTITY_CHARACTERS:
                raise InvalidOutcome(f"a name of hardware has at most {_MAXIMUM_IDENTITY_CHARACTERS} characters")
        require_tuple_of("node_names", self.node_names, str)
        require_tuple_of("dns_names", self.dns_names, str)
        require_tuple_of("ip_addresses", self.ip_addresses, IPv4Address, IPv6Address)
        _check_annotations(self.annotations)
        # Type-checked by identity: the request's own Binding has the same attribute.
        if type(self.binding) is not ProvenBinding:
            raise InvalidOutcome("a verified identity needs the ProvenBinding that Binding.prove() returned")


@dataclass(frozen=True, slots=True)
class AssertedIdentity:
    """An unproven identity that the node claims. Only insecure attestors return it; they need three opt-ins to run."""

    provider_id: str
    identity: str

    def __post_init__(self) -> None:
        _check_identity(self.provider_id, self.identity)


@dataclass(frozen=True, slots=True)
class Denied:
    """The evidence is wrong for good. ``reason`` is CamelCase; ``message`` names the remedy and holds no secret."""

    reason: str
    message: str

    def __post_init__(self) -> None:
        _check_reason_and_message(self.reason, self.message)


@dataclass(frozen=True, slots=True)
class ChallengeIssued:
    """The evidence is good so far; the node must now prove that it is live.

    ``challenge`` goes into an annotation of the CSR. Every bootstrap token can read it: it must hold no secret in
    clear.
    """

    challenge: str

    def __post_init__(self) -> None:
        _check_text("challenge", self.challenge)
        if not 0 < len(self.challenge) <= 16 * 1024:
            raise InvalidOutcome("a challenge has 1 to 16384 characters")


@dataclass(frozen=True, slots=True)
class NotProvableYet:
    """Not decidable yet and not the node's fault: a cloud is unreachable, or an instance is too new to be listed."""

    reason: str
    message: str
    retry_after: timedelta = timedelta(seconds=10)
    """Delay until the controller verifies the request again. It grows by a quarter each time, up to 5 minutes."""

    def __post_init__(self) -> None:
        _check_reason_and_message(self.reason, self.message)
        if not timedelta(seconds=1) <= self.retry_after <= timedelta(minutes=10):
            raise InvalidOutcome("retry_after is between 1 second and 10 minutes")


@dataclass(frozen=True, slots=True)
class Plausible:
    """No local check speaks against the evidence. It approves nothing."""


PreFiltered: TypeAlias = Plausible | Denied

Outcome: TypeAlias = VerifiedIdentity | AssertedIdentity | Denied | ChallengeIssued | NotProvableYet


def require_tuple_of(name: str, values: object, *kinds: type) -> None:
    """Raise InvalidOutcome unless ``values`` is a tuple of these kinds; ``name`` is the field's name."""
    if not isinstance(values, tuple) or not all(isinstance(value, kinds) for value in values):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise InvalidOutcome(f"{name} is a tuple of {wanted}")
    for value in values:
        if isinstance(value, str):
            _check_text(name, value)


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidOutcome(f"{name} is a str, not {type(value).__name__}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidOutcome(f"{name} is text that UTF-8 cannot hold") from None


def _check_identity(provider_id: object, identity: str) -> None:
    _check_text("provider_id", provider_id)
    _check_text("identity", identity)
    if not 0 < len(identity) <= _MAXIMUM_IDENTITY_CHARACTERS:
        raise InvalidOutcome(f"an identity has 1 to {_MAXIMUM_IDENTITY_CHARACTERS} characters")


def _check_annotations(annotations: Mapping[str, str]) -> None:
    if len(annotations) > _MAXIMUM_ANNOTATIONS:
        raise InvalidOutcome(f"an outcome has at most {_MAXIMUM_ANNOTATIONS} annotations")
    for key, value in annotations.items():
        if not _ANNOTATION.fullmatch(key) or key in (CHALLENGE_ANNOTATION, SUPPORTED_VERSIONS_ANNOTATION):
            raise InvalidOutcome(
                "an outcome's annotations begin with cluster-x-k8s-io/ or attestation.cluster.x-k8s.io/"
            )
        if not 0 < len(value) <= _MAXIMUM_ANNOTATION_CHARACTERS or not value.isprintable():
            raise InvalidOutcome(f"an annotation has 1 to {_MAXIMUM_ANNOTATION_CHARACTERS} printable characters")


def _check_reason_and_message(reason: str, message: str) -> None:
    if not _REASON.fullmatch(reason):
        raise InvalidOutcome("a reason is one CamelCase word of at most 64 characters")
    check_message(message)


def check_message(message: str) -> None:
    """Raise InvalidOutcome unless ``message`` is short and printable."""
    if not 0 < len(message) <= _MAXIMUM_MESSAGE_CHARACTERS or not message.isprintable():
        raise InvalidOutcome(f"a message has 1 to {_MAXIMUM_MESSAGE_CHARACTERS} printable characters")
