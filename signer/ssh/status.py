"""What a policy's status says of the cluster's SSH authorities. Public keys and fingerprints alone. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import PublicKey
from signer.kube.client import JsonObject
from signer.model.condition import ConditionType, PolicyCondition
from signer.model.decision import printable
from signer.model.fields import format_time
from signer.model.ssh_access import NoRotationPeriod
from signer.ssh.available import AvailableAuthorities, NotAvailable, Reason
from signer.ssh.plan import NoPeriod, PeriodPassed, WithinPeriod, age
from signer.ssh.ways_in import WaysIn

SSH_AUTHORITIES_AVAILABLE: Final = ConditionType("SSHAuthoritiesAvailable", lambda policy: False)
"""It never counts toward Ready: kubelets get their certificates all the same."""
SSH_AUTHORITIES_WITHIN_PERIOD: Final = ConditionType("SSHAuthoritiesWithinPeriod", lambda policy: False)
"""There only with a period in the policy. It never counts toward Ready."""
SSH_OTHER_WAYS_IN_FOUND: Final = ConditionType("SSHOtherWaysInFound", lambda policy: False)
"""There only while the policy turns SSH on. It never counts toward Ready."""
OTHER_WAYS_FOUND: Final = "Found"
OTHER_WAYS_NONE_FOUND: Final = "NoneFound"
OTHER_WAYS_NOT_KNOWN: Final = "NotKnown"
NOT_SEEN: Final = "images, guest agents of clouds and a stock sshd are not seen from here"
AVAILABLE: Final = "Available"
WITHIN_PERIOD: Final = "WithinPeriod"
PERIOD_PASSED: Final = "PeriodPassed"


def conditions_of(
    found: AvailableAuthorities | NotAvailable, period: timedelta | NoRotationPeriod, now: datetime
) -> tuple[PolicyCondition, ...]:
    """The conditions of the last pass."""
    if isinstance(found, NotAvailable):
        met = None if found.reason is Reason.NOT_KNOWN else False
        return (PolicyCondition(SSH_AUTHORITIES_AVAILABLE, met, found.reason.value, printable(found.message)),)
    message = (
        f"user authority {found.user.public_key.fingerprint}, host authority {found.host.public_key.fingerprint}, "
        f"trust version {found.trust.version}"
    )
    available = PolicyCondition(SSH_AUTHORITIES_AVAILABLE, True, AVAILABLE, message)
    match age(found, period, now):
        case WithinPeriod(text):
            return (available, PolicyCondition(SSH_AUTHORITIES_WITHIN_PERIOD, True, WITHIN_PERIOD, text))
        case PeriodPassed(text):
            return (available, PolicyCondition(SSH_AUTHORITIES_WITHIN_PERIOD, False, PERIOD_PASSED, text))
        case NoPeriod():
            return (available,)


def condition_of_ways_in(found: WaysIn) -> PolicyCondition:
    """Whether bootstrap data and infrastructure open other ways in than certificates."""
    gaps = f"; not known: {'; '.join(found.not_known)}" if found.not_known else ""
    if found.found:
        return PolicyCondition(SSH_OTHER_WAYS_IN_FOUND, True, OTHER_WAYS_FOUND, f"{found.message}{gaps}")
    if found.not_known:
        message = f"nothing was found in what can be read{gaps}; {NOT_SEEN}"
        return PolicyCondition(SSH_OTHER_WAYS_IN_FOUND, None, OTHER_WAYS_NOT_KNOWN, message)
    message = f"bootstrap data and infrastructure of the Machines open none; {NOT_SEEN}"
    return PolicyCondition(SSH_OTHER_WAYS_IN_FOUND, False, OTHER_WAYS_NONE_FOUND, message)


def status_of(found: AvailableAuthorities) -> JsonObject:
    """``status.ssh``: what people need for ``TrustedUserCAKeys`` and ``known_hosts``."""
    return {
        "trustVersion": found.trust.version,
        "userAuthorities": [_authority(found.user.public_key, found.user_created_at)],
        "hostAuthorities": [_authority(found.host.public_key, found.host_created_at)],
    }


def _authority(key: PublicKey, created_at: datetime) -> JsonObject:
    return {"publicKey": key_line(key), "fingerprint": key.fingerprint, "createdAt": format_time(created_at)}
