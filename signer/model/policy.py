"""``NodeAttestationPolicy``: what one cluster accepts. Parsed from the object into an immutable value.

A tenant writes policies, so a policy only chooses among what the controller's own configuration allows.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeVar

from attestors.wire.names import InvalidProviderName, check_provider_name
from signer.model.cluster import DELETE_FOR_MOVE_ANNOTATION, ClusterKey
from signer.model.fields import mapping_of

DEFAULT_CERTIFICATE_DURATION: Final = timedelta(days=7)
DEFAULT_INSECURE_CERTIFICATE_DURATION: Final = timedelta(days=365)
MINIMUM_CERTIFICATE_DURATION: Final = timedelta(hours=1)
MAXIMUM_CERTIFICATE_DURATION: Final = timedelta(days=366)

_DURATION: Final = re.compile(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?")


class InvalidPolicy(ValueError):
    """The policy cannot be followed; the message names the field and what it should be."""


class Mode(enum.Enum):
    """Observe leaves kubeadm's own approval alone; Enforce shuts it. Our signers work the same in both."""

    OBSERVE = "Observe"
    ENFORCE = "Enforce"


class NodeNameSource(enum.Enum):
    """Where a Machine's node name comes from."""

    AUTOMATIC = "Automatic"
    MACHINE_ADDRESS = "MachineAddress"
    MACHINE_NAME = "MachineName"
    INFRASTRUCTURE_MACHINE_NAME = "InfrastructureMachineName"
    PROVIDER_ID = "ProviderID"
    """Its last segment: what instances of MachinePools are called by some providers."""


class ApprovalByOthers(enum.Enum):
    """What to do with one of our CSRs that somebody else approved."""

    REFUSE = "Refuse"
    HONOR = "Honor"


class NodeNameReuse(enum.Enum):
    """When another identity may have the node name of a Machine that is gone."""

    AFTER_EXPIRY = "AfterExpiry"
    IMMEDIATE = "Immediate"


class BuiltinServingRequests(enum.Enum):
    """What to do with requests to ``kubernetes.io/kubelet-serving``, which nobody approves in a stock cluster."""

    FOLLOW_MODE = "FollowMode"
    """Approve under Enforce, leave alone under Observe."""
    APPROVE = "Approve"
    IGNORE = "Ignore"


class UntraceableTokens(enum.Enum):
    """Whether a bootstrap token that no KubeadmConfig of the Cluster holds may be used."""

    ALLOW = "Allow"
    REFUSE = "Refuse"


class MachinePoolTokens(enum.Enum):
    """What becomes of the bootstrap tokens of MachinePools."""

    ROTATE = "Rotate"
    """Cluster API's bootstrap provider rotates them, as always."""
    EXTEND = "Extend"
    """While Enforce holds, they live as long as their pool (proposal, user story 2)."""


@dataclass(frozen=True, slots=True)
class AuthorizedAttestor:
    """One attestor that the cluster accepts, with its settings."""

    provider: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policy:
    """What one cluster accepts."""

    cluster: ClusterKey
    uid: str
    generation: int
    mode: Mode
    authorized_attestors: tuple[AuthorizedAttestor, ...]
    node_name_source: NodeNameSource
    approval_by_others: ApprovalByOthers
    node_name_reuse: NodeNameReuse
    client_duration: timedelta
    serving_duration: timedelta
    insecure_duration: timedelta
    builtin_serving_requests: BuiltinServingRequests = BuiltinServingRequests.FOLLOW_MODE
    untraceable_tokens: UntraceableTokens = UntraceableTokens.ALLOW
    machine_pool_tokens: MachinePoolTokens = MachinePoolTokens.ROTATE
    deleting_for_move: bool = False
    """It lives on in another management cluster: ``clusterctl move`` deletes it here."""

    @property
    def approves_builtin_serving(self) -> bool:
        """Whether requests to the built-in serving signer are approved, rather than left alone."""
        if self.builtin_serving_requests is BuiltinServingRequests.FOLLOW_MODE:
            return self.mode is Mode.ENFORCE
        return self.builtin_serving_requests is BuiltinServingRequests.APPROVE

    def authorized(self, provider: str) -> AuthorizedAttestor:
        """The attestor of that name.

        Raises:
            KeyError: the policy does not name it.
        """
        for attestor in self.authorized_attestors:
            if attestor.provider == provider:
                return attestor
        raise KeyError(provider)


def parse_policy(manifest: Mapping[str, Any]) -> Policy:
    """Read a NodeAttestationPolicy; the API server has applied the schema, and nothing here relies on that.

    Raises:
        InvalidPolicy: a field cannot be followed.
    """
    metadata, spec = _object(manifest, "metadata", "metadata"), _object(manifest, "spec", "spec")
    certificates = _object(spec, "certificates", "spec.certificates")
    tokens = _object(spec, "bootstrapTokens", "spec.bootstrapTokens")
    return Policy(
        cluster=ClusterKey(_metadata(metadata, "namespace", ""), _metadata(metadata, "name", "")),
        uid=_metadata(metadata, "uid", ""),
        generation=_metadata(metadata, "generation", 0),
        mode=_choice(Mode, spec.get("mode", Mode.OBSERVE.value), "spec.mode"),
        authorized_attestors=_attestors(spec.get("authorizedAttestors")),
        node_name_source=_choice(
            NodeNameSource, spec.get("nodeNameSource", NodeNameSource.AUTOMATIC.value), "spec.nodeNameSource"
        ),
        approval_by_others=_choice(
            ApprovalByOthers, spec.get("approvalByOthers", ApprovalByOthers.REFUSE.value), "spec.approvalByOthers"
        ),
        node_name_reuse=_choice(
            NodeNameReuse, spec.get("nodeNameReuse", NodeNameReuse.AFTER_EXPIRY.value), "spec.nodeNameReuse"
        ),
        client_duration=_duration(certificates, "clientDuration", DEFAULT_CERTIFICATE_DURATION),
        serving_duration=_duration(certificates, "servingDuration", DEFAULT_CERTIFICATE_DURATION),
        insecure_duration=_duration(certificates, "insecureDuration", DEFAULT_INSECURE_CERTIFICATE_DURATION),
        builtin_serving_requests=_choice(
            BuiltinServingRequests,
            spec.get("builtinServingRequests", BuiltinServingRequests.FOLLOW_MODE.value),
            "spec.builtinServingRequests",
        ),
        untraceable_tokens=_choice(
            UntraceableTokens,
            tokens.get("untraceable", UntraceableTokens.ALLOW.value),
            "spec.bootstrapTokens.untraceable",
        ),
        machine_pool_tokens=_choice(
            MachinePoolTokens,
            tokens.get("machinePools", MachinePoolTokens.ROTATE.value),
            "spec.bootstrapTokens.machinePools",
        ),
        deleting_for_move=DELETE_FOR_MOVE_ANNOTATION in mapping_of(metadata, "annotations"),
    )


def stated_mode(manifest: Mapping[str, Any]) -> Mode | None:
    """The mode that a policy names, whatever else of it cannot be followed; None where that cannot."""
    try:
        return _choice(Mode, _object(manifest, "spec", "spec").get("mode", Mode.OBSERVE.value), "spec.mode")
    except InvalidPolicy:
        return None


def parse_duration(text: str) -> timedelta:
    """Read a Kubernetes duration of hours, minutes and seconds, such as ``168h`` or ``1h30m``.

    Raises:
        ValueError: of another form.
    """
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise ValueError("a duration is hours, minutes and seconds, such as 168h or 1h30m")
    hours, minutes, seconds = (int(group or 0) for group in match.groups())
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)


def _attestors(items: Any) -> tuple[AuthorizedAttestor, ...]:
    if items is None:
        return ()
    if not isinstance(items, list):
        raise InvalidPolicy("spec.authorizedAttestors must be a list")
    attestors: list[AuthorizedAttestor] = []
    for index, item in enumerate(items):
        path = f"spec.authorizedAttestors[{index}]"
        if not isinstance(item, Mapping) or not isinstance(item.get("name"), str):
            raise InvalidPolicy(f"{path}.name is missing")
        try:
            provider = check_provider_name(item["name"])
        except InvalidProviderName as error:
            raise InvalidPolicy(f"{path}.name: {error}") from error
        if provider in {attestor.provider for attestor in attestors}:
            raise InvalidPolicy(f"{path}.name: {provider} is listed twice")
        attestors.append(AuthorizedAttestor(provider, _object(item, "settings", f"{path}.settings")))
    return tuple(attestors)


def _object(parent: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    """An object, which may be missing."""
    value = parent.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidPolicy(f"{path} must be an object")
    return value


_Value = TypeVar("_Value", str, int)


def _metadata(metadata: Mapping[str, Any], key: str, default: _Value) -> _Value:
    value = metadata.get(key, default)
    if type(value) is not type(default):
        raise InvalidPolicy(f"metadata.{key} must be a {type(default).__name__}")
    return value


def _duration(certificates: Mapping[str, Any], key: str, default: timedelta) -> timedelta:
    path = f"spec.certificates.{key}"
    value = certificates.get(key)
    if value is None:
        return default
    try:
        duration = parse_duration(value if isinstance(value, str) else "")
    except ValueError as error:
        raise InvalidPolicy(f"{path}: {error}") from error
    if not MINIMUM_CERTIFICATE_DURATION <= duration <= MAXIMUM_CERTIFICATE_DURATION:
        raise InvalidPolicy(f"{path} must be between 1h and 8784h (366 days)")
    return duration


_Member = TypeVar("_Member", bound=enum.Enum)


def _choice(enumeration: type[_Member], value: Any, path: str) -> _Member:
    try:
        return enumeration(value)
    except ValueError as error:
        choices = ", ".join(str(member.value) for member in enumeration)
        raise InvalidPolicy(f"{path} must be one of {choices}") from error
