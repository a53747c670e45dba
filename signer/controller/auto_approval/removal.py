"""Shuts the auto-approval of one workload cluster, proves that it is shut, and says so in a condition.

Enforce removes the bindings by which the built-in signer approves kubelet CSRs without attestation, and keeps them for
the day on which the cluster leaves Enforce. Whether the door is shut is never concluded from what was removed: the API
server is asked. What is open in spite of that is named, and left to a person.
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
    hands_off,
    is_expected,
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
    Opening,
    RemovableGrant,
    ReviewedIdentity,
    TooManyIdentities,
    due_removals,
    reviewed_identities,
)
from signer.store.removed_bindings import RemovedBindings

_LOG = logging.getLogger(__name__)

RECONCILE_TIMEOUT_SECONDS: Final = 120.0
"""One look at one cluster; every call has its own, shorter, bound."""
_ROUNDS: Final = 3
"""How often the bindings are listed again because one changed while it was removed."""
_SETTLING: Final = Backoff(base_seconds=0.1, maximum_seconds=2.0, jitter=0.5)
_SETTLING_LOOKS: Final = 6
"""RBAC answers from a cache that follows the bindings; after a removal its "yes" may be a moment old."""


class AutoApprovalRemoval:
    """The auto-approval of one workload cluster."""

    def __init__(self, removed: RemovedBindings) -> None:
        self._removed = removed
        self._random = SystemRandom()
        self._followed: ClusterIdentity | None = None
        """By which marks what is saved for the cluster is known, as far as this object has seen to it."""
        self.removed_at_last_look: dict[str, str] = {}
        """Names of the bindings, and their UIDs."""

    async def reconcile(self, client: Manage, situation: Situation) -> PolicyCondition:
        """Do what the policy's mode asks for, and return the condition ``AutoApprovalRemoved``."""
        self.removed_at_last_look.clear()
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
            return condition(None, "UnreadableGrant", f"it cannot be read who is approved automatically: {error}")
        except ApiError as error:
            return condition(None, type(error).__name__, f"the workload cluster cannot be asked: {error}")
        except TimeoutError:
            return condition(
                None, "TimedOut", f"the workload cluster answered too slowly: {RECONCILE_TIMEOUT_SECONDS:.0f} s"
            )

    # Observe

    async def _observe(self, client: Manage, situation: Situation) -> PolicyCondition:
        observing = "mode Observe leaves kubeadm's automatic approval as it is"
        if hands_off(situation.cluster):
            return condition(False, "Observing", observing)
        try:
            restored = await self._removed.restore(situation.owner, client)
        except (BindingsNotSaved, ApiError) as error:
            return condition(
                False, "RestorationIncomplete", f"{observing}; what Enforce removed is not back yet: {error}"
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
        await self._remove_what_is_due(client, situation, findings)
        groups = set(situation.token_groups)
        tokens = await read_token_groups(client)
        if isinstance(tokens, TokensUnread):
            findings.notes.append(f"groups of bootstrap tokens are known from requests only: {tokens.cause}")
        else:
            groups |= tokens
        identities = reviewed_identities(findings.grants.values(), sorted(groups, key=sorted))
        openings = await self._openings(client, identities, situation, findings)
        if not hands_off(situation.cluster):
            await self._follow(situation.owner)
        return conclusion(situation, findings, openings)

    async def _openings(
        self,
        client: Manage,
        identities: Sequence[ReviewedIdentity],
        situation: Situation,
        findings: Findings,
    ) -> tuple[Opening, ...]:
        """The openings; those that are known where an authorizer fails, if first certificates are among them.

        That door is open then, whatever the others would have been answered. Renewal alone says nothing of it; nor does
        what a removal has shut meanwhile, for the others were not asked.
        """
        failure: AuthorizerFailed | None = None
        try:
            openings = await openings_of(client, identities)
        except AuthorizerFailed as error:
            openings, failure = error.openings, error
        if findings.removed:
            openings = await self._settled(client, openings, situation.unattested)
        if failure is not None:
            if not any(opening.subresource is ApprovalSubresource.NODECLIENT for opening in openings):
                raise failure
            findings.notes.append(str(failure))
        return openings

    async def _follow(self, owner: ClusterIdentity) -> None:
        """Once for each UID and CA of the cluster: what is saved for it must be found under the next ones too."""
        if owner == self._followed:
            return
        try:
            await self._removed.follow(owner)
        except BindingsNotSaved as error:  # what is due now says it in the condition; else it is tried at the next look
            _LOG.warning("saved bindings cannot be read", extra={"cluster": str(owner), "error": str(error)})
        else:
            self._followed = owner

    async def _remove_what_is_due(self, client: Manage, situation: Situation, findings: Findings) -> None:
        for _ in range(_ROUNDS):
            grants = await read_grants(client)
            findings.grants |= {grant.binding.name: grant for grant in grants}
            findings.failures.clear()
            due = due_removals(grants, situation.unattested)
            if not due or hands_off(situation.cluster):
                return
            try:
                await self._removed.keep(situation.owner, [grant.binding for grant in due])
            except BindingsNotSaved as error:
                findings.failures.append(("RemovedGrantsNotKept", f"nothing is removed that cannot be kept: {error}"))
                return
            conflicts = [grant for grant in due if not await self._remove(client, situation.owner, grant, findings)]
            if not conflicts:
                return

    async def _remove(self, client: Manage, owner: ClusterIdentity, grant: RemovableGrant, findings: Findings) -> bool:
        """Delete the very binding that was kept; False where it has changed, and must be looked at again."""
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
        self.removed_at_last_look[binding.name] = binding.uid
        _LOG.info(
            "removed a grant of automatic approval",
            extra={
                "cluster": str(owner),
                "binding": shown(binding.name),
                "subresources": sorted(subresource.value for subresource in grant.subresources),
            },
        )
        return True

    async def _settled(
        self, client: Manage, openings: tuple[Opening, ...], unattested: Sequence[str]
    ) -> tuple[Opening, ...]:
        """Ask again, for a few seconds, about what should be shut by now."""
        for attempt in range(_SETTLING_LOOKS):
            expected = [one for one in openings if is_expected(one, unattested)]
            if len(expected) == len(openings):
                break
            await asyncio.sleep(_SETTLING.delay(attempt, self._random))
            still = [
                again
                for opening in openings
                if opening not in expected
                for again in await openings_of(client, [opening.identity], [opening.subresource])
            ]
            openings = (*expected, *still)
        return openings
