"""Removes auto-approval from one workload cluster, verifies the removal, and reports it in a condition.

Enforce removes the bindings by which kube-controller-manager approves kubelet CSRs without attestation, and saves them
for when the cluster leaves Enforce. The controller never concludes from its own removals that auto-approval is gone: it
asks the API server. Other grants are reported, and left to an administrator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from random import SystemRandom
from typing import Final

from signer.controller.auto_approval.findings import (
    Findings,
    Situation,
    conclusion,
    condition,
    is_expected,
    is_untouchable,
    listed,
)
from signer.controller.auto_approval.workload_grants import (
    AuthorizerFailed,
    CannotBeProven,
    MissingGrant,
    TokensUnread,
    missing_grant,
    openings_of,
    read_grants,
    read_token_groups,
)
from signer.kube.backoff import Backoff
from signer.kube.calls import Manage
from signer.kube.errors import ApiError, Conflict, Forbidden, NotFound
from signer.kube.resources import CLUSTER_ROLE_BINDINGS
from signer.model.auto_approval import ApprovalSubresource, ClusterIdentity, UnreadableGrant, shown
from signer.model.condition import PolicyCondition
from signer.model.policy import Mode
from signer.model.saved_bindings import BindingsNotSaved, OtherLineages
from signer.rules.auto_approval import (
    AllowedReview,
    RemovableGrant,
    ReviewedIdentity,
    TooManyIdentities,
    due_removals,
    reviewed_identities,
)
from signer.store.removed_bindings import RemovedBindings

_LOG = logging.getLogger(__name__)

RECONCILE_TIMEOUT_SECONDS: Final = 120.0
"""Limit for one check of one cluster; every call has its own, shorter timeout."""
_ROUNDS: Final = 3
"""Attempts when a binding changes while it is being removed."""
_RBAC_LAG_BACKOFF: Final = Backoff(base_seconds=0.1, maximum_seconds=2.0, jitter=0.5)
_RBAC_LAG_CHECKS: Final = 6
"""RBAC answers from a cache of the bindings; right after a removal its "yes" may be stale."""


class AutoApprovalRemoval:
    """Removes or restores the auto-approval of one workload cluster."""

    def __init__(self, removed: RemovedBindings) -> None:
        self._removed = removed
        self._random = SystemRandom()
        self._followed: tuple[ClusterIdentity, str] | None = None
        """UID and CA under which the cluster's saved bindings are known to be found, and the key that sealed them."""
        self.last_removed: dict[str, str] = {}
        """Bindings that the last check removed: UIDs by name."""

    async def reconcile(self, client: Manage, situation: Situation) -> PolicyCondition:
        """Remove or restore according to the policy's mode, and return condition ``AutoApprovalRemoved``."""
        self.last_removed.clear()
        try:
            async with asyncio.timeout(RECONCILE_TIMEOUT_SECONDS):
                if situation.policy.mode is Mode.ENFORCE:
                    return await self._enforce(client, situation)
                return await self._observe(client, situation)
        except MissingGrant as error:
            return condition(None, "Forbidden", str(error))
        except CannotBeProven as error:
            return condition(None, error.reason, f"it cannot be proven that automatic approval is removed: {error}")
        except TooManyIdentities as error:
            return condition(None, "TooManyGrants", f"it cannot be proven that automatic approval is removed: {error}")
        except UnreadableGrant as error:
            return condition(None, "UnreadableGrant", f"a grant of automatic approval cannot be read: {error}")
        except ApiError as error:
            return condition(None, type(error).__name__, f"the workload cluster cannot be queried: {error}")
        except TimeoutError:
            return condition(
                None, "TimedOut", f"the workload cluster answered too slowly: {RECONCILE_TIMEOUT_SECONDS:.0f} s"
            )

    # Observe

    async def _observe(self, client: Manage, situation: Situation) -> PolicyCondition:
        observing = "mode Observe leaves kubeadm's automatic approval as it is"
        if is_untouchable(situation.cluster):
            return condition(False, "Observing", observing)
        try:
            restored = await self._removed.restore(situation.owner, client)
        except (BindingsNotSaved, ApiError) as error:
            return condition(
                False, "RestorationIncomplete", f"{observing}; what Enforce removed is not restored yet: {error}"
            )
        incomplete: list[str] = []
        if restored.not_restored:
            incomplete.append(f"not restored: {listed([str(one) for one in restored.not_restored])}")
        if isinstance(restored.others, OtherLineages):
            incomplete.append(str(restored.others))
        if incomplete:
            return condition(False, "RestorationIncomplete", "; ".join([observing, *incomplete]))
        return condition(False, "Observing", observing)

    # Enforce

    async def _enforce(self, client: Manage, situation: Situation) -> PolicyCondition:
        findings = Findings()
        await self._remove_due(client, situation, findings)
        groups = set(situation.token_groups)
        tokens = await read_token_groups(client)
        if isinstance(tokens, TokensUnread):
            findings.notes.append(f"groups of bootstrap tokens are known from requests only: {tokens.cause}")
        else:
            groups |= tokens
        identities = reviewed_identities(findings.grants.values(), sorted(groups, key=sorted))
        openings = await self._openings(client, identities, situation, findings)
        if not is_untouchable(situation.cluster):
            await self._follow(situation.owner)
        return conclusion(situation, findings, openings)

    async def _openings(
        self,
        client: Manage,
        identities: Sequence[ReviewedIdentity],
        situation: Situation,
        findings: Findings,
    ) -> tuple[AllowedReview, ...]:
        """The openings. If an authorizer fails, those found before, provided that one grants first certificates.

        In that case auto-approval is possible regardless of the remaining reviews. An opening for renewal alone, or one
        that a removal has closed meanwhile, does not decide that, because the remaining identities were not reviewed.
        """
        failure: AuthorizerFailed | None = None
        try:
            openings = await openings_of(client, identities)
        except AuthorizerFailed as error:
            openings, failure = error.openings, error
        if findings.removed:
            openings = await self._after_rbac_lag(client, openings, situation.unattested)
        if failure is not None:
            if not any(opening.subresource is ApprovalSubresource.NODECLIENT for opening in openings):
                raise failure
            findings.notes.append(str(failure))
        return openings

    async def _follow(self, owner: ClusterIdentity) -> None:
        """Once for each UID, CA and controller key: what is saved must be found and believed under the next ones."""
        try:
            followed = owner, self._removed.key_identifier()
            if followed == self._followed:
                return
            await self._removed.update_lineage(owner)
        except BindingsNotSaved as error:  # what is due now says it in the condition; else the next check tries again
            _LOG.warning("saved bindings cannot be read", extra={"cluster": str(owner), "error": str(error)})
        else:
            self._followed = followed

    async def _remove_due(self, client: Manage, situation: Situation, findings: Findings) -> None:
        for _ in range(_ROUNDS):
            grants = await read_grants(client)
            findings.grants |= {grant.binding.name: grant for grant in grants}
            findings.failures.clear()
            due = due_removals(grants, situation.unattested)
            if not due or is_untouchable(situation.cluster):
                return
            try:
                await self._removed.save(situation.owner, [grant.binding for grant in due])
            except BindingsNotSaved as error:
                findings.failures.append(("RemovedGrantsNotKept", f"nothing is removed that cannot be saved: {error}"))
                return
            conflicts = [grant for grant in due if not await self._remove(client, situation.owner, grant, findings)]
            if not conflicts:
                return

    async def _remove(self, client: Manage, owner: ClusterIdentity, grant: RemovableGrant, findings: Findings) -> bool:
        """Delete exactly the binding that was saved; False if it has changed and must be read again."""
        binding = grant.binding
        path = CLUSTER_ROLE_BINDINGS.object(binding.name)
        try:
            await client.delete(path, uid=binding.uid, resource_version=binding.resource_version)
        except NotFound:
            return True
        except Conflict:
            findings.failures.append(("RemovalPending", f"ClusterRoleBinding {shown(binding.name)} keeps changing"))
            return False
        except Forbidden as error:
            findings.failures.append(("Forbidden", missing_grant("delete", CLUSTER_ROLE_BINDINGS, error)))
            return True
        except ApiError as error:
            findings.failures.append(("RemovalPending", f"ClusterRoleBinding {shown(binding.name)}: {error}"))
            return True
        findings.removed.add(binding.name)
        self.last_removed[binding.name] = binding.uid
        _LOG.info(
            "removed a grant of automatic approval",
            extra={
                "cluster": str(owner),
                "binding": shown(binding.name),
                "subresources": sorted(subresource.value for subresource in grant.subresources),
            },
        )
        return True

    async def _after_rbac_lag(
        self, client: Manage, openings: tuple[AllowedReview, ...], unattested: Sequence[str]
    ) -> tuple[AllowedReview, ...]:
        """Review the unexpected openings again for a few seconds, until the API server's cache reflects the removal."""
        for attempt in range(_RBAC_LAG_CHECKS):
            expected = [one for one in openings if is_expected(one, unattested)]
            if len(expected) == len(openings):
                break
            await asyncio.sleep(_RBAC_LAG_BACKOFF.delay(attempt, self._random))
            still = [
                still_open
                for opening in openings
                if opening not in expected
                for still_open in await openings_of(client, [opening.identity], [opening.subresource])
            ]
            openings = (*expected, *still)
        return openings
