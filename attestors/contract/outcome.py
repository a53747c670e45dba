"""What an attestor may answer: one value of one closed type."""

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
    """An attestor built an outcome that the contract does not allow: a defect of the attestor, never the node's."""


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
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Written on the CertificateSigningRequest with its approval, over whatever the requester wrote there: what the
    attestor resolved itself, to be read by people. Keys begin with ``cluster-x-k8s-io/`` or
    ``attestation.cluster.x-k8s.io/``; a challenge or the supported versions are the core's own to write."""

    def __post_init__(self) -> None:
        # The types say so already, but not every attestor is type-checked: a digest's bytes would be reserved as
        # something else than its text, and of a name that is no tuple each letter would be a name.
        _check_identity(self.provider_id, self.identity)
        require_tuple_of("node_names", self.node_names, str)
        require_tuple_of("dns_names", self.dns_names, str)
        require_tuple_of("ip_addresses", self.ip_addresses, IPv4Address, IPv6Address)
        _check_annotations(self.annotations)
        # And the request's own Binding looks alike.
        if type(self.binding) is not ProvenBinding:
            raise InvalidOutcome("a verified identity needs the ProvenBinding that Binding.prove() returned")


@dataclass(frozen=True, slots=True)
class AssertedIdentity:
    """Nothing was proven: the node says who it is. Only from insecure attestors, which need three opt-ins to run."""

    provider_id: str
    identity: str

    def __post_init__(self) -> None:
        _check_identity(self.provider_id, self.identity)


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
        _check_text("challenge", self.challenge)
        if not 0 < len(self.challenge) <= 16 * 1024:
            raise InvalidOutcome("a challenge has 1 to 16384 characters")


@dataclass(frozen=True, slots=True)
class NotProvableYet:
    """Neither right nor wrong yet: a cloud is unreachable, an instance too new to be listed. Never the node's fault."""

    reason: str
    message: str
    retry_after: timedelta = timedelta(seconds=10)
    """Until the request is judged again. It grows by a quarter each time, up to 5 minutes."""

    def __post_init__(self) -> None:
        _check_reason_and_message(self.reason, self.message)
        if not timedelta(seconds=1) <= self.retry_after <= timedelta(minutes=10):
            raise InvalidOutcome("retry_after is between 1 second and 10 minutes")


@dataclass(frozen=True, slots=True)
class Plausible:
    """Nothing that can be told locally speaks against the evidence. It admits nothing."""


PreFiltered: TypeAlias = Plausible | Denied

Outcome: TypeAlias = VerifiedIdentity | AssertedIdentity | Denied | ChallengeIssued | NotProvableYet


def require_tuple_of(name: str, values: object, *kinds: type) -> None:
    """Raises InvalidOutcome unless ``values`` is a tuple of these kinds; ``name`` is the field's."""
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
        raise InvalidOutcome(f"{name} is text that UTF-8 can hold") from None


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
    if not 0 < len(message) <= _MAXIMUM_MESSAGE_CHARACTERS or not message.isprintable():
        raise InvalidOutcome(f"a message has 1 to {_MAXIMUM_MESSAGE_CHARACTERS} printable characters")
