"""The types of the conditions of a rotation on the policy, for those who write them and those who read them."""

from __future__ import annotations

from typing import Final

from signer.model.condition import ConditionType
from signer.model.policy import Policy


def _never(policy: Policy | None) -> bool:
    """A rotation that waits does not make a policy unready."""
    return False


ROTATION_PROGRESSING: Final = ConditionType("CertificateAuthorityRotationProgressing", _never)
"""False with the step's reason while the rotation waits for something."""
AUTHORITY_TRUSTED: Final = ConditionType("AuthorityTrusted", _never)
NODES_TRUST_NEW_AUTHORITY: Final = ConditionType("NodesTrustNewAuthority", _never)
SERVERS_PRESENT_NEW_AUTHORITY: Final = ConditionType("ServersPresentNewAuthority", _never)
EXCHANGE_CLIENT_CERTIFICATES: Final = ConditionType("ExchangeClientCertificates", _never)
"""Whether kube-controller-manager signs with the new CA while client certificates of the old one still count."""
OLD_AUTHORITY_REFUSED: Final = ConditionType("OldAuthorityRefused", _never)
SERVICE_ACCOUNT_KEY_PUBLISHED: Final = ConditionType("ServiceAccountKeyPublished", _never)
"""Whether every API server publishes the new service-account key. Its ID is in the message, for those who copy it."""
ROLLBACK_AVAILABLE: Final = ConditionType("RollbackAvailable", _never)
ROTATION_STALLED: Final = ConditionType("RotationStalled", _never)
RECORD_OUTDATED: Final = ConditionType("RotationRecordOutdated", _never)
"""Only while it is so: API servers are further than the record, as after a restore of the management cluster."""
OPERATION_REJECTED: Final = ConditionType("OperationRejected", _never)
AUTHORITY_EXPIRY: Final = ConditionType("CertificateAuthorityExpiry", _never)

LEFTOVERS_FOUND: Final = ConditionType("LeftoversFound", _never)
"""After a completed rotation: objects of the workload cluster that still hold the old CA."""
UNVERIFIED_CURE: Final = (
    "add the former controller's key to Secret node-attestation-controller-key as previous, or, if that key is lost, "
    "`node-attestation-controller rotate CLUSTER confirm`; if the object is damaged, restore it"
)
"""What to do about reason Unverified."""
