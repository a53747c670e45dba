"""Rules that an instance must satisfy before its node is approved: pure functions over EC2's description.

A rule raises, or the next one runs. A final fault is denied, such as a terminated instance or a volume that was
detached and reattached. A fault that the instance's administrator can fix makes the request wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from attestors.aws.ec2.instance import Instance, InstanceState, NoRootVolume, NotAttached
from attestors.verdict import denied, not_until_fixed, not_yet

MAXIMUM_ATTACH_DIFFERENCE: Final = timedelta(seconds=60)
"""Between primary interface and root volume: at launch EC2 attaches both within seconds (SPIRE uses the same value)."""


@dataclass(frozen=True, slots=True)
class AnyHopLimit:
    """The operator allows pods to reach the metadata service."""


@dataclass(frozen=True, slots=True)
class InstanceRules:
    """The requirements of the operator and the cluster's policy for an instance."""

    require_session_tokens: bool
    """IMDSv2: with IMDSv1, one server-side request forgery in any pod leaks the role's credentials."""
    maximum_hop_limit: int | AnyHopLimit
    check_attach_times: bool
    required_tags: Mapping[str, str]

    def check(self, instance: Instance, *, instance_id: str, account: str) -> None:
        """Apply every rule, in this order.

        Raises:
            Ended: denied, or not yet.
        """
        _require_same_instance(instance, instance_id, account)
        _require_running(instance)
        if self.check_attach_times:
            _require_as_launched(instance)
        if self.require_session_tokens:
            _require_session_tokens(instance)
        if not isinstance(self.maximum_hop_limit, AnyHopLimit):
            _require_hop_limit(instance, self.maximum_hop_limit)
        _require_tags(instance, self.required_tags)


def _require_same_instance(instance: Instance, instance_id: str, account: str) -> None:
    if instance.instance_id != instance_id:
        raise not_until_fixed("InstanceNotAsAsked", f"AWS EC2 described another instance than {instance_id}")
    if instance.account != account:
        raise denied("InstanceOfAnotherAccount", f"instance {instance_id} belongs to another account than its document")


def _require_running(instance: Instance) -> None:
    if instance.state in (InstanceState.TERMINATED, InstanceState.SHUTTING_DOWN):
        raise denied("InstanceTerminated", f"instance {instance.instance_id} is {instance.state.value}")
    if instance.state is not InstanceState.RUNNING:
        # A stopped instance that sends a request was just started: EC2's answers lag behind.
        raise not_yet("InstanceNotRunning", f"instance {instance.instance_id} is {instance.state.value}")


def _require_as_launched(instance: Instance) -> None:
    """The root volume was not detached, modified in another machine and reattached."""
    if isinstance(instance.root_attached_at, NoRootVolume):
        return
    if isinstance(instance.root_attached_at, NotAttached) or isinstance(instance.interface_attached_at, NotAttached):
        raise not_yet(
            "InstanceAttachmentsUnknown",
            f"AWS EC2 does not say yet when root volume and interface of {instance.instance_id} were attached",
        )
    difference = abs(instance.root_attached_at - instance.interface_attached_at)
    if difference > MAXIMUM_ATTACH_DIFFERENCE:
        raise denied(
            "InstanceTampered",
            f"instance {instance.instance_id}: root volume and primary interface were attached"
            f" {int(difference.total_seconds())} seconds apart; at launch both are attached at once",
        )


def _require_session_tokens(instance: Instance) -> None:
    if not instance.metadata_options.session_token_required:
        raise not_until_fixed(
            "InstanceMetadataOpen",
            f"instance {instance.instance_id} answers metadata requests without a session token: require IMDSv2",
        )


def _require_hop_limit(instance: Instance, maximum: int) -> None:
    if instance.metadata_options.hop_limit > maximum:
        raise not_until_fixed(
            "InstanceMetadataOpen",
            f"instance {instance.instance_id} has metadata hop limit {instance.metadata_options.hop_limit},"
            f" which exposes its credentials to pods: set {maximum}",
        )


def _require_tags(instance: Instance, required: Mapping[str, str]) -> None:
    for key, value in required.items():
        if instance.tags.get(key) != value:
            raise not_yet("InstanceTagsMissing", f"instance {instance.instance_id} has no tag {key}={value}")
