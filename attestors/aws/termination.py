"""Whether a former instance is terminated, by DescribeInstances of its own account and Region.

A termination is final: "it can't be recovered" (EC2 API reference, ``TerminateInstances``). EC2 lists a terminated
instance for about an hour, and knows nothing of it afterwards. An instance that EC2 does not list proves nothing: the
controller's credentials may be of another account, or its role's permission narrower than before.
"""

from __future__ import annotations

from typing import Final

from attestors.aws.answers import INSTANCE
from attestors.aws.ec2.directory import InstanceDirectory, NotListed
from attestors.aws.ec2.instance import InstanceState
from attestors.aws.identity import InstanceIdentity, InvalidIdentity
from attestors.aws.settings import AnyRegion, AWSSettings, NotDescribed
from attestors.clouds.errors import CloudError
from attestors.clouds.recorded_calls import ask_recorded
from attestors.contract import FormerInstance, InstanceExists, InstanceGone, Termination, TerminationNotProvable

_QUESTION: Final = "AWS EC2, about the former instance"


async def termination_of(former: FormerInstance, settings: AWSSettings, instances: InstanceDirectory) -> Termination:
    """See :class:`attestors.contract.InstanceTerminationProver`. Every fault is NotProvable."""
    try:
        identity = InstanceIdentity.parse(former.identity)
    except InvalidIdentity as error:
        return TerminationNotProvable(f"the record's identity is {error}")
    if not _may_ask_about(identity, settings):
        return TerminationNotProvable(
            f"the settings no longer allow instances of account {identity.account} in {identity.region.name}, or turn "
            "calls of EC2 off"
        )
    try:
        found = await ask_recorded(
            former.recorded_calls,
            _QUESTION,
            lambda: instances.find(identity.account, identity.region, identity.instance_id),
            INSTANCE,
        )
    except CloudError as error:
        return TerminationNotProvable(error.outcome().message)
    if isinstance(found, NotListed):
        return TerminationNotProvable(
            f"AWS EC2 does not list {identity.instance_id} in account {identity.account}, {identity.region.name}: it "
            "lists a terminated instance for about an hour"
        )
    if (found.instance_id, found.account) != (identity.instance_id, identity.account):
        return TerminationNotProvable(f"AWS EC2 described another instance than {identity.instance_id}")
    if found.state is InstanceState.TERMINATED:
        return InstanceGone()
    return InstanceExists(f"instance {identity.instance_id} is {found.state.value}")


def _may_ask_about(identity: InstanceIdentity, settings: AWSSettings) -> bool:
    owner = (identity.region.partition.name, identity.account)
    return (
        not isinstance(settings.instance_rules, NotDescribed)
        and any((role.partition, role.account) == owner for role in settings.roles)
        and (isinstance(settings.regions, AnyRegion) or identity.region.name in settings.regions)
    )
