"""Makes, verifies, offers and rotates the two SSH authorities of one workload cluster while it is connected.

It writes the two Secrets, takes orders off the policy, and signs nothing. It keeps nothing in memory that a rotation
needs: each pass reads the Secrets again, and makes the one move that comes next.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Final, Protocol

from signer.authority.ssh.private_key import new_private_key
from signer.authority.ssh.secret import AuthorityPurpose
from signer.configuration import MasterSecrets, SSHPermission
from signer.kube.backoff import Backoff
from signer.kube.calls import Create, Get, Patch, Replace
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from signer.kube.resources import NODE_ATTESTATION_POLICIES, SECRETS
from signer.kube.supervision import until_wanted
from signer.model.cluster import ClusterKey, ClusterView
from signer.model.condition import PolicyCondition
from signer.model.decision import Deferred, printable
from signer.model.policy import Policy
from signer.model.ssh_access import MasterSecretReference, NoMasterSecret, NoRotationPeriod, SSHOff, SSHSettings
from signer.rotation.operations import (
    OPERATION_ANNOTATION,
    SKIP_GATES_ANNOTATION,
    OperationRejected,
    Order,
    read_order,
)
from signer.ssh.available import NotAvailable, Reason, SSHAuthorities
from signer.ssh.master_secret import DerivedKeys, NotDerived, derived_keys
from signer.ssh.orders import changes_of
from signer.ssh.plan import (
    AuthorityFacts,
    MakeAuthority,
    Move,
    Offer,
    RecordTrust,
    Rotate,
    SealAuthority,
    break_glass_replaced,
    next_move,
)
from signer.ssh.reports import NotReported, ReportsOf
from signer.ssh.rotation_plan import Progress, Skips, Waits, skipped_text
from signer.ssh.rotation_record import AuthorityRotation, Step
from signer.ssh.secrets import (
    Absent,
    Change,
    HeldAuthority,
    ReplaceAll,
    Unusable,
    authority_manifest,
    changed,
    read_authority,
    sealed_anew,
    secret_name,
    with_trust,
)
from signer.ssh.status import SPOKEN, conditions_of, is_under_way, lagging, rejected_condition, status_of
from signer.store.caches import Caches

_LOG = logging.getLogger(__name__)
IDLE_SECONDS: Final = 600.0
"""Between looks at a cluster whose policy does not turn SSH on; a change of its policy is seen at once."""
VERIFIED_SECONDS: Final = 300.0
"""Between passes over the Secrets while the authorities are available."""
WAITING: Final = Backoff(base_seconds=5.0, maximum_seconds=VERIFIED_SECONDS, jitter=0.2)
BREAK_GLASS_REPLACED: Final = (
    "every break-glass key was replaced at once: a node that has not taken the new trust opens to none of the new "
    "ones. List the former ones, too, until every node has attested with the new trust version"
)
ROTATING_SECONDS: Final = 15.0
"""Between passes while a rotation waits for nodes."""
CHANGED_SECONDS: Final = 0.5
"""After a write that another one came before."""
MOST_CONFLICTS: Final = 5
"""Of writes one after the other. The offer before them may count no longer, as for a revocation: it is withheld then,
so a client that edits a Secret all the time delays no revocation for long."""


class ManagementCalls(Get, Create, Replace, Patch, Protocol):
    """The calls to the management cluster."""


class Tell(Protocol):
    """Records an Event on the policy."""

    def __call__(self, kind: str, reason: str, message: str) -> None:
        """``kind`` is Normal or Warning."""
        ...


@dataclass(frozen=True, slots=True)
class _NothingToShow:
    """The policy does not turn SSH on and never has, or no pass has been made."""


class SSHReconciler:
    """Looks after the SSH authorities of one workload cluster."""

    name: Final = "SSH authorities"

    def __init__(
        self,
        key: ClusterKey,
        *,
        management: ManagementCalls,
        caches: Caches,
        authorities: SSHAuthorities,
        permission: SSHPermission,
        reports: ReportsOf,
        tell: Tell,
        changed: Callable[[], None],
        now: Callable[[], datetime],
        random: Random,
    ) -> None:
        """``changed`` is called when conditions or status have changed."""
        self._key = key
        self._management = management
        self._caches = caches
        self._authorities = authorities
        self._permission = permission
        self._reports = reports
        self._tell = tell
        self._changed = changed
        self._now = now
        self._random = random
        self._wanted = asyncio.Event()
        self._waits = 0
        self._conflicts = 0
        """Writes since the last pass without one."""
        self._follows_an_order = False
        """The last pass carried an order out, and nothing has been offered since."""
        self._last: Offer | NotAvailable | _NothingToShow = _NothingToShow()
        self._rejected: tuple[PolicyCondition, ...] = ()

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """For the policy's status."""
        if isinstance(self._last, _NothingToShow):
            return self._rejected
        settings = self._settings()
        period = settings.rotation_period if isinstance(settings, SSHSettings) else NoRotationPeriod()
        return (*conditions_of(self._last, period, self._now()), *self._rejected)

    @property
    def status(self) -> JsonObject:
        """``status.ssh`` of the policy; empty unless the authorities are available."""
        return status_of(self._last) if isinstance(self._last, Offer) else {}

    @property
    def available(self) -> bool | Absent:
        """For the metric; Absent if the policy does not turn SSH on and never has."""
        return Absent() if isinstance(self._last, _NothingToShow) else isinstance(self._last, Offer)

    @property
    def lagging(self) -> tuple[str, ...] | Absent:
        """The nodes for which a rotation waits; Absent while none is under way."""
        return lagging(self._last) if isinstance(self._last, Offer) and is_under_way(self._last) else Absent()

    def wake(self) -> None:
        """The Cluster or its policy has changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Work until cancelled. Then nothing is available: another replica may serve the Cluster."""
        try:
            while True:
                self._wanted.clear()
                pause = await self._try_pass()
                await until_wanted(self._wanted, pause)
        finally:
            self._authorities.forget(self._key)

    async def _try_pass(self) -> float:
        before = (tuple(self.conditions), self.status)
        try:
            pause = await self.look()
            self._conflicts = 0
        except (Conflict, AlreadyExists, NotFound) as error:
            pause = self._changed_meanwhile(error)
        except (ApiError, Deferred) as error:
            pause = self._failed(error)
        if (tuple(self.conditions), self.status) != before:
            self._changed()
        return pause

    def _changed_meanwhile(self, error: ApiError) -> float:
        """Another client wrote first. The next pass reads what is there now."""
        self._conflicts += 1
        if self._conflicts == MOST_CONFLICTS:
            _LOG.warning(
                "another client changes the SSH authorities' Secrets all the time",
                extra={"cluster": str(self._key), "error": printable(str(error))},
            )
            self._withhold(
                NotAvailable(
                    Reason.NOT_KNOWN,
                    f"another client changes the two Secrets all the time: {MOST_CONFLICTS} writes in a row met a "
                    "conflict. Nothing is signed until one succeeds; metadata.managedFields names the client",
                )
            )
        return CHANGED_SECONDS

    def _failed(self, error: ApiError | Deferred) -> float:
        """What cannot be verified is not available, whatever it was before."""
        said = printable(str(error))
        _LOG.warning("the SSH authorities cannot be looked after", extra={"cluster": str(self._key), "error": said})
        self._withhold(NotAvailable(Reason.NOT_KNOWN, f"the two Secrets cannot be looked after: {said}"))
        return self._waiting()

    def _waiting(self) -> float:
        self._waits += 1
        return WAITING.delay(self._waits - 1, self._random)

    def _withhold(self, why: NotAvailable) -> None:
        self._last = why
        self._authorities.withhold(self._key, why)

    async def look(self) -> float:
        """One pass; returns how many seconds to wait before the next one.

        Raises:
            ApiError: from the management cluster.
            Deferred: the controller key is not available, or the caches are out of touch.
        """
        cluster = self._caches.clusters.get(self._key.namespace, self._key.name)
        wanted = self._wants(cluster)
        if isinstance(wanted, NotAvailable):
            self._authorities.withhold(self._key, wanted)  # before anything that may fail
        if cluster is None or cluster.deleting:
            self._last = _NothingToShow()
            return IDLE_SECONDS
        self._caches.require_current(self._key.namespace)
        policy = await self._policy_object()
        order = read_order(policy)
        host, user = await self._read(AuthorityPurpose.HOST), await self._read(AuthorityPurpose.USER)
        facts = AuthorityFacts(
            self._key,
            self._now(),
            wanted,
            user=user,
            host=host,
            # It looks at all records, and a tenant whose policy has no SSH can wake this at will.
            reports=NotReported(wanted.message) if isinstance(wanted, NotAvailable) else self._reports(self._key),
            derived=await self._derive(wanted),
        )
        move = next_move(facts)
        if isinstance(order, Order) and order.operation.is_on_ssh and isinstance(move, Offer | NotAvailable):
            if self._follows_an_order:
                # What the last order changed is offered first: a client may write orders without end.
                self._follows_an_order = False
                await self._make(move, cluster)
                return 0.0
            await self._carry_out(order, move, policy)
            self._follows_an_order = True
            return 0.0
        self._follows_an_order = False
        if isinstance(host, Absent) and isinstance(user, Absent) and isinstance(self._settings(), SSHOff):
            self._last = _NothingToShow()
            return IDLE_SECONDS
        return await self._make(move, cluster)

    async def _make(self, move: Move, cluster: ClusterView) -> float:
        match move:
            case MakeAuthority(purpose):
                await self._create(purpose, cluster)
                return 0.0
            case SealAuthority(held):
                await self._replace(held, sealed_anew(held, self._key, self._caches.authentic.keys()))
                return 0.0
            case RecordTrust(held, trust):
                await self._replace(held, with_trust(held, trust, self._key, self._caches.authentic.keys()))
                return 0.0
            case Rotate(held, change, skips):
                await self._change(held, change, skips)
                return 0.0
            case Offer():
                if isinstance(self._last, Offer) and break_glass_replaced(self._last, move):
                    self._warn("BreakGlassKeysReplaced", BREAK_GLASS_REPLACED)
                self._last, self._waits = move, 0
                self._authorities.offer(self._key, move.authorities)
                return min(self._pause(one) for one in (move.user_progress, move.host_progress))
            case NotAvailable(reason):
                self._withhold(move)
                return IDLE_SECONDS if reason in _UNTIL_WOKEN else self._waiting()

    def _pause(self, progress: Progress) -> float:
        match progress:
            case Waits(Step.PREPARED):
                return VERIFIED_SECONDS  # the order of a person wakes this
            case Waits(until=datetime() as until):
                return min(VERIFIED_SECONDS, max(1.0, (until - self._now()).total_seconds()))
            case Waits():
                return ROTATING_SECONDS
            case _:
                return VERIFIED_SECONDS

    # Orders

    async def _policy_object(self) -> JsonObject:
        try:
            return await self._management.get(NODE_ATTESTATION_POLICIES.object(self._key.name, self._key.namespace))
        except NotFound:
            return {}

    async def _carry_out(self, order: Order, found: Offer | NotAvailable, policy: JsonObject) -> None:
        """Carry the order out or reject it; then take the annotation away. After a crash in between, the same order
        comes again: the Secrets name it, so only the annotation goes.
        """
        try:
            if isinstance(found, NotAvailable):
                raise OperationRejected(f"the SSH authorities are not available: {found.message}")
            changes = changes_of(order, found.user, found.host, self._now())
        except OperationRejected as rejected:
            why = printable(str(rejected))
            self._rejected = (rejected_condition(order.operation.value, why),)
            self._tell("Warning", "SSHOperationRejected", f"{order.operation.value}: {why}")
        else:
            for held, change in changes:
                await self._change(held, change, Skips(()))
            self._rejected = ()
        await self._remove_annotation(policy)

    async def _change(self, held: HeldAuthority, change: Change, skips: Skips) -> None:
        """One write of a rotation."""
        keys = self._caches.authentic.keys()
        await self._replace(held, changed(held, change, self._key, keys, self._now(), new_private_key))
        rotation, name = change.rotation, SPOKEN[held.purpose]
        detail = f"{name} authority: {rotation.phase.value}, step {rotation.step.value}"
        _LOG.info("an SSH authority is rotated", extra={"cluster": str(self._key), "detail": detail})
        if skips.members:
            self._warn("NodesSkipped", f"{detail}: {skipped_text(skips)}")
        before = held.rotation
        if isinstance(change, ReplaceAll):
            fingerprint = held.authority.public_key.fingerprint
            self._warn(
                "SSHAuthorityRevoked", f"{name} authority {fingerprint} is trusted no longer, and another one signs"
            )
        elif not isinstance(before, AuthorityRotation) or before.phase is not rotation.phase:
            self._tell("Normal", f"SSHAuthority{rotation.phase.value}", detail)

    def _warn(self, reason: str, message: str) -> None:
        self._tell("Warning", reason, message)
        _LOG.warning("a rotation of SSH authorities", extra={"cluster": str(self._key), "detail": printable(message)})

    async def _remove_annotation(self, policy: JsonObject) -> None:
        """Only from the version that had the order: another one may have been written since."""
        annotations = {OPERATION_ANNOTATION: None, SKIP_GATES_ANNOTATION: None}
        metadata = {"resourceVersion": policy["metadata"]["resourceVersion"], "annotations": annotations}
        path = NODE_ATTESTATION_POLICIES.object(self._key.name, self._key.namespace)
        with contextlib.suppress(Conflict, NotFound):
            await self._management.patch(path, {"metadata": metadata})

    # What the policy and the operator want

    def _settings(self) -> SSHSettings | SSHOff:
        policy = self._caches.policies.get(self._key.namespace, self._key.name)
        return policy.ssh if isinstance(policy, Policy) else SSHOff()

    def _wants(self, cluster: ClusterView | None) -> SSHSettings | NotAvailable:
        settings = self._settings()
        if cluster is None:
            return NotAvailable(Reason.NOT_CHOSEN, "there is no Cluster")
        if cluster.deleting:
            return NotAvailable(Reason.NOT_CHOSEN, "the Cluster is being deleted")
        if isinstance(settings, SSHOff):
            return NotAvailable(Reason.NOT_CHOSEN, "the policy does not turn SSH on, or is invalid")
        if not self._permission.allows(self._key.namespace):
            return NotAvailable(
                Reason.NOT_ALLOWED,
                f"this controller allows SSH to no policy in namespace {self._key.namespace}: its configuration file "
                "says where, in ssh.namespaces",
            )
        named = isinstance(settings.master_secret, MasterSecretReference)
        if named and self._permission.master_secrets is not MasterSecrets.ALLOWED:
            return NotAvailable(
                Reason.NOT_ALLOWED,
                "this controller allows no policy to name a master secret, which puts a root credential online: its "
                "configuration file says so in ssh.masterSecrets; name the authority's public key in "
                "spec.ssh.breakGlass.publicKeys instead",
            )
        if cluster.paused:
            return NotAvailable(Reason.PAUSED, "the Cluster is paused, so it may be moving")
        return settings

    # Reads and writes

    async def _read(self, purpose: AuthorityPurpose) -> HeldAuthority | Absent | Unusable:
        try:
            found = await self._management.get(self._path(purpose))
        except NotFound:
            return Absent()
        return read_authority(purpose, self._key, found, self._caches.authentic.keys())

    async def _derive(self, wanted: SSHSettings | NotAvailable) -> DerivedKeys | NotDerived | NoMasterSecret:
        """The public keys of the policy's master secret. Nothing else of it is kept."""
        if isinstance(wanted, NotAvailable) or isinstance(wanted.master_secret, NoMasterSecret):
            return NoMasterSecret()
        reference = wanted.master_secret
        try:
            found = await self._management.get(SECRETS.object(reference.name, self._key.namespace))
        except NotFound:
            found = {}
        return derived_keys(found, reference)

    def _path(self, purpose: AuthorityPurpose) -> str:
        return SECRETS.object(secret_name(self._key, purpose), self._key.namespace)

    async def _create(self, purpose: AuthorityPurpose, cluster: ClusterView) -> None:
        key, version = new_private_key(), self._caches.version.clusters.api_version
        manifest = authority_manifest(purpose, key, cluster, version, self._caches.authentic.keys(), self._now())
        await self._management.create(SECRETS.collection(self._key.namespace), manifest)
        _LOG.info(
            "made an SSH authority",
            extra={"cluster": str(self._key), "secret": secret_name(self._key, purpose)},
        )

    async def _replace(self, held: HeldAuthority, manifest: JsonObject) -> None:
        await self._management.replace(self._path(held.purpose), manifest)


_UNTIL_WOKEN: Final = frozenset(
    {Reason.NOT_CHOSEN, Reason.NOT_ALLOWED, Reason.PAUSED, Reason.BREAK_GLASS_KEY_IS_AUTHORITY}
)
"""Their end wakes the reconciler."""


__all__ = ["SSHReconciler"]
