"""The controller's configuration, which the operator sets and no tenant.

It comes from flags and, for structured settings, a YAML file. A tenant's policy can only choose among what the operator
allows here.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import yaml

from attestors.net.strict_yaml import position
from attestors.wire.names import PROVIDER_ID_OID, SSH_HOST_KEYS_OID, InvalidProviderName, check_provider_name
from signer.model.access_policy import MAXIMUM_APPROVALS, MAXIMUM_LIFETIME, MINIMUM_LIFETIME, PROVIDER
from signer.model.authority_suffixes import CLIENT_CA, CLUSTER_CA, SUFFIX, SUFFIX_FORM
from signer.model.cluster import EVERY_CLUSTER, WatchFilter
from signer.model.decision import printable
from signer.model.durations import parse_duration
from signer.model.lease import ElectionTimes
from signer.model.rotation_waits import MAXIMUM_WAIT, Waits
from signer.model.serving_networks import NO_NETWORKS, InvalidNetworks, IPNetwork, OperatorNetworks, parse_networks

ALL_NAMESPACES: Final = "*"
# apimachinery ``validation.IsDNS1123Label``.
NAMESPACE: Final = re.compile(r"(?=.{1,63}\Z)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", re.ASCII)
NAMESPACE_FORM: Final = "up to 63 lower-case letters, digits and '-', a letter or digit at both ends"
MAXIMUM_DEPTH: Final = 64
"""Maximum nesting of the file; no attestor's settings come near."""
DEFAULT_WORKERS: Final = 32
DEFAULT_LEASE_NAME: Final = "node-attestation-controller"
_FIELDS: Final = frozenset({"namespaces", "settings", "settingsByNamespace"})
"""Fields of an attestor in the file."""
# What a message may quote: a longer key, or one with other characters, may hold a value, as in {masterKey:SECRET}.
_FIELD_NAME: Final = re.compile(r"[A-Za-z][A-Za-z-]{0,39}", re.ASCII)
_AUTHORITY_FIELDS: Final = frozenset({"suffixes", "suffixesByNamespace"})
_TOP_LEVEL: Final = "access, attestors, certificateAuthorities, rotation, servingAddresses and ssh"
_TOP_LEVEL_FIELDS: Final = frozenset(
    {"access", "attestors", "certificateAuthorities", "rotation", "servingAddresses", "ssh"}
)
_SERVING_FIELDS: Final = frozenset({"networks", "networksByNamespace"})
_ROTATION_FIELDS: Final = frozenset({"nodeClientAuthority", "waits"})
_NODE_CLIENT_FIELDS: Final = frozenset({"namespaces"})
_SSH_FIELDS: Final = frozenset({"namespaces", "masterSecrets"})
_ACCESS_FIELDS: Final = frozenset(
    {
        "namespaces",
        "creatorVerification",
        "minimumApprovals",
        "minimumApprovalsByNamespace",
        "maximumLifetime",
        "bastions",
        "bastionsByNamespace",
        "gatewayNamespace",
    }
)
DEFAULT_GATEWAY_NAMESPACE: Final = "node-access-gateway"
_WAITS: Final = frozenset({"trustAge", "overlap", "openWatches"})


class InvalidConfiguration(ValueError):
    """The configuration is invalid; the message names the file's field or the flag."""


@dataclass(frozen=True, slots=True)
class OperatorAttestor:
    """The operator's permissions and settings for one attestor."""

    namespaces: frozenset[str] = frozenset({ALL_NAMESPACES})
    """Namespaces whose policies may authorize it; ``*`` for all."""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Settings for every namespace. They may hold secrets, so they are never logged."""
    settings_by_namespace: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """Settings per namespace, which add to ``settings`` or override them by name. Each namespace must be allowed."""

    def settings_in(self, namespace: str) -> Mapping[str, Any]:
        """The effective settings in a namespace: its own take precedence, by name."""
        return {**self.settings, **self.settings_by_namespace.get(namespace, {})}

    def allows(self, namespace: str) -> bool:
        """Whether policies in that namespace may authorize it."""
        return ALL_NAMESPACES in self.namespaces or namespace in self.namespaces


def operator_settings(attestors: Mapping[str, OperatorAttestor], provider: str, namespace: str) -> Mapping[str, Any]:
    """The operator's settings for an attestor in a namespace; empty if ``attestors`` does not have it."""
    return attestors.get(provider, OperatorAttestor()).settings_in(namespace)


@dataclass(frozen=True, slots=True)
class AllowedAuthorities:
    """The name suffixes of the Secrets that a policy may name as its cluster's CAs."""

    suffixes: frozenset[str] = frozenset({CLUSTER_CA, CLIENT_CA})
    """For policies of every namespace that ``by_namespace`` does not have."""
    by_namespace: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def allowed_in(self, namespace: str) -> frozenset[str]:
        """The suffixes that policies in that namespace may name."""
        return self.by_namespace.get(namespace, self.suffixes)


@dataclass(frozen=True, slots=True)
class LeaderElection:
    """One replica works at a time: the holder of the Lease of that name in the controller's own namespace."""

    times: ElectionTimes = field(default_factory=ElectionTimes)
    lease_name: str = DEFAULT_LEASE_NAME


@dataclass(frozen=True, slots=True)
class Sharding:
    """Every replica serves the Clusters of its own shards, held by Leases in the controller's own namespace."""

    count: int
    """Number of shards; the same in all replicas."""
    times: ElectionTimes = field(default_factory=ElectionTimes)
    lease_name: str = DEFAULT_LEASE_NAME
    """Prefix of the Leases' names, and the value of their label."""


@dataclass(frozen=True, slots=True)
class NoLeaderElection:
    """Every replica serves all Clusters."""


@dataclass(frozen=True, slots=True)
class RotationSettings:
    """The controller rotates CAs when somebody orders that on a policy; it never does so by itself."""

    namespaces: frozenset[str] = frozenset({ALL_NAMESPACES})
    """Namespaces whose policies may order rotations; ``*`` for all."""
    waits: Waits = field(default_factory=Waits)
    node_client_namespaces: frozenset[str] = frozenset()
    """Those of ``namespaces`` whose policies may choose a node-client authority; ``*`` for all of them."""

    def allows(self, namespace: str) -> bool:
        """Whether policies in that namespace may order rotations."""
        return ALL_NAMESPACES in self.namespaces or namespace in self.namespaces

    def allows_node_client_authority(self, namespace: str) -> bool:
        """Whether policies in that namespace may choose a node-client authority."""
        among = self.node_client_namespaces
        return self.allows(namespace) and (ALL_NAMESPACES in among or namespace in among)


@dataclass(frozen=True, slots=True)
class RotationOff:
    """The controller rotates no CA."""


class MasterSecrets(enum.Enum):
    """Whether policies may name a Secret with the master secret of a break-glass authority. That puts the key of the
    last resort online.
    """

    NOT_ALLOWED = "NotAllowed"
    ALLOWED = "Allowed"


@dataclass(frozen=True, slots=True)
class SSHPermission:
    """The controller makes SSH authorities for policies that turn SSH on."""

    namespaces: frozenset[str] = frozenset()
    """Namespaces whose policies may turn SSH on; ``*`` for all. None unless the operator names them."""
    master_secrets: MasterSecrets = MasterSecrets.NOT_ALLOWED

    def allows(self, namespace: str) -> bool:
        """Whether policies in that namespace may turn SSH on."""
        return ALL_NAMESPACES in self.namespaces or namespace in self.namespaces


@dataclass(frozen=True, slots=True)
class SSHSwitchedOff:
    """The controller has no part in SSH."""


class CreatorVerification(enum.Enum):
    """Whether a grant counts although the API server does not prove who made it."""

    REQUIRED = "Required"
    UNVERIFIED = "Unverified"
    """Whoever may create grants can create them in any name. For trials."""


@dataclass(frozen=True, slots=True)
class ContainersSwitchedOff:
    """The controller gives no gateway a way into workload clusters."""


@dataclass(frozen=True, slots=True)
class ContainersSwitchedOn:
    """The controller gives the gateway a way into each workload cluster whose policy allows grants."""


@dataclass(frozen=True, slots=True)
class AccessPermission:
    """The controller serves AccessGrants of Clusters whose policy allows them."""

    namespaces: frozenset[str] = frozenset()
    """Namespaces whose policies may allow grants; ``*`` for all. None unless the operator names them."""
    creator_verification: CreatorVerification = CreatorVerification.REQUIRED
    minimum_approvals: int = 0
    """At least as many approvals are needed, whatever the policy says."""
    minimum_approvals_by_namespace: Mapping[str, int] = field(default_factory=dict)
    maximum_lifetime: timedelta = MAXIMUM_LIFETIME
    """No grant lives longer, whatever the policy says."""
    bastions: frozenset[str] = frozenset()
    """Bastion providers that policies and grants may name. Grants without a bastion are always allowed."""
    bastions_by_namespace: Mapping[str, frozenset[str]] = field(default_factory=dict)
    gateway_namespace: str = DEFAULT_GATEWAY_NAMESPACE
    """Namespace of the gateway to containers, in the management cluster. Not a tenant's."""
    containers: ContainersSwitchedOn | ContainersSwitchedOff = ContainersSwitchedOff()

    def allows(self, namespace: str) -> bool:
        """Whether policies in that namespace may allow grants."""
        return ALL_NAMESPACES in self.namespaces or namespace in self.namespaces

    def approvals_in(self, namespace: str) -> int:
        """The approvals that a grant in that namespace needs at least."""
        return self.minimum_approvals_by_namespace.get(namespace, self.minimum_approvals)

    def bastions_in(self, namespace: str) -> frozenset[str]:
        """The bastion providers for that namespace."""
        return self.bastions_by_namespace.get(namespace, self.bastions)


@dataclass(frozen=True, slots=True)
class AccessSwitchedOff:
    """The controller serves no AccessGrants."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of ``run``."""

    namespace: str
    """The controller's own namespace, which holds the IdentityReservations."""
    watch_namespace: str | None = None
    """Serve only this namespace's Clusters; None means all."""
    watch_filter: WatchFilter = EVERY_CLUSTER
    """Serve only Clusters with this label."""
    leader_election: LeaderElection | Sharding | NoLeaderElection = NoLeaderElection()
    """How several replicas share the work."""
    insecure_enabled: bool = False
    insecure_namespaces: frozenset[str] = frozenset()
    attestors: Mapping[str, OperatorAttestor] = field(default_factory=dict)
    """By provider name. An attestor that is not listed is allowed everywhere without settings, except ``insecure``."""
    serving_networks: OperatorNetworks = NO_NETWORKS
    """The networks that policies may name for serving certificates."""
    workers_per_cluster: int = DEFAULT_WORKERS
    provider_id_oids: tuple[str, ...] = (PROVIDER_ID_OID,)
    """OIDs of the extension in which a request carries its provider ID."""
    host_keys_oids: tuple[str, ...] = (SSH_HOST_KEYS_OID,)
    """OIDs of the extension in which a request carries its host keys of sshd. The first one that it has counts."""
    authorities: AllowedAuthorities = field(default_factory=AllowedAuthorities)
    """The Secrets that policies may name as their cluster's CAs."""
    rotation: RotationSettings | RotationOff = RotationOff()
    """Whether the controller rotates CAs, and where."""
    ssh: SSHPermission | SSHSwitchedOff = SSHSwitchedOff()
    """Whether the controller makes SSH authorities, and where."""
    access: AccessPermission | AccessSwitchedOff = AccessSwitchedOff()
    """Whether the controller serves AccessGrants, and where. Only with ``ssh``."""

    def attestor(self, provider: str) -> OperatorAttestor:
        """The operator's permissions and settings for an attestor."""
        return self.attestors.get(provider, OperatorAttestor())

    def insecure_allowed(self, namespace: str) -> bool:
        """Whether the operator allows the insecure attestor: two of its three opt-ins; the policy is the third."""
        return self.insecure_enabled and namespace in self.insecure_namespaces


class _RepeatedKey(yaml.constructor.ConstructorError):
    """A mapping has the same key twice; the mark is where the key is repeated."""


class _NoValue(yaml.constructor.ConstructorError):
    """A scalar has the form or tag of a number or a date, for example, but an invalid value; the mark is its start."""


class _NestedTooDeeply(yaml.composer.ComposerError):
    """The file exceeds the maximum nesting, beyond which the library's time grows with the square of the depth."""


class _NoRepeatedKeys(yaml.SafeLoader):
    """Loader that refuses repeated keys: in YAML a second ``tpm:`` would silently replace the first."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse nodes that are nested too deeply."""
        if self._depth == MAXIMUM_DEPTH:
            raise _NestedTooDeeply
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Report invalid scalars with their position: ``2024-99-99`` raises ValueError, and ``!!bool x`` KeyError."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, ArithmeticError):
            raise _NoValue(None, None, "there is no such value", node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse repeated keys."""
        keys = set()
        for key_node, _ in node.value:
            key = str(self.construct_object(key_node, deep=True))
            if key in keys:
                raise _RepeatedKey(None, None, "a key is repeated", key_node.start_mark)
            keys.add(key)
        return super().construct_mapping(node, deep)


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """The content of the configuration file."""

    attestors: Mapping[str, OperatorAttestor] = field(default_factory=dict)
    serving_networks: OperatorNetworks = NO_NETWORKS
    authorities: AllowedAuthorities = field(default_factory=AllowedAuthorities)
    rotation_waits: Waits = field(default_factory=Waits)
    node_client_namespaces: frozenset[str] = frozenset()
    ssh: SSHPermission = SSHPermission()
    access: AccessPermission = AccessPermission()


def read_configuration_file(path: Path) -> ConfigurationFile:
    """Read the configuration file::

        attestors:
          tpm:
            namespaces: [team-a, team-b]
            settings: {endorsementRootsFolder: /etc/node-attestation/endorsement}
            settingsByNamespace:
              team-a: {allowTrustOnFirstUse: true}
        certificateAuthorities:
          suffixes: [ca, cca]
          suffixesByNamespace:
            team-a: [ca, kubelet-client-ca]
        rotation:
          waits: {trustAge: 10m, overlap: 24h, openWatches: 1h}
          nodeClientAuthority: {namespaces: [team-a]}
        servingAddresses:
          networks: [2001:db8:7::/48]
          networksByNamespace:
            team-a: [10.0.1.0/24]
        ssh:
          namespaces: [team-a]
          masterSecrets: NotAllowed
        access:
          namespaces: [team-a]
          creatorVerification: Required
          minimumApprovals: 0
          minimumApprovalsByNamespace: {team-a: 1}
          maximumLifetime: 168h
          bastions: [aws]
          bastionsByNamespace:
            team-a: [pod]
          gatewayNamespace: node-access-gateway

    Raises:
        InvalidConfiguration: the file cannot be read, or a field is invalid.
    """
    document = _top_level(path)
    entries = document.get("attestors")
    if entries is not None and not isinstance(entries, Mapping):
        raise InvalidConfiguration(f"--config: {path}: attestors must map provider names to their settings")
    return ConfigurationFile(
        {
            str(provider): _attestor(f"{path}: attestors.{provider}", provider, entry)
            for provider, entry in (entries or {}).items()
        },
        _serving_networks(f"{path}: servingAddresses", document.get("servingAddresses")),
        _authorities(f"{path}: certificateAuthorities", document.get("certificateAuthorities")),
        _rotation_waits(f"{path}: rotation", document.get("rotation")),
        _node_client_namespaces(f"{path}: rotation", document.get("rotation")),
        _ssh(f"{path}: ssh", document.get("ssh")),
        _access(f"{path}: access", document.get("access")),
    )


def read_attestors(path: Path) -> Mapping[str, OperatorAttestor]:
    """The attestors in the configuration file.

    Raises:
        InvalidConfiguration: the file cannot be read, or a field is invalid.
    """
    return read_configuration_file(path).attestors


def _serving_networks(path: str, entry: Any) -> OperatorNetworks:
    fields = _object(path, entry)
    for unknown in _unknown(fields, _SERVING_FIELDS):
        raise InvalidConfiguration(
            f"--config: {path} has the fields networks and networksByNamespace, and not {unknown}"
        )
    by_namespace = _object(f"{path}.networksByNamespace", fields.get("networksByNamespace"))
    for namespace in by_namespace:
        require_namespace(f"{path}.networksByNamespace", namespace, "; networks of all namespaces belong in networks")
    return OperatorNetworks(
        _networks(f"{path}.networks", fields.get("networks")),
        {namespace: _networks(f"{path}.networksByNamespace.{namespace}", of) for namespace, of in by_namespace.items()},
    )


def _networks(path: str, value: Any) -> tuple[IPNetwork, ...]:
    try:
        return parse_networks(value)
    except InvalidNetworks as error:
        raise InvalidConfiguration(f"--config: {path} {error}") from error


def _authorities(where: str, entry: Any) -> AllowedAuthorities:
    stated = _object(where, entry)
    for unknown in _unknown(stated, _AUTHORITY_FIELDS):
        fields = ", ".join(sorted(_AUTHORITY_FIELDS))
        raise InvalidConfiguration(f"--config: {where} has the fields {fields}, and not {unknown}")
    by_namespace = _object(f"{where}.suffixesByNamespace", stated.get("suffixesByNamespace"))
    for namespace in by_namespace:
        require_namespace(f"{where}.suffixesByNamespace", namespace, "; those of all others belong in suffixes")
    default = AllowedAuthorities()
    suffixes = stated.get("suffixes")
    return AllowedAuthorities(
        default.suffixes if suffixes is None else _suffixes(f"{where}.suffixes", suffixes),
        {
            namespace: _suffixes(f"{where}.suffixesByNamespace.{namespace}", of)
            for namespace, of in by_namespace.items()
        },
    )


def _suffixes(path: str, value: Any) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) and SUFFIX.fullmatch(one) for one in value):
        raise InvalidConfiguration(
            f"--config: {path} must be a list of suffixes of Secret names, such as [ca, cca]: each {SUFFIX_FORM}"
        )
    return frozenset(value)


def _rotation_waits(where: str, entry: Any) -> Waits:
    stated = _object(where, entry)
    for unknown in _unknown(stated, _ROTATION_FIELDS):
        fields = " and ".join(sorted(_ROTATION_FIELDS))
        raise InvalidConfiguration(f"--config: {where} has the fields {fields}, and not {unknown}")
    path, default = f"{where}.waits", Waits()
    waits = _object(path, stated.get("waits"))
    for unknown in _unknown(waits, _WAITS):
        fields = ", ".join(sorted(_WAITS))
        raise InvalidConfiguration(f"--config: {path} has the fields {fields}, and not {unknown}")
    return Waits(
        _wait(f"{path}.trustAge", waits.get("trustAge"), default.trust_age),
        _wait(f"{path}.overlap", waits.get("overlap"), default.overlap),
        _wait(f"{path}.openWatches", waits.get("openWatches"), default.open_watches),
    )


def _node_client_namespaces(where: str, entry: Any) -> frozenset[str]:
    """The namespaces whose policies may choose a node-client authority; none unless they are named."""
    path = f"{where}.nodeClientAuthority"
    stated = _object(path, _object(where, entry).get("nodeClientAuthority"))
    for unknown in _unknown(stated, _NODE_CLIENT_FIELDS):
        raise InvalidConfiguration(f"--config: {path} has the field namespaces, and not {unknown}")
    return read_namespaces(f"{path}.namespaces", stated.get("namespaces") or [])


def _ssh(path: str, entry: Any) -> SSHPermission:
    """Which policies may turn SSH on, none unless their namespaces are named, and whether they may name secrets."""
    stated = _object(path, entry)
    for unknown in _unknown(stated, _SSH_FIELDS):
        raise InvalidConfiguration(f"--config: {path} has the fields masterSecrets and namespaces, and not {unknown}")
    try:
        master_secrets = MasterSecrets(stated.get("masterSecrets", MasterSecrets.NOT_ALLOWED.value))
    except ValueError:
        raise InvalidConfiguration(f"--config: {path}.masterSecrets must be Allowed or NotAllowed") from None
    return SSHPermission(read_namespaces(f"{path}.namespaces", stated.get("namespaces") or []), master_secrets)


def _access(path: str, entry: Any) -> AccessPermission:
    """Which policies may allow grants, none unless their namespaces are named, and what no policy may go beyond."""
    stated = _object(path, entry)
    for unknown in _unknown(stated, _ACCESS_FIELDS):
        raise InvalidConfiguration(
            f"--config: {path} has the fields {', '.join(sorted(_ACCESS_FIELDS))}, and not {unknown}"
        )
    try:
        verification = CreatorVerification(stated.get("creatorVerification", CreatorVerification.REQUIRED.value))
    except ValueError:
        raise InvalidConfiguration(f"--config: {path}.creatorVerification must be Required or Unverified") from None
    approvals = f"{path}.minimumApprovalsByNamespace"
    bastions = f"{path}.bastionsByNamespace"
    approvals_by_namespace = _object(approvals, stated.get("minimumApprovalsByNamespace"))
    bastions_by_namespace = _object(bastions, stated.get("bastionsByNamespace"))
    for namespace in approvals_by_namespace:
        require_namespace(approvals, namespace, "; those of all others belong in minimumApprovals")
    for namespace in bastions_by_namespace:
        require_namespace(bastions, namespace, "; those of all others belong in bastions")
    return AccessPermission(
        read_namespaces(f"{path}.namespaces", stated.get("namespaces") or []),
        verification,
        _approvals(f"{path}.minimumApprovals", stated.get("minimumApprovals", 0)),
        {namespace: _approvals(f"{approvals}.{namespace}", of) for namespace, of in approvals_by_namespace.items()},
        _maximum_lifetime(f"{path}.maximumLifetime", stated.get("maximumLifetime")),
        _bastions(f"{path}.bastions", stated.get("bastions") or []),
        {namespace: _bastions(f"{bastions}.{namespace}", of) for namespace, of in bastions_by_namespace.items()},
        _gateway_namespace(f"{path}.gatewayNamespace", stated.get("gatewayNamespace", DEFAULT_GATEWAY_NAMESPACE)),
    )


def _gateway_namespace(path: str, value: Any) -> str:
    if not isinstance(value, str) or NAMESPACE.fullmatch(value) is None:
        raise InvalidConfiguration(f"--config: {path} must be a namespace: {NAMESPACE_FORM}")
    return value


def _approvals(path: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAXIMUM_APPROVALS:
        raise InvalidConfiguration(f"--config: {path} must be a whole number from 0 to {MAXIMUM_APPROVALS}")
    return value


def _maximum_lifetime(path: str, value: Any) -> timedelta:
    if value is None:
        return MAXIMUM_LIFETIME
    try:
        lifetime = parse_duration(value if isinstance(value, str) else "")
    except ValueError as error:
        raise InvalidConfiguration(f"--config: {path}: {error}") from error
    if not MINIMUM_LIFETIME <= lifetime <= MAXIMUM_LIFETIME:
        raise InvalidConfiguration(f"--config: {path} must be between 1m and 168h")
    return lifetime


def _bastions(path: str, value: Any) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) and PROVIDER.fullmatch(one) for one in value):
        raise InvalidConfiguration(f"--config: {path} must be a list of bastion providers, such as [aws, pod]")
    return frozenset(value)


def read_namespaces(path: str, namespaces: Any) -> frozenset[str]:
    if not isinstance(namespaces, list) or not all(isinstance(namespace, str) for namespace in namespaces):
        raise InvalidConfiguration(f"--config: {path} must be a list of names, or ['*']")
    for namespace in namespaces:
        if namespace != ALL_NAMESPACES:
            require_namespace(path, namespace, f"; '{ALL_NAMESPACES}' means all")
    return frozenset(namespaces)


def _wait(path: str, value: Any, default: timedelta) -> timedelta:
    if value is None:
        return default
    try:
        wait = parse_duration(value if isinstance(value, str) else "")
    except ValueError as error:
        raise InvalidConfiguration(f"--config: {path}: {error}") from error
    if wait > MAXIMUM_WAIT:
        raise InvalidConfiguration(f"--config: {path} must be at most {MAXIMUM_WAIT // timedelta(hours=1)}h")
    return wait


def _top_level(path: Path) -> Mapping[str, Any]:
    document = read_document(path)
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise InvalidConfiguration(f"--config: {path} must be an object, whose top-level fields are {_TOP_LEVEL}")
    for unknown in _unknown(document, _TOP_LEVEL_FIELDS):
        raise InvalidConfiguration(f"--config: {path}: the top-level fields are {_TOP_LEVEL}, and not {unknown}")
    return document


def read_document(path: Path) -> Any:
    """The parsed file; None if it is empty. Messages never quote it, because settings may hold secrets."""
    try:
        # A subclass of SafeLoader: it makes plain values only.
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_NoRepeatedKeys)  # noqa: S506
    except OSError as error:
        raise InvalidConfiguration(f"--config: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidConfiguration(f"--config: {path} is not UTF-8 text") from error
    except _NestedTooDeeply:
        raise InvalidConfiguration(f"--config: {path} is nested too deeply") from None
    except _RepeatedKey as error:
        raise InvalidConfiguration(f"--config: {path} repeats a key{position(error)}") from error
    except _NoValue as error:
        why = "there is no such value; quote text that looks like a number or a date"
        raise InvalidConfiguration(f"--config: {path} is not YAML{position(error)}: {why}") from error
    except yaml.YAMLError as error:
        raise InvalidConfiguration(f"--config: {path} is not YAML{position(error)}{_tab(error)}") from error
    except ValueError:  # an escape sequence for no character, or a key with more digits than Python converts
        raise InvalidConfiguration(f"--config: {path} is not YAML") from None


def _tab(error: yaml.YAMLError) -> str:
    """The remedy if the error is a tab, which YAML allows nowhere in indentation; else nothing."""
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    is_tab = mark is not None and mark.buffer is not None and mark.buffer[mark.pointer : mark.pointer + 1] == "\t"
    return ": there is a tab; indent with spaces" if is_tab else ""


def _unknown(fields: Mapping[Any, Any], known: frozenset[str]) -> list[str]:
    """The fields that the file cannot have, as a message may name them."""
    return [
        repr(field) if _FIELD_NAME.fullmatch(str(field)) else "a field of another form"
        for field in fields
        if field not in known
    ]


def _attestor(path: str, provider: Any, entry: Any) -> OperatorAttestor:
    try:
        check_provider_name(str(provider))
    except InvalidProviderName as error:
        raise InvalidConfiguration(f"--config: {path}: {error}") from error
    fields = ", ".join(sorted(_FIELDS))
    if not isinstance(entry, Mapping):
        raise InvalidConfiguration(f"--config: {path} must be an object with the fields {fields}")
    for unknown in _unknown(entry, _FIELDS):
        raise InvalidConfiguration(f"--config: {path} has the fields {fields}, and not {unknown}")
    namespaces = read_namespaces(f"{path}.namespaces", entry.get("namespaces", [ALL_NAMESPACES]))
    settings = _object(f"{path}.settings", entry.get("settings"))
    everywhere = OperatorAttestor(namespaces, settings)
    by_namespace = _object(f"{path}.settingsByNamespace", entry.get("settingsByNamespace"))
    for namespace in by_namespace:
        require_namespace(f"{path}.settingsByNamespace", namespace, "; settings of all namespaces belong in settings")
        if not everywhere.allows(namespace):
            raise InvalidConfiguration(
                f"--config: {path}.settingsByNamespace: {namespace} is not among its namespaces: add it there, or "
                "remove its settings"
            )
    return replace(
        everywhere,
        settings_by_namespace={
            namespace: _object(f"{path}.settingsByNamespace.{namespace}", of) for namespace, of in by_namespace.items()
        },
    )


def require_namespace(path: str, namespace: Any, otherwise: str) -> None:
    """Refuse an impossible namespace name, which would silently have no effect."""
    if NAMESPACE.fullmatch(str(namespace)) is None or not isinstance(namespace, str):
        raise InvalidConfiguration(
            f"--config: {path}: {printable(str(namespace))!r} is no namespace: {NAMESPACE_FORM}{otherwise}"
        )


def _object(path: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidConfiguration(f"--config: {path} must be an object")
    return value
