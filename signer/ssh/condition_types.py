"""Conditions of a policy that say how its SSH authorities are."""

from __future__ import annotations

from typing import Final

from signer.model.condition import ConditionType

SSH_AUTHORITIES_AVAILABLE: Final = ConditionType("SSHAuthoritiesAvailable", lambda policy: False)
"""It never counts toward Ready: kubelets get their certificates all the same."""
SSH_AUTHORITIES_WITHIN_PERIOD: Final = ConditionType("SSHAuthoritiesWithinPeriod", lambda policy: False)
"""There only with a period in the policy. It never counts toward Ready."""
SSH_ROTATION_PROGRESSING: Final = ConditionType("SSHAuthorityRotationProgressing", lambda policy: False)
"""There from the first rotation on: False with the step while one waits. It never counts toward Ready."""
SSH_OPERATION_REJECTED: Final = ConditionType("SSHOperationRejected", lambda policy: False)
"""There from a rejected order on, until another one is accepted. It never counts toward Ready."""
