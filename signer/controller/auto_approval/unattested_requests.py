"""Tracks requesters that get no certificate from the built-in signer: such nodes are lost when theirs expire.

Under Enforce such requests are no longer approved. The renewal coverage knows Machines whose nodes are not attested; a
node without a Machine, or from a template without the credential plugin, shows only by its requests.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from attestors.wire.names import BOOTSTRAP_USER_PREFIX, NODE_USER_PREFIX
from signer.controller.auto_approval.builtin_approvals import Seen, is_approved, is_builtin_request
from signer.controller.auto_approval.findings import listed
from signer.kube.client import JsonObject
from signer.model.condition import PolicyCondition
from signer.model.decision import MAXIMUM_MESSAGE_CHARACTERS, printable
from signer.model.fields import mapping_of, parse_time, text_of

REMEMBERED: Final = timedelta(hours=1)
"""A kubelet posts a new request about every 15 minutes (client-go util/certificate, certificateWaitTimeout)."""
MAXIMUM_REQUESTERS: Final = 64
"""Limit per cluster, whose API server may invent requesters. The first ones stay; a node replaces a bootstrap token."""
_MAXIMUM_ADDITION: Final = MAXIMUM_MESSAGE_CHARACTERS // 2
"""Reserved for requesters in the condition's message, regardless of how many Machines it lists."""
_REQUESTER: Final = re.compile(
    rf"{re.escape(NODE_USER_PREFIX)}[a-z0-9.-]{{1,253}}|{re.escape(BOOTSTRAP_USER_PREFIX)}[a-z0-9]{{6}}"
)


class UnattestedRequests:
    """Requesters of one cluster whose requests were not approved, with the time of their last request."""

    def __init__(self) -> None:
        self._requested_at: dict[str, datetime] = {}

    def observed(self, manifest: JsonObject, now: datetime) -> Seen:
        """Observe a CSR; ``NOW`` if the set of requesters has changed.

        An approval removes its requester: approvals without attestation are reported elsewhere.
        """
        spec = mapping_of(manifest, "spec")
        requester = text_of(spec, "username")
        if not is_builtin_request(manifest) or not _REQUESTER.fullmatch(requester):
            return Seen.BEFORE
        try:
            requested_at = min(parse_time(text_of(mapping_of(manifest, "metadata"), "creationTimestamp")), now)
        except ValueError:
            return Seen.BEFORE
        if is_approved(manifest):
            if requested_at < self._requested_at.get(requester, requested_at):
                return Seen.BEFORE  # from before auto-approval was removed; lists are sorted by name
            return Seen.NOW if self._requested_at.pop(requester, None) is not None else Seen.BEFORE
        self._forget(now)
        known = requester in self._requested_at
        if now - requested_at > REMEMBERED or not (known or self._fits(requester)):
            return Seen.BEFORE
        self._requested_at[requester] = max(requested_at, self._requested_at.get(requester, requested_at))
        return Seen.BEFORE if known else Seen.NOW

    def _fits(self, requester: str) -> bool:
        if len(self._requested_at) < MAXIMUM_REQUESTERS:
            return True
        token = next((one for one in self._requested_at if one.startswith(BOOTSTRAP_USER_PREFIX)), "")
        if not token or not requester.startswith(NODE_USER_PREFIX):
            return False
        del self._requested_at[token]
        return True

    def count(self, now: datetime) -> int:
        """The number of recent requesters; at most :data:`MAXIMUM_REQUESTERS`."""
        self._forget(now)
        return len(self._requested_at)

    def annotated(self, condition: PolicyCondition, now: datetime) -> PolicyCondition:
        """The condition with the requesters, nodes first, because they lose their certificates."""
        if not self.count(now):
            return condition
        requesters = sorted(self._requested_at, key=lambda one: (not one.startswith(NODE_USER_PREFIX), one))
        addition = (
            "; requested certificates without attestation within the last hour and got none: "
            f"{listed(requesters, most=MAXIMUM_REQUESTERS)}; their nodes need the credential plugin before their "
            "certificates expire"
        )
        before = condition.message[: MAXIMUM_MESSAGE_CHARACTERS - min(len(addition), _MAXIMUM_ADDITION)]
        return replace(condition, message=printable(f"{before}{addition}"))

    def _forget(self, now: datetime) -> None:
        for requester in [one for one, requested_at in self._requested_at.items() if now - requested_at > REMEMBERED]:
            del self._requested_at[requester]
