"""Whose approval a request has, and what the policy makes of it."""

from __future__ import annotations

import enum

from signer.model.decision import Fail
from signer.model.policy import ApprovalByOthers, Policy
from signer.model.reasons import Reason
from signer.rules.plan import PROCEED, Proceed


class Approver(enum.Enum):
    """Who approved a request."""

    NOBODY = "nobody"
    THIS_CONTROLLER = "this controller"
    """The approval has the controller's seal for exactly this request."""
    ANOTHER_CLIENT = "another client"


def judge_approval(approver: Approver, policy: Policy) -> Proceed | Fail:
    """The approval is this controller's, or the policy honours those of others. Then all checks follow."""
    if approver is Approver.ANOTHER_CLIENT and policy.approval_by_others is ApprovalByOthers.REFUSE:
        return Fail(
            Reason.APPROVED_BY_OTHERS, "approved by another client, which the policy's approvalByOthers refuses"
        )
    return PROCEED
