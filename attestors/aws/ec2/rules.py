"""What must hold of an instance before its node is let in, as pure rules over what EC2 says.

A rule raises, or the next one follows. Denied is what cannot become right: a terminated instance, a volume that was
taken out and put back. What somebody who may change the instance can mend makes the request wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from attestors.aws.ec2.instance import Instance, InstanceState, NoRootVolume, NotAttached
from attestors.verdict import denied, not_until_fixed, not_yet

MAXIMUM_ATTACH_DIFFERENCE: Final = timedelta(seconds=60)
"""Between primary interface and root volume: at launch EC2 attaches both within seconds (SPIRE uses the same)."""


@dataclass(frozen=True, slots=True)
class AnyHopLimit:
    """Pods may ask the metadata service too: the operator says so."""


@dataclass(frozen=True, slots=True)
class InstanceRules:
    """What the operator and the cluster's policy want of an instance."""

    require_session_tokens: bool
    """IMDSv2: with IMDSv1, one server-side request forgery in any pod gives away the role's credentials."""
    maximum_hop_limit: int | AnyHopLimit
    check_attach_times: bool
    required_tags: Mapping[str, str]

    def check(self, instance: Instance, *, instance_id: str, account: str) -> None:
        """Every rule, in this order.

        Raises:
            Ended: denied, or not yet.
        """
        _is_the_one(instance, instance_id, account)
        _is_running(instance)
        if self.check_attach_times:
            _is_as_launched(instance)
        if self.require_session_tokens:
            _wants_session_tokens(instance)
        if not isinstance(self.maximum_hop_limit, AnyHopLimit):
            _answers_within(instance, self.maximum_hop_limit)
        _has_tags(instance, self.required_tags)


def _is_the_one(instance: Instance, instance_id: str, account: str) -> None:
    if instance.instance_id != instance_id:
        raise not_until_fixed("InstanceNotAsAsked", f"AWS EC2 described another instance than {instance_id}")
    if instance.account != account:
        raise denied("InstanceOfAnotherAccount", f"instance {instance_id} belongs to another account than its document")


def _is_running(instance: Instance) -> None:
    if instance.state in (InstanceState.TERMINATED, InstanceState.SHUTTING_DOWN):
        raise denied("InstanceTerminated", f"instance {instance.instance_id} is {instance.state.value}")
    if instance.state is not InstanceState.RUNNING:
        # A stopped one that asks has just been started: EC2's answers lag behind.
        raise not_yet("InstanceNotRunning", f"instance {instance.instance_id} is {instance.state.value}")


def _is_as_launched(instance: Instance) -> None:
    """Nobody took the root volume out, wrote on it in another machine, and put it back."""
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


def _wants_session_tokens(instance: Instance) -> None:
    if not instance.metadata_options.session_token_required:
        raise not_until_fixed(
            "InstanceMetadataOpen",
            f"instance {instance.instance_id} answers metadata requests without a session token: require IMDSv2",
        )


def _answers_within(instance: Instance, maximum: int) -> None:
    if instance.metadata_options.hop_limit > maximum:
        raise not_until_fixed(
            "InstanceMetadataOpen",
            f"instance {instance.instance_id} has metadata hop limit {instance.metadata_options.hop_limit},"
            f" which lets its pods ask for its credentials: set {maximum}",
        )


def _has_tags(instance: Instance, required: Mapping[str, str]) -> None:
    for key, value in required.items():
        if instance.tags.get(key) != value:
            raise not_yet("InstanceTagsMissing", f"instance {instance.instance_id} has no tag {key}={value}")
