"""``NodeAttestationPolicy``: the settings of one cluster, parsed from the object into an immutable value.

Tenants write policies. So a policy only chooses among the options that the controller's configuration allows.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar

import msgspec

from attestors.wire.names import InvalidProviderName, check_provider_name
from signer.model.access_policy import InvalidAccessRules, parse_access_rules
from signer.model.addresses import NUMBER, is_subdomain
from signer.model.attestor_roles import RequiredAttestors, Shortfall
from signer.model.authority_suffixes import BY_CONTROL_PLANE, SUFFIX, SUFFIX_FORM, AuthoritySuffixes, SuffixChoice
from signer.model.cluster import DELETE_FOR_MOVE_ANNOTATION, ClusterKey
from signer.model.durations import parse_duration
from signer.model.fields import mapping_of
from signer.model.serving_networks import InvalidNetworks, IPNetwork, parse_networks
from signer.model.ssh_access import (
    DEFAULT_HOST_CERTIFICATE_DURATION,
    MAXIMUM_ROTATION_PERIOD,
    MINIMUM_ROTATION_PERIOD,
    SSH_OFF,
    InvalidBreakGlassKeys,
    InvalidMasterSecretReference,
    InvalidRevocations,
    NoRotationPeriod,
    SSHOff,
    SSHSettings,
    parse_break_glass_keys,
    parse_master_secret_reference,
    parse_revoked,
)

MAXIMUM_DOMAINS: Final = 16
DEFAULT_CERTIFICATE_DURATION: Final = timedelta(days=7)
DEFAULT_INSECURE_CERTIFICATE_DURATION: Final = timedelta(days=365)
MINIMUM_CERTIFICATE_DURATION: Final = timedelta(hours=1)
MAXIMUM_SETTINGS_BYTES: Final = 128 * 1024
"""For the settings of all attestors of a policy, as JSON. They are copied whenever a tenant changes the policy, which
would take 0.2 seconds for as much as an API server stores.
"""
MAXIMUM_CERTIFICATE_DURATION: Final = timedelta(days=366)
DEFAULT_DELETING_CERTIFICATE_DURATION: Final = timedelta(hours=24)


class InvalidPolicy(ValueError):
    """The policy is invalid. The message names the field and its valid values."""


class Mode(enum.Enum):
    """Observe keeps kubeadm's auto-approval; Enforce removes it. Our signers work the same in both."""

    OBSERVE = "Observe"
    ENFORCE = "Enforce"


class NodeNameSource(enum.Enum):
    """Where a Machine's node name comes from."""

    AUTOMATIC = "Automatic"
    MACHINE_ADDRESS = "MachineAddress"
    MACHINE_NAME = "MachineName"
    INFRASTRUCTURE_MACHINE_NAME = "InfrastructureMachineName"
    PROVIDER_ID = "ProviderID"
    """The provider ID's last segment, the node name of MachinePool instances with some providers."""


@dataclass(frozen=True, slots=True)
class NodeNameRules:
    """``spec.nodeNames``: which names a Machine's node may have."""

    sources: tuple[NodeNameSource, ...] = (NodeNameSource.AUTOMATIC,)
    """A node may have a name of any of them; never empty."""
    domains: tuple[str, ...] = ()
    """The host of each such name may have any of these domains instead of its own, and no domain if its own is one of
    them.
    """

    def __str__(self) -> str:
        sources = ", ".join(source.value for source in self.sources)
        return f"{sources}; domains {', '.join(self.domains)}" if self.domains else sources


class ApprovalByOthers(enum.Enum):
    """What to do with a CSR to one of our signers that another user or controller approved."""

    REFUSE = "Refuse"
    HONOR = "Honor"


class NodeNameReuse(enum.Enum):
    """When another identity may use the node name of a Machine that is gone."""

    AFTER_EXPIRY = "AfterExpiry"
    IMMEDIATE = "Immediate"
    WHEN_FORMER_INSTANCE_IS_GONE = "WhenFormerInstanceIsGone"
    """As AFTER_EXPIRY, or once the attestor proves that the former instance is gone."""


class BuiltinServingRequests(enum.Enum):
    """What to do with requests to ``kubernetes.io/kubelet-serving``, which Kubernetes itself does not approve."""

    FOLLOW_MODE = "FollowMode"
    """Approve in mode Enforce, ignore in mode Observe."""
    APPROVE = "Approve"
    IGNORE = "Ignore"


class UntraceableTokens(enum.Enum):
    """Whether a bootstrap token that no KubeadmConfig of the Cluster holds may be used."""

    ALLOW = "Allow"
    REFUSE = "Refuse"


class MatchMachines(enum.Enum):
    """Whether a bootstrap token may lead to the Machine that it was made for."""

    NEVER = "Never"
    WITHOUT_PROVIDER_ID = "WithoutProviderID"
    """If the Machine shows no provider ID yet, and the attestor proves an identity that Machine or host names."""


class NodeClientAuthority(enum.Enum):
    """Which CA signs the client certificates of nodes."""

    SHARED = "Shared"
    """The one that signs all client certificates of the cluster."""
    SEPARATE = "Separate"
    """One for nodes alone, once every API server accepts it."""


class MachinePoolTokens(enum.Enum):
    """How long the bootstrap tokens of MachinePools live."""

    ROTATE = "Rotate"
    """Cluster API's bootstrap provider rotates them, as it does without this controller."""
    EXTEND = "Extend"
    """In mode Enforce, they live as long as their pool (proposal, user story 2)."""


@dataclass(frozen=True, slots=True)
class AuthorizedAttestor:
    """One attestor that the cluster accepts, with its settings."""

    provider: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy of one cluster, as it is in force: raised to the operator's floor."""

    cluster: ClusterKey
    uid: str
    generation: int
    mode: Mode
    authorized_attestors: tuple[AuthorizedAttestor, ...]
    node_names: NodeNameRules
    approval_by_others: ApprovalByOthers
    node_name_reuse: NodeNameReuse
    client_duration: timedelta
    serving_duration: timedelta
    insecure_duration: timedelta
    deleting_duration: timedelta = DEFAULT_DELETING_CERTIFICATE_DURATION
    """Maximum lifetime of a certificate while the Machine or the Cluster is being deleted; zero: none is issued."""
    builtin_serving_requests: BuiltinServingRequests = BuiltinServingRequests.FOLLOW_MODE
    untraceable_tokens: UntraceableTokens = UntraceableTokens.ALLOW
    machine_pool_tokens: MachinePoolTokens = MachinePoolTokens.ROTATE
    serving_networks: tuple[IPNetwork, ...] = ()
    """``spec.servingAddresses.networks``; those that the operator does not allow are not used."""
    match_machines: MatchMachines = MatchMachines.NEVER
    deleting_for_move: bool = False
    """``clusterctl move`` deletes it here. It continues in another management cluster."""
    certificate_authorities: SuffixChoice = BY_CONTROL_PLANE
    """The Secrets of the cluster's CAs."""
    node_client_authority: NodeClientAuthority = NodeClientAuthority.SHARED
    ssh: SSHSettings | SSHOff = SSH_OFF
    required_attestors: RequiredAttestors = field(default_factory=RequiredAttestors)
    """The operator's: whose evidence counts, by the Machine's role."""
    shortfalls: tuple[Shortfall, ...] = ()
    """Where its author stated less than the operator's floor; the fields hold what is in force."""

    @property
    def roles_without_attestor(self) -> tuple[str, ...]:
        """The roles whose Machines no authorized attestor can attest, each with the attestors that could."""
        return self.required_attestors.unmet_by(frozenset(one.provider for one in self.authorized_attestors))

    @property
    def approves_builtin_serving(self) -> bool:
        """Whether the controller approves requests to the built-in serving signer, and does not ignore them."""
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


class PolicyFloor(Protocol):
    """What a policy cannot fall below: :class:`signer.model.floors.Floor`."""

    def in_force(self, stated: Policy) -> Policy:
        """The policy that applies."""
        ...


def parse_policy(manifest: Mapping[str, Any], floor: PolicyFloor) -> Policy:
    """Read a NodeAttestationPolicy, and raise it to ``floor``. It does not rely on the API server's schema validation.

    Raises:
        InvalidPolicy: a field is invalid.
    """
    return floor.in_force(_stated_policy(manifest))


def _stated_policy(manifest: Mapping[str, Any]) -> Policy:
    metadata, spec = _object(manifest, "metadata", "metadata"), _object(manifest, "spec", "spec")
    certificates = _object(spec, "certificates", "spec.certificates")
    tokens = _object(spec, "bootstrapTokens", "spec.bootstrapTokens")
    return Policy(
        cluster=ClusterKey(_metadata(metadata, "namespace", ""), _metadata(metadata, "name", "")),
        uid=_metadata(metadata, "uid", ""),
        generation=_metadata(metadata, "generation", 0),
        mode=_choice(Mode, spec.get("mode", Mode.OBSERVE.value), "spec.mode"),
        authorized_attestors=_attestors(spec.get("authorizedAttestors")),
        node_names=_node_names(_object(spec, "nodeNames", "spec.nodeNames")),
        approval_by_others=_choice(
            ApprovalByOthers, spec.get("approvalByOthers", ApprovalByOthers.REFUSE.value), "spec.approvalByOthers"
        ),
        node_name_reuse=_choice(
            NodeNameReuse, spec.get("nodeNameReuse", NodeNameReuse.AFTER_EXPIRY.value), "spec.nodeNameReuse"
        ),
        client_duration=_duration(certificates, "clientDuration", DEFAULT_CERTIFICATE_DURATION),
        serving_duration=_duration(certificates, "servingDuration", DEFAULT_CERTIFICATE_DURATION),
        insecure_duration=_duration(certificates, "insecureDuration", DEFAULT_INSECURE_CERTIFICATE_DURATION),
        deleting_duration=_deleting_duration(certificates),
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
        serving_networks=_networks(_object(spec, "servingAddresses", "spec.servingAddresses")),
        match_machines=_choice(
            MatchMachines,
            tokens.get("matchMachines", MatchMachines.NEVER.value),
            "spec.bootstrapTokens.matchMachines",
        ),
        deleting_for_move=DELETE_FOR_MOVE_ANNOTATION in mapping_of(metadata, "annotations"),
        certificate_authorities=_authorities(spec),
        node_client_authority=_choice(
            NodeClientAuthority,
            spec.get("nodeClientAuthority", NodeClientAuthority.SHARED.value),
            "spec.nodeClientAuthority",
        ),
        ssh=_ssh(spec),
    )


def stated_mode(manifest: Mapping[str, Any]) -> Mode | None:
    """The mode of a policy that may be invalid otherwise; None if the mode itself is invalid."""
    try:
        return _choice(Mode, _object(manifest, "spec", "spec").get("mode", Mode.OBSERVE.value), "spec.mode")
    except InvalidPolicy:
        return None


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
    _require_small(attestors)
    return tuple(attestors)


def settings_bytes(attestors: Iterable[AuthorizedAttestor]) -> int:
    """The size of the attestors' settings, as JSON.

    Raises:
        TypeError, ValueError, OverflowError, RecursionError: they are none.
    """
    return len(msgspec.json.encode([attestor.settings for attestor in attestors]))


def _require_small(attestors: Iterable[AuthorizedAttestor]) -> None:
    try:
        size = settings_bytes(attestors)
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise InvalidPolicy("spec.authorizedAttestors: the settings are not JSON that can be read") from None
    if size > MAXIMUM_SETTINGS_BYTES:
        raise InvalidPolicy(
            f"spec.authorizedAttestors: the settings have more than {MAXIMUM_SETTINGS_BYTES // 1024} KiB together: "
            "remove what is not needed"
        )


def _authorities(spec: Mapping[str, Any]) -> SuffixChoice:
    path = "spec.certificateAuthorities"
    if spec.get("certificateAuthorities") is None:
        return BY_CONTROL_PLANE
    stated = _object(spec, "certificateAuthorities", path)
    for purpose in ("client", "serving"):
        if not isinstance(stated.get(purpose), str) or SUFFIX.fullmatch(stated[purpose]) is None:
            raise InvalidPolicy(f"{path}.{purpose} must be the suffix of a Secret's name: {SUFFIX_FORM}")
    return AuthoritySuffixes(stated["client"], stated["serving"])


def _ssh(spec: Mapping[str, Any]) -> SSHSettings | SSHOff:
    if spec.get("ssh") is None:
        return SSH_OFF
    stated = _object(spec, "ssh", "spec.ssh")
    try:
        keys = parse_break_glass_keys(_object(stated, "breakGlass", "spec.ssh.breakGlass").get("publicKeys"))
    except InvalidBreakGlassKeys as error:
        raise InvalidPolicy(f"spec.ssh.breakGlass.publicKeys{error}") from error
    try:
        master_secret = parse_master_secret_reference(stated.get("masterSecretRef"))
    except InvalidMasterSecretReference as error:
        raise InvalidPolicy(f"spec.ssh.masterSecretRef{error}") from error
    try:
        revoked = parse_revoked(_object(stated, "revoked", "spec.ssh.revoked"))
    except InvalidRevocations as error:
        raise InvalidPolicy(f"spec.ssh.revoked{error}") from error
    try:
        access = parse_access_rules(stated.get("access"))
    except InvalidAccessRules as error:
        raise InvalidPolicy(f"spec.ssh.access{error}") from error
    return SSHSettings(
        _duration(stated, "hostCertificateDuration", DEFAULT_HOST_CERTIFICATE_DURATION, parent="spec.ssh"),
        keys,
        _rotation_period(stated.get("rotationPeriod")),
        master_secret=master_secret,
        revoked=revoked,
        access=access,
    )


def _rotation_period(value: Any) -> timedelta | NoRotationPeriod:
    path = "spec.ssh.rotationPeriod"
    if value is None:
        return NoRotationPeriod()
    try:
        period = parse_duration(value if isinstance(value, str) else "")
    except ValueError as error:
        raise InvalidPolicy(f"{path}: {error}") from error
    if not MINIMUM_ROTATION_PERIOD <= period <= MAXIMUM_ROTATION_PERIOD:
        raise InvalidPolicy(f"{path} must be between 24h and 87840h (3660 days)")
    return period


def _node_names(rules: Mapping[str, Any]) -> NodeNameRules:
    path = "spec.nodeNames.sources"
    sources = _items(rules, "sources", path, len(NodeNameSource))
    return NodeNameRules(
        sources=tuple(_choice(NodeNameSource, source, path) for source in sources) or NodeNameRules().sources,
        domains=tuple(map(_domain, _items(rules, "domains", "spec.nodeNames.domains", MAXIMUM_DOMAINS))),
    )


def _networks(addresses: Mapping[str, Any]) -> tuple[IPNetwork, ...]:
    try:
        return parse_networks(addresses.get("networks"))
    except InvalidNetworks as error:
        raise InvalidPolicy(f"spec.servingAddresses.networks {error}") from error


def _domain(value: Any) -> str:
    """A domain. Its last label is no number: a host in it must not look like an IP address."""
    if not isinstance(value, str) or not is_subdomain(value) or NUMBER.fullmatch(value.rpartition(".")[2]):
        raise InvalidPolicy("spec.nodeNames.domains must hold DNS domains in lower case, such as corp.example")
    return value


def _items(parent: Mapping[str, Any], key: str, path: str, maximum: int) -> list[Any]:
    """The list at ``key``, in which no item is repeated; empty if it is missing."""
    items = parent.get(key)
    if items is None:
        return []
    if not isinstance(items, list) or len(items) > maximum:
        raise InvalidPolicy(f"{path} must be a list of at most {maximum}")
    if any(item in items[:index] for index, item in enumerate(items)):
        raise InvalidPolicy(f"{path} repeats an item")
    return items


def _object(parent: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    """The object at ``key``; empty if it is missing."""
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


def _duration(
    stated: Mapping[str, Any],
    key: str,
    default: timedelta,
    *,
    or_none: bool = False,
    parent: str = "spec.certificates",
) -> timedelta:
    """The duration of certificates at ``key`` of ``parent``; ``or_none`` allows zero."""
    path = f"{parent}.{key}"
    value = stated.get(key)
    if value is None:
        return default
    try:
        duration = parse_duration(value if isinstance(value, str) else "")
    except ValueError as error:
        raise InvalidPolicy(f"{path}: {error}") from error
    if or_none and not duration:
        return duration
    if not MINIMUM_CERTIFICATE_DURATION <= duration <= MAXIMUM_CERTIFICATE_DURATION:
        raise InvalidPolicy(f"{path} must be between 1h and 8784h (366 days)")
    return duration


def _deleting_duration(certificates: Mapping[str, Any]) -> timedelta:
    try:
        return _duration(certificates, "deletingDuration", DEFAULT_DELETING_CERTIFICATE_DURATION, or_none=True)
    except InvalidPolicy as error:
        raise InvalidPolicy(f"{error}, or 0s for none") from error


_Member = TypeVar("_Member", bound=enum.Enum)


def _choice(enumeration: type[_Member], value: Any, path: str) -> _Member:
    try:
        return enumeration(value)
    except ValueError as error:
        choices = ", ".join(str(member.value) for member in enumeration)
        raise InvalidPolicy(f"{path} must be one of {choices}") from error
