"""Whether a rotation could be finished, as far as that can be known before it starts: a list of checks.

The controller rejects a start by the first check that does not hold. ``rotate preflight`` shows all of them, also to a
person who may not read everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeAlias

from signer.authority import CertificateAuthorityUnavailable, load_certificate_authority
from signer.kube.calls import Get
from signer.kube.errors import ApiError, NotFound
from signer.kube.resources import SECRETS, Resource
from signer.model.cluster import ClusterKey
from signer.rotation.authorities import AuthorityKind, NotMade, RotatedAuthority
from signer.rotation.bundles import UnreadableBundle, digest_of, read_bundle
from signer.rotation.control_plane.kind import (
    Assisted,
    ControlPlaneReference,
    NoControlPlaneReference,
    Refused,
    Rotatable,
    SigningKey,
    control_plane_kind,
)
from signer.rotation.control_plane.kubeadm_control_plane import (
    ClusterTopology,
    InvalidControlPlane,
    KubeadmControlPlane,
    Rollout,
    RotatedCluster,
)
from signer.rotation.control_plane.machines import ControlPlaneMachines
from signer.rotation.control_plane.readiness import Missing, Unsuitable, chosen_pairs, readiness, signing_secret_name
from signer.rotation.control_plane.reading import KubeadmControlPlanes, read_rotated_cluster
from signer.rotation.control_plane.template import InvalidTemplate, control_plane_template
from signer.rotation.control_plane.template_patch import how_to_make_ready
from signer.rotation.facts import Absent, HeldCertificate, HeldPair, SigningFacts, Unusable
from signer.rotation.management import SERVER_CA
from signer.rotation.operations import OperationRejected
from signer.rotation.phases import SigningPairs, TakesBack
from signer.rotation.secrets import decoded, read_secret
from signer.rotation.signing_secret import read_signing

MINIMUM_LIFETIME_LEFT: Final = timedelta(days=3)
"""A CA that ends sooner cannot be switched with proofs: its certificates end in the middle."""
OLDEST_VERSION: Final = (1, 19)
"""API servers before it read their client CAs at the start alone."""


@dataclass(frozen=True, slots=True)
class Holds:
    """The check holds."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Lacks:
    """The check does not hold."""

    reason: str
    """What is missing, and what to do if that is short."""
    remedy: str = ""
    """What to do at length, with a command to copy. A condition has no room for it; ``rotate preflight`` shows it."""


@dataclass(frozen=True, slots=True)
class NotReadable:
    """The caller could not read what the check needs."""

    error: ApiError


@dataclass(frozen=True, slots=True)
class NotAsked:
    """The check depends on another one that does not hold, or on what the caller does not know."""

    why: str


Result: TypeAlias = Holds | Lacks | NotReadable | NotAsked


@dataclass(frozen=True, slots=True)
class Check:
    """One check with its result."""

    title: str
    result: Result


@dataclass(frozen=True, slots=True)
class Examined:
    """Every check, in order, and what they have read."""

    cluster: ClusterKey
    checks: tuple[Check, ...]
    authorities: tuple[RotatedAuthority, ...]
    """The authorities that a rotation would replace; the cluster's first."""
    takes_back: TakesBack
    signing_pairs: SigningPairs
    """What the template has."""

    def require(self) -> None:
        """Every check holds.

        Raises:
            OperationRejected: one does not.
            ApiError: what one needs could not be read.
        """
        for check in self.checks:
            match check.result:
                case Lacks(reason, remedy):
                    how = f"; `node-attestation-controller rotate {self.cluster} preflight` shows what to do"
                    raise OperationRejected(f"{reason}{how if remedy else ''}")
                case NotReadable(error):
                    raise error
                case NotAsked(why):
                    raise OperationRejected(f"{check.title}: {why}")


class ReadMachines(Protocol):
    """Reads the Machines of the control plane."""

    async def __call__(self) -> ControlPlaneMachines:
        """Raises ApiError: they cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class Preflight:
    """The checks of one Cluster."""

    key: ClusterKey
    management: Get
    clusters: Resource
    """The served version of Clusters."""
    machines: ReadMachines
    now: datetime
    control_planes: KubeadmControlPlanes = field(repr=False)

    async def examine(self, allowed: Result) -> Examined:
        """Make every check. ``allowed`` is whether the operator allows rotations in the namespace."""
        checks = [Check(f"the operator allows rotations in namespace {self.key.namespace}", allowed)]
        cluster = await self._cluster()
        checks.append(Check("the Cluster is neither paused nor being deleted", _undisturbed(cluster)))
        secrets = [await self._secret(kind, cluster) for kind in AuthorityKind]
        checks += [Check(f"Secret {self.key.name}-{one.kind.value} {one.title}", one.result) for one in secrets]
        title = f"Secret {self.key.name}-trust, if it exists, names no CA but that of Secret {self.key.name}-ca"
        checks.append(Check(title, await self._trust(secrets[0])))
        kind = _kind(cluster)
        checks.append(Check("a KubeadmControlPlane runs the control plane", kind))
        control_plane = await self._control_plane(cluster, kind)
        pairs = _chosen_pairs(control_plane)
        checks += self._of_control_plane(cluster, control_plane, pairs)
        if pairs is SigningPairs.SPLIT:
            title = f"Secret {signing_secret_name(self.key.name)} holds the pair of Secret {self.key.name}-ca twice"
            checks.append(Check(title, await self._signing(secrets[0])))
        checks.append(Check("every Machine of the control plane has joined", await self._joined()))
        return Examined(
            self.key,
            tuple(checks),
            tuple(RotatedAuthority(one.kind, one.pair.signs, NotMade()) for one in secrets if one.pair is not None),
            secrets[0].takes_back,
            pairs,
        )

    async def _cluster(self) -> RotatedCluster | Result:
        try:
            return await read_rotated_cluster(self.management, self.clusters, self.key)
        except InvalidControlPlane as error:
            return Lacks(f"the Cluster cannot be read: {error}")
        except ApiError as error:
            return NotReadable(error)

    async def _secret(self, kind: AuthorityKind, cluster: RotatedCluster | Result) -> _Secret:
        name = f"{self.key.name}-{kind.value}"
        try:
            manifest = await self.management.get(SECRETS.object(name, self.key.namespace))
        except NotFound:
            if kind is AuthorityKind.CLUSTER:
                return _Secret(kind, _HOLDS_A_PAIR, Lacks(f"Secret {name} does not exist"))
            return _Secret(kind, _NOT_ROTATED, Holds("it does not exist"))
        except ApiError as error:
            return _Secret(kind, _HOLDS_A_PAIR, NotReadable(error))
        held = read_secret(kind, manifest).held
        if not isinstance(held, HeldPair):
            why = held.message if isinstance(held, Unusable) else "it holds no tls.key"
            if kind is not AuthorityKind.CLUSTER:
                return _Secret(kind, _NOT_ROTATED, Holds(why))  # external etcd: the Secret has no key
            if isinstance(held, HeldCertificate) and isinstance(cluster, RotatedCluster):
                return _Secret(
                    kind, _HOLDS_A_PAIR, Lacks(_refusal(control_plane_kind(cluster.control_plane, SigningKey.ABSENT)))
                )
            return _Secret(kind, _HOLDS_A_PAIR, Lacks(f"Secret {name} has no usable key: {why}"))
        takes_back, result = TakesBack.NOT_LINKED, self._usable(kind, held)
        if kind is AuthorityKind.CLUSTER and isinstance(result, Holds):
            takes_back, result = self._takes_back(decoded(manifest), result)
        return _Secret(kind, _HOLDS_A_PAIR, result, held, takes_back)

    def _usable(self, kind: AuthorityKind, held: HeldPair) -> Holds | Lacks:
        if len(held.certificates) != 1:
            return Lacks(
                f"the Secret of authority {kind.value} holds {len(held.certificates)} certificates: leave that of its "
                "key"
            )
        if held.signs.not_after - self.now < MINIMUM_LIFETIME_LEFT:
            return Lacks(
                f"authority {kind.value} ends at {held.signs.not_after:%Y-%m-%d %H:%M} UTC, which is too soon: its "
                "certificates would end in the middle of the rotation; see docs/rotation.md for an expired CA"
            )
        if kind is AuthorityKind.SERVICE_ACCOUNT:
            return Holds()
        return Holds(f"until {held.signs.not_after:%Y-%m-%d}")

    def _takes_back(self, data: Mapping[str, bytes], usable: Holds) -> tuple[TakesBack, Holds | Lacks]:
        """Whether the old CA may certify the new one, by its path length."""
        try:
            authority = load_certificate_authority(data, now=self.now)
        except CertificateAuthorityUnavailable as error:
            return TakesBack.NOT_LINKED, Lacks(f"Secret {self.key.name}-ca: {error}")
        constraints = authority.certificate.basic_constraints
        limited = constraints is not None and constraints.path_length == 0
        return TakesBack.NOT_LINKED if limited else TakesBack.LINKED, usable

    async def _control_plane(self, cluster: RotatedCluster | Result, kind: Result) -> KubeadmControlPlane | Result:
        reference = cluster.control_plane if isinstance(cluster, RotatedCluster) else NoControlPlaneReference()
        if not isinstance(kind, Holds) or not isinstance(reference, ControlPlaneReference):
            return NotAsked("there is no KubeadmControlPlane to ask")
        try:
            return await self.control_planes.read(reference, self.key.namespace)
        except InvalidControlPlane as error:
            return Lacks(f"the KubeadmControlPlane cannot be read: {error}")
        except NotFound:
            return Lacks(f"KubeadmControlPlane {self.key.namespace}/{reference.name} does not exist")
        except ApiError as error:
            return NotReadable(error)

    def _of_control_plane(
        self, cluster: RotatedCluster | Result, found: KubeadmControlPlane | Result, pairs: SigningPairs
    ) -> Iterator[Check]:
        if isinstance(found, KubeadmControlPlane):
            template, state = self._template(cluster, found, pairs), _of_state(found)
        else:
            template, state = found, (_NOT_READ,) * len(_TITLES_OF_STATE)
        yield Check(f"its machines read the trusted CAs from Secret {self.key.name}-trust", template)
        yield from (Check(title, result) for title, result in zip(_TITLES_OF_STATE, state, strict=True))

    async def _trust(self, authority: _Secret) -> Result:
        """What servers present. A third CA is of a rotation whose record was deleted: nodes still use it."""
        name = f"{self.key.name}-trust"
        if authority.pair is None:
            return NotAsked("the Secret of the cluster's CA has no usable pair")
        try:
            found = read_bundle(decoded(await self.management.get(SECRETS.object(name, self.key.namespace)))[SERVER_CA])
        except NotFound:
            return Holds("it does not exist")
        except ApiError as error:
            return NotReadable(error)
        except (ValueError, KeyError):
            return Lacks(f"Secret {name} has no {SERVER_CA} that can be read: restore it, or delete it")
        others = () if isinstance(found, UnreadableBundle) else {*map(digest_of, found)} - {authority.pair.signs.digest}
        if not others:
            return Holds()
        return Lacks(
            f"Secret {name} names another CA than Secret {self.key.name}-ca: the record of a rotation was deleted. "
            'Restore the record, or see docs/rotation.md, "A record that was deleted"'
        )

    async def _signing(self, authority: _Secret) -> Result:
        """kube-controller-manager signs with the present CA until the rotation changes that."""
        name = signing_secret_name(self.key.name)
        if authority.pair is None:
            return NotAsked("the Secret of the cluster's CA has no usable pair")
        try:
            found = read_signing(await self.management.get(SECRETS.object(name, self.key.namespace)))
        except NotFound:
            found = Absent()
        except ApiError as error:
            return NotReadable(error)
        digest = authority.pair.signs.digest
        if found == SigningFacts(digest, digest):
            return Holds()
        why = {Absent: "does not exist", SigningFacts: "holds another pair"}.get(type(found), "cannot be used")
        detail = f" ({found.message})" if isinstance(found, Unusable) else ""
        return Lacks(
            f"Secret {name} {why}{detail}: its client.crt and serving.crt must be tls.crt, and its client.key and "
            f"serving.key tls.key, of Secret {self.key.name}-ca"
        )

    def _template(self, cluster: RotatedCluster | Result, found: KubeadmControlPlane, pairs: SigningPairs) -> Result:
        try:
            template = readiness(control_plane_template(found.manifest), self.key.name, pairs)
        except InvalidTemplate as error:
            return Lacks(f"the KubeadmControlPlane cannot be read: {error}")
        match template:
            case Unsuitable(reason):
                return Lacks(reason)
            case Missing():
                topology = cluster.topology if isinstance(cluster, RotatedCluster) else None
                name = topology.cluster_class if isinstance(topology, ClusterTopology) else ""
                return Lacks(
                    "the control plane's template is not rotation-ready",
                    how_to_make_ready(found.manifest, template, self.key.name, name),
                )
            case _:
                return Holds()

    async def _joined(self) -> Result:
        try:
            waiting = (await self.machines()).without_node
        except ApiError as error:
            return NotReadable(error)
        if waiting:
            return Lacks(f"wait until these Machines of the control plane have joined: {', '.join(waiting)}")
        return Holds()


_TITLES_OF_STATE: Final = (
    "its Kubernetes reads the CAs of clients while it runs",
    "it is neither paused nor being deleted",
    "all its machines exist, are ready and up to date",
)
_NOT_READ: Final = NotAsked("the KubeadmControlPlane could not be read")
_HOLDS_A_PAIR: Final = "holds one certificate or public key with its key, and does not end soon"
_NOT_ROTATED: Final = "is not rotated"


@dataclass(frozen=True, slots=True)
class _Secret:
    """What one authority's Secret has shown."""

    kind: AuthorityKind
    title: str
    result: Result
    pair: HeldPair | None = None
    takes_back: TakesBack = TakesBack.NOT_LINKED


def _undisturbed(cluster: RotatedCluster | Result) -> Result:
    if not isinstance(cluster, RotatedCluster):
        return cluster
    if cluster.deleting:
        return Lacks("the Cluster is being deleted")
    return Lacks("the Cluster is paused") if cluster.paused else Holds()


def _chosen_pairs(found: KubeadmControlPlane | Result) -> SigningPairs:
    if not isinstance(found, KubeadmControlPlane):
        return SigningPairs.ONE_PAIR
    try:
        return chosen_pairs(control_plane_template(found.manifest))
    except InvalidTemplate:
        return SigningPairs.ONE_PAIR  # the check of the template says why it cannot be read


def _kind(cluster: RotatedCluster | Result) -> Result:
    if not isinstance(cluster, RotatedCluster):
        return NotAsked("the Cluster could not be read")
    kind = control_plane_kind(cluster.control_plane, SigningKey.PRESENT)
    return Holds() if isinstance(kind, Rotatable) else Lacks(_refusal(kind))


def _of_state(found: KubeadmControlPlane) -> tuple[Result, ...]:
    """See :data:`_TITLES_OF_STATE`."""
    old = Lacks("Kubernetes before 1.19 reads the CAs of clients at the start of API servers only")
    disturbed = Lacks(f"{found} is paused or being deleted")
    incomplete = Lacks(f"wait until the control plane is complete: {found.replicas}")
    return (
        old if found.kubernetes_version < OLDEST_VERSION else Holds(),
        disturbed if found.paused or found.deleting else Holds(),
        incomplete if found.rollout is Rollout.RUNNING or not found.replicas.settled else Holds(str(found.replicas)),
    )


def _refusal(kind: Rotatable | Assisted | Refused) -> str:
    match kind:
        case Assisted(reason, what_to_do):
            return f"{reason}. {what_to_do}"
        case Refused(reason):
            return reason
        case Rotatable():
            return "the Secret of the cluster's CA has no usable key"
