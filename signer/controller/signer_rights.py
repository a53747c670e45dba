"""Whether the controller may approve and sign for the attestors of a policy, by the workload API server's own word.

An API server asks its authorizers for the verbs ``approve`` and ``sign`` on a signer's name, and then on its domain
with ``/*`` (kube-apiserver ``pkg/certificates/authorization``, ``IsAuthorizedForSignerName``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from attestors.wire.names import SIGNER_DOMAIN, Purpose, SignerName
from signer.controller.workload_access import SIGNERS_ROLE, grant_remedy
from signer.kube.calls import Create
from signer.kube.errors import UnexpectedAnswer
from signer.kube.resources import SELF_SUBJECT_ACCESS_REVIEWS
from signer.model.cluster import ClusterKey
from signer.model.decision import printable
from signer.model.fields import mapping_of

_VERBS: Final = ("approve", "sign")
_SHOWN: Final = 3
"""Attestors in a message."""
_EVERYTHING: Final = {"verb": "*", "group": "*", "version": "*", "resource": "*"}


@dataclass(frozen=True, slots=True)
class MissingSignerRights:
    """What the controller may not do for the signers of one attestor."""

    provider: str
    verbs: tuple[str, ...]
    """``approve``, ``sign`` or both, for one or both of the attestor's signers."""


async def missing_signer_rights(client: Create, providers: Collection[str]) -> tuple[MissingSignerRights, ...]:
    """Review the rights of the client's own user; ``providers`` are the attestors that the policy authorizes.

    Raises:
        ApiError: the API server does not say.
    """
    if await _is_allowed(client, _EVERYTHING):
        return ()
    verbs = [verb for verb in _VERBS if not await _may(client, verb, f"{SIGNER_DOMAIN}/*")]
    found = []
    for provider in sorted(providers):
        signers = [str(SignerName(purpose, provider)) for purpose in Purpose]
        lacking = tuple([verb for verb in verbs if not await _may_for_all(client, verb, signers)])
        if lacking:
            found.append(MissingSignerRights(provider, lacking))
    return tuple(found)


def missing_rights_message(key: ClusterKey, missing: Sequence[MissingSignerRights]) -> str:
    """The fault and the remedy, for a condition and for commands."""
    shown = missing[:_SHOWN]
    named = "; ".join(f"{' and '.join(one.verbs)} for the signers of attestor {one.provider}" for one in shown)
    more = f"; and those of {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    return printable(f"the controller may not {named}{more} in the workload cluster: {grant_remedy(key, SIGNERS_ROLE)}")


async def _may_for_all(client: Create, verb: str, signers: Sequence[str]) -> bool:
    for signer in signers:
        if not await _may(client, verb, signer):
            return False
    return True


async def _may(client: Create, verb: str, signer: str) -> bool:
    attributes = {"verb": verb, "group": "certificates.k8s.io", "version": "*", "resource": "signers", "name": signer}
    return await _is_allowed(client, attributes)


async def _is_allowed(client: Create, attributes: dict[str, str]) -> bool:
    resource = SELF_SUBJECT_ACCESS_REVIEWS
    body = {
        "apiVersion": resource.api_version,
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = mapping_of(await client.create(resource.collection(), body), "status")
    allowed = answer.get("allowed")
    if not isinstance(allowed, bool):
        raise UnexpectedAnswer("a SelfSubjectAccessReview was answered with neither yes nor no", status=201)
    if not allowed and answer.get("evaluationError"):
        # After a failed authorizer, the API server asks the others and answers "no" if they do.
        raise UnexpectedAnswer("an authorizer of the API server failed, and may say yes when it answers", status=201)
    return allowed


__all__ = ["MissingSignerRights", "missing_rights_message", "missing_signer_rights"]
