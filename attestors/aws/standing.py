"""Which accounts and Regions the operator and the cluster's policy allow: of new evidence, and of a recorded instance.

What else the settings deny, such as a role or a tag, a record does not say: the instance's next evidence does.
"""

from __future__ import annotations

from attestors.aws.identity import InstanceIdentity
from attestors.aws.partitions import Region
from attestors.aws.settings import AnyRegion, AWSSettings
from attestors.contract import AttestedBefore, Standing, StillAllowed
from attestors.verdict import Ended, denied


def require_place_allowed(settings: AWSSettings, account: str, region: Region) -> None:
    """Require that instances of the Region are allowed, and that a role of the account is.

    Raises:
        Ended: denied.
    """
    if not isinstance(settings.regions, AnyRegion) and region.name not in settings.regions:
        raise denied("RegionNotAllowed", f"instances of Region {region.name} are not allowed")
    if not any((role.partition, role.account) == (region.partition.name, account) for role in settings.roles):
        raise denied("AccountNotAllowed", f"no role of account {account} is allowed")


def standing_of(attested: AttestedBefore, settings: AWSSettings) -> Standing:
    """See :class:`attestors.contract.DeniesIdentities`. The settings are those of the start: no file can be unreadable.

    Raises:
        InvalidIdentity: the identity is not one that this attestor proves.
    """
    instance = InstanceIdentity.parse(attested.identity)
    try:
        require_place_allowed(settings, instance.account, instance.region)
    except Ended as ended:
        return ended.outcome
    return StillAllowed()
