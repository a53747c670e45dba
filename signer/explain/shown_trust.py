"""Whether the API server accepts the cluster's CA, as the running controller shows it in the policy's status.

A dry run issues no certificate, so it has no canary of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from signer.authority import IssuingSet
from signer.kube.calls import Get
from signer.kube.errors import ApiError
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.model.cluster import ClusterKey
from signer.model.condition import CERTIFICATE_AUTHORITY_TRUSTED
from signer.model.decision import Deferred, printable
from signer.model.fields import items_of, mapping_of, text_of
from signer.model.reasons import Reason

_REASONS = (Reason.CERTIFICATE_AUTHORITY_NOT_TRUSTED, Reason.CERTIFICATE_AUTHORITY_NOT_PROVEN)


@dataclass(frozen=True, slots=True)
class ShownTrust:
    """Implements :class:`~signer.decision.authority_trust.AuthorityTrust`."""

    management: Get
    key: ClusterKey

    async def require_trusted(self, authority: IssuingSet) -> None:
        """See AuthorityTrust. A policy that shows no such condition passes: the canary has not been tried."""
        del authority
        try:
            policy = await self.management.get(NODE_ATTESTATION_POLICIES.object(self.key.name, self.key.namespace))
        except ApiError:
            return
        for condition in items_of(mapping_of(policy, "status"), "conditions"):
            if not isinstance(condition, Mapping) or text_of(condition, "type") != CERTIFICATE_AUTHORITY_TRUSTED:
                continue
            for reason in _REASONS:
                if text_of(condition, "reason") == reason:
                    raise Deferred(reason, printable(text_of(condition, "message")))
