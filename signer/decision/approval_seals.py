"""The seal on an approval: it proves that this controller approved exactly this CSR of this cluster.

A client that may update ``certificatesigningrequests/approval`` can write every condition, with the controller's reason
and message, and every name of a field manager. Only the controller key makes the seal. It is an annotation, written
with the approval.

A replica that does not know the key of a seal reads the controller key again before it decides: the key may have been
rotated, and another replica may have read it first.

The seal says whose approval it is, and nothing about the world since. So the controller decides a request that it
approved and did not sign along the whole plan, as any other request.
"""

from __future__ import annotations

from attestors.wire.names import APPROVAL_SEAL_ANNOTATION
from signer.model.cluster import ClusterKey
from signer.model.seal import Authentic, ControllerKeys, Fault, KeyUse, Seals, joined, key_identifier_of
from signer.model.signing_request import Condition, CSRHeader
from signer.rules.approval import Approver
from signer.store.authentic_records import AuthenticRecords


class ApprovalSeals:
    """Makes and verifies the seals on approvals in one cluster."""

    def __init__(self, key: ClusterKey, authentic: AuthenticRecords) -> None:
        """``authentic`` has the controller keys."""
        self._key = key
        self._authentic = authentic
        self._made: tuple[ControllerKeys, Seals] | None = None

    def seal(self, header: CSRHeader) -> dict[str, str]:
        """The annotation with the seal.

        Raises:
            Deferred: the controller key is not available.
        """
        return {APPROVAL_SEAL_ANNOTATION: self._seals().seal(self._content(header))}

    def approver(self, header: CSRHeader) -> Approver:
        """Who approved the CSR. A seal under a key that is no longer in use is another client's.

        Raises:
            Deferred: the controller key is not available, or must be read again: another replica may have sealed the
                approval with a newer one.
        """
        if Condition.APPROVED not in header.conditions:
            return Approver.NOBODY
        verified = self._seals().verify(header.approval_seal, lambda: self._content(header))
        if isinstance(verified, Authentic):
            return Approver.THIS_CONTROLLER
        identifier = key_identifier_of(header.approval_seal)
        if verified.fault is Fault.UNKNOWN_KEY and identifier:
            self._authentic.require_looked_for(identifier, "the approval of this request")
        return Approver.ANOTHER_CLIENT

    def _content(self, header: CSRHeader) -> str:
        return joined(self._key.namespace, self._key.name, header.uid, header.spec_digest)

    def _seals(self) -> Seals:
        keys = self._authentic.keys()
        if self._made is None or self._made[0] is not keys:
            self._made = keys, Seals(keys, KeyUse.APPROVAL)
        return self._made[1]
