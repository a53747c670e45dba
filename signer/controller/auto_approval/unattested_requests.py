"""Who asks the built-in signer for client certificates and gets none: nodes that are lost when theirs run out.

Under Enforce nobody approves such requests any more. Of a Machine whose node is not attested the standings know; a node
without a Machine, or whose template lacks the plugin, shows by what it asks for.
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
from signer.model.fields import mapping_of, text_of
from signer.model.kubernetes_time import parse_time

REMEMBERED: Final = timedelta(hours=1)
"""A kubelet asks again every quarter of an hour or so (client-go util/certificate, certificateWaitTimeout)."""
MAXIMUM_REQUESTERS: Final = 64
"""Of one cluster, whose API server may invent any number. Who came first stays; bootstrap tokens make way for nodes."""
_ROOM: Final = MAXIMUM_MESSAGE_CHARACTERS // 2
"""In the condition's message, however much it says of Machines."""
_REQUESTER: Final = re.compile(
    rf"{re.escape(NODE_USER_PREFIX)}[a-z0-9.-]{{1,253}}|{re.escape(BOOTSTRAP_USER_PREFIX)}[a-z0-9]{{6}}"
)


class UnattestedRequests:
    """The requesters of one cluster that were seen to ask in vain, and when they asked last."""

    def __init__(self) -> None:
        self._asked: dict[str, datetime] = {}

    def observed(self, manifest: JsonObject, now: datetime) -> Seen:
        """A CSR as it is: ``NOW`` where who is to be named has changed.

        An approval takes its requester out: somebody gives certificates away, which is told otherwise.
        """
        spec = mapping_of(manifest, "spec")
        requester = text_of(spec, "username")
        if not is_builtin_request(manifest) or not _REQUESTER.fullmatch(requester):
            return Seen.BEFORE
        try:
            asked = min(parse_time(text_of(mapping_of(manifest, "metadata"), "creationTimestamp")), now)
        except ValueError:
            return Seen.BEFORE
        if is_approved(manifest):
            if asked < self._asked.get(requester, asked):
                return Seen.BEFORE  # from before the door was shut; lists are in the order of names
            return Seen.NOW if self._asked.pop(requester, None) is not None else Seen.BEFORE
        self._forget(now)
        known = requester in self._asked
        if now - asked > REMEMBERED or not (known or self._fits(requester)):
            return Seen.BEFORE
        self._asked[requester] = max(asked, self._asked.get(requester, asked))
        return Seen.BEFORE if known else Seen.NOW

    def _fits(self, requester: str) -> bool:
        if len(self._asked) < MAXIMUM_REQUESTERS:
            return True
        token = next((one for one in self._asked if one.startswith(BOOTSTRAP_USER_PREFIX)), "")
        if not token or not requester.startswith(NODE_USER_PREFIX):
            return False
        del self._asked[token]
        return True

    def count(self, now: datetime) -> int:
        """How many have asked lately; at most :data:`MAXIMUM_REQUESTERS`."""
        self._forget(now)
        return len(self._asked)

    def told_in(self, condition: PolicyCondition, now: datetime) -> PolicyCondition:
        """The same condition, which names them; nodes first, for they have something to lose."""
        if not self.count(now):
            return condition
        requesters = sorted(self._asked, key=lambda one: (not one.startswith(NODE_USER_PREFIX), one))
        said = (
            "; asked without attestation within the last hour, and got nothing: "
            f"{listed(requesters, most=MAXIMUM_REQUESTERS)}; their nodes need the credential plugin before their "
            "certificates run out"
        )
        before = condition.message[: MAXIMUM_MESSAGE_CHARACTERS - min(len(said), _ROOM)]
        return replace(condition, message=printable(f"{before}{said}"))

    def _forget(self, now: datetime) -> None:
        for requester in [one for one, asked in self._asked.items() if now - asked > REMEMBERED]:
            del self._asked[requester]
