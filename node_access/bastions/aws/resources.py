"""The bastions of one account and Region."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from node_access.bastions.aws.errors import InstanceEnded, OtherRequest
from node_access.bastions.aws.rules import Rule, from_networks, rules_of, to_destinations
from node_access.bastions.aws.user_data import MAXIMUM_BYTES, PORT, digest, render
from node_access.bastions.contract import (
    Bastion,
    BastionReference,
    Broken,
    CallFailed,
    Deadline,
    Deleted,
    Endpoint,
    Ensured,
    Gone,
    NotPermitted,
    ObjectExists,
    ObjectNotFound,
    OwnedResources,
    Pending,
    Ready,
    Scope,
    Surroundings,
    host_keys,
)
from node_access.bastions.owned import BASTION_MARK, CLUSTER_MARK, LONG_AGO, OWNER_MARK, UID_MARK, Found, owned

MADE_AT_TAG: Final = "access.cluster.x-k8s.io/made-at"
CONFIGURATION_TAG: Final = "access.cluster.x-k8s.io/configuration"
MAXIMUM_RULES: Final = 60
"""EC2's default quota of rules for each direction of a security group."""
_LAUNCHES: Final = 3
_GONE_STATES: Final = frozenset({"terminated"})
_LIVE_STATES: Final = frozenset({"pending", "running"})
_SOON: Final = timedelta(seconds=5)
_LATER: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class AWSNetwork:
    """Where bastions are made."""

    subnet: str
    standing_group: str
    """Every bastion is in it. The operator lets it into the nodes' group; it has no rules of its own."""


@dataclass(frozen=True, slots=True)
class AWSSettings:
    """Parsed settings."""

    region: str
    network: AWSNetwork
    image: str
    instance_type: str
    public_ipv4: bool
    ipv6: bool
    profile: str = ""
    role: str = ""
    external_id: str = ""
    endpoint: str = ""


class Calls(Protocol):
    """The calls of :class:`node_access.bastions.aws.ec2.EC2`."""

    def vpc_of(self, subnet: str, deadline: Deadline) -> str: ...
    def groups(self, deadline: Deadline, *, tags: Mapping[str, str]) -> list[Mapping[str, Any]]: ...
    def group(self, group: str, deadline: Deadline) -> Mapping[str, Any]: ...
    def create_group(
        self, name: str, description: str, vpc: str, tags: Mapping[str, str], deadline: Deadline
    ) -> None: ...
    def delete_group(self, group: str, deadline: Deadline) -> None: ...
    def change_rules(self, call: str, group: str, rules: list[Rule], deadline: Deadline) -> None: ...
    def instances(self, deadline: Deadline, *, tags: Mapping[str, str]) -> list[Mapping[str, Any]]: ...
    def volumes_of(self, image: str, deadline: Deadline) -> list[str]: ...
    def run(self, request: Mapping[str, Any], tags: Mapping[str, str], deadline: Deadline) -> Mapping[str, Any]: ...
    def terminate(self, instances: list[str], deadline: Deadline) -> None: ...
    def set_groups(self, instance: str, groups: list[str], deadline: Deadline) -> None: ...


class AWSBastions:
    """See :class:`~node_access.bastions.contract.BastionResources`."""

    def __init__(self, settings: AWSSettings, surroundings: Surroundings, calls: Callable[[], Calls]) -> None:
        self._settings = settings
        self._surroundings = surroundings
        self._calls = calls

    def ensure(self, bastion: Bastion, deadline: Deadline) -> Ensured:
        """Group and rules first: no instance runs behind rules that are too wide."""
        now = self._surroundings.now()
        if now >= bastion.not_after:
            return Broken("the end of the bastion has passed", final=True)
        ingress, egress = from_networks(bastion.ingress, PORT), to_destinations(bastion.destinations)
        if len(egress) > MAXIMUM_RULES:
            return Broken(
                f"the nodes have {len(egress)} addresses, and a security group {MAXIMUM_RULES} rules", final=True
            )
        try:
            return self._ensure(bastion, ingress, egress, now, deadline)
        except NotPermitted as error:
            return Broken(str(error))

    def _ensure(
        self, bastion: Bastion, ingress: frozenset[Rule], egress: frozenset[Rule], now: datetime, deadline: Deadline
    ) -> Ensured:
        calls, settings = self._calls(), self._settings
        groups = calls.groups(deadline, tags=self._key(bastion.reference))
        # Whatever else is wrong, a network that left the ingress is closed.
        surplus = {str(one["GroupId"]): rules_of(one["IpPermissions"]) - ingress for one in groups}
        for group, rules in surplus.items():
            self._converge(group, "ingress", rules, frozenset(), deadline)
        families = {network.version for network in bastion.ingress}
        if 6 in families and not settings.ipv6:
            return Broken("the ingress has IPv6 networks, and the operator's settings say no ipv6", final=True)
        if 4 in families and not settings.public_ipv4:
            return Broken("the ingress has IPv4 networks, and the operator's settings say no publicIPv4", final=True)
        try:
            standing = calls.group(settings.network.standing_group, deadline)
        except ObjectNotFound:
            return Broken(f"the standing security group {settings.network.standing_group} does not exist")
        if rules_of(standing["IpPermissions"]) or rules_of(standing["IpPermissionsEgress"]):
            return Broken(
                f"the standing security group {settings.network.standing_group} must have no rules of its own"
            )
        if not groups:
            return self._make_group(bastion, now, deadline)
        group = str(groups[0]["GroupId"])
        opened, present = rules_of(groups[0]["IpPermissions"]) & ingress, rules_of(groups[0]["IpPermissionsEgress"])
        changed = self._converge(group, "ingress", opened, ingress, deadline)
        changed |= self._converge(group, "egress", present, egress, deadline)
        if changed or any(surplus.values()):
            # What EC2 says of the rules counts, and not what was asked of it.
            return Pending("the rules of the security group have changed", timedelta(seconds=1))
        if len(groups) > 1:
            return Broken("more than one security group has the Bastion's UID: delete those without an instance")
        return self._ensure_instance(bastion, groups[0], deadline)

    def _make_group(self, bastion: Bastion, now: datetime, deadline: Deadline) -> Ensured:
        calls, reference = self._calls(), bastion.reference
        name = f"node-access-{reference.uid}"
        tags = {**self._tags(reference, now), "Name": name}
        try:
            vpc = calls.vpc_of(self._settings.network.subnet, deadline)
        except ObjectNotFound:
            return Broken(f"the subnet {self._settings.network.subnet} does not exist")
        try:
            calls.create_group(name, f"Bastion {reference.namespace}/{reference.name}"[:255], vpc, tags, deadline)
        except ObjectExists:
            if not calls.groups(deadline, tags=self._key(reference)):
                return Broken(f"a security group of somebody else is called {name}")
        return Pending("the security group is made", timedelta(seconds=1))

    def _converge(
        self, group: str, direction: str, present: frozenset[Rule], wanted: frozenset[Rule], deadline: Deadline
    ) -> bool:
        """Close first, then open. Whether anything had to change."""
        changes = (("revoke", sorted(present - wanted)), ("authorize", sorted(wanted - present)))
        for verb, rules in changes:
            try:
                if rules:
                    self._calls().change_rules(f"{verb}_security_group_{direction}", group, rules, deadline)
            except (ObjectExists, ObjectNotFound):
                continue  # somebody else did some of it, and the next turn sees the rest
        return present != wanted

    def _ensure_instance(self, bastion: Bastion, group: Mapping[str, Any], deadline: Deadline) -> Ensured:
        calls, configuration = self._calls(), digest(bastion)
        found = calls.instances(deadline, tags=self._key(bastion.reference))
        usable = sorted(
            (one for one in found if _state(one) in _LIVE_STATES and _tag(one, CONFIGURATION_TAG) == configuration),
            key=lambda one: (one["LaunchTime"], one["InstanceId"]),
        )[:1]
        surplus = [one["InstanceId"] for one in found if one not in usable and _state(one) not in _GONE_STATES]
        if surplus:
            calls.terminate(surplus, deadline)
            return Pending(f"{', '.join(surplus)} is replaced, and ends first", _SOON)
        if not usable:
            ended = sum(_tag(one, CONFIGURATION_TAG) == configuration for one in found)
            return self._launch(bastion, group, configuration, ended, deadline)
        (instance,) = usable
        if _state(instance) != "running":
            return Pending(f"the instance {instance['InstanceId']} starts", _SOON)
        wanted = {str(group["GroupId"]), self._settings.network.standing_group}
        if {one["GroupId"] for one in instance["SecurityGroups"]} != wanted:
            calls.set_groups(instance["InstanceId"], sorted(wanted), deadline)
            return Pending("the security groups of the instance have changed", timedelta(seconds=1))
        return _ready(bastion, instance)

    def _launch(
        self, bastion: Bastion, group: Mapping[str, Any], configuration: str, ended: int, deadline: Deadline
    ) -> Ensured:
        settings, reference = self._settings, bastion.reference
        # The times are the group's, which stay: a repeated request must be the same request.
        made_at = _made_at(group)
        user_data = render(bastion, int((bastion.ends_by_itself_at - made_at).total_seconds()))
        if len(user_data) > MAXIMUM_BYTES:
            return Broken("nodes and authorities are too many for the instance's user data", final=True)
        interface: dict[str, Any] = {
            "DeviceIndex": 0,
            "SubnetId": settings.network.subnet,
            "Groups": sorted([group["GroupId"], settings.network.standing_group]),
            "AssociatePublicIpAddress": settings.public_ipv4,
            "DeleteOnTermination": True,
        }
        if settings.ipv6:
            interface["Ipv6AddressCount"] = 1
        try:
            volumes = self._calls().volumes_of(settings.image, deadline)
        except ObjectNotFound:
            return Broken(f"the image {settings.image} does not exist")
        request = {
            "ImageId": settings.image,
            # An image may say that a volume outlives the instance: nothing would delete it.
            "BlockDeviceMappings": [{"DeviceName": one, "Ebs": {"DeleteOnTermination": True}} for one in volumes],
            "InstanceType": settings.instance_type,
            "UserData": user_data.decode("ascii"),
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1, "HttpEndpoint": "enabled"},
            "NetworkInterfaces": [interface],
        }
        tags = {
            **self._tags(reference, made_at),
            CONFIGURATION_TAG: configuration,
            "Name": f"node-access-{reference.uid}",
        }
        # EC2 lists a terminated instance for an hour, and knows its token for a day: `ended` may be too low.
        for number in range(ended, _LAUNCHES):
            token = {"ClientToken": f"{reference.uid}-{configuration}-{number}"}
            try:
                launched = self._calls().run({**request, **token}, tags, deadline)
            except InstanceEnded:
                continue
            except OtherRequest as error:  # an earlier request, whose instance is not listed yet
                return Pending(str(error), _SOON)
            return Pending(f"the instance {launched['InstanceId']} starts", _SOON)
        return Broken(f"{_LAUNCHES} instances of the bastion have ended early", final=True)

    def delete(self, reference: BastionReference, deadline: Deadline) -> Deleted:
        """Instances, then groups. No subnet, image or standing group is looked up."""
        try:
            calls = self._calls()
            found = [
                one for one in calls.instances(deadline, tags=self._key(reference)) if _state(one) not in _GONE_STATES
            ]
            if running := [one["InstanceId"] for one in found if _state(one) != "shutting-down"]:
                calls.terminate(running, deadline)
            if found:
                return Pending(f"{', '.join(one['InstanceId'] for one in found)} ends", _SOON)
            for group in calls.groups(deadline, tags=self._key(reference)):
                try:
                    calls.delete_group(group["GroupId"], deadline)
                except ObjectNotFound:
                    continue
        except NotPermitted as error:
            return Pending(f"the controller may not delete: {error}", _LATER)
        except CallFailed as error:
            return Pending(str(error), _SOON)
        return Gone()

    def list(self, scope: Scope, deadline: Deadline) -> tuple[OwnedResources, ...]:
        """By the owner's tag."""
        calls, now = self._calls(), self._surroundings.now()
        found: dict[str, list[Found]] = {}
        tags = {OWNER_MARK: scope.owner}
        for one in calls.instances(deadline, tags=tags):
            if _state(one) not in _GONE_STATES:
                found.setdefault(_tag(one, UID_MARK), []).append(_found(f"instance {one['InstanceId']}", one))
        for one in calls.groups(deadline, tags=tags):
            found.setdefault(_tag(one, UID_MARK), []).append(_found(f"security group {one['GroupId']}", one))
        return tuple(one for uid, resources in sorted(found.items()) for one in owned(uid, resources, now))

    def _key(self, reference: BastionReference) -> dict[str, str]:
        return {UID_MARK: reference.uid, OWNER_MARK: self._surroundings.scope.owner}

    def _tags(self, reference: BastionReference, now: datetime) -> dict[str, str]:
        return {
            **self._key(reference),
            BASTION_MARK: f"{reference.namespace}/{reference.name}"[:256],
            CLUSTER_MARK: reference.cluster[:256],
            MADE_AT_TAG: now.astimezone(UTC).isoformat(timespec="seconds"),
        }


def _found(text: str, resource: Mapping[str, Any]) -> Found:
    return Found(text, _tag(resource, BASTION_MARK), _tag(resource, CLUSTER_MARK), _made_at(resource))


def _ready(bastion: Bastion, instance: Mapping[str, Any]) -> Ensured:
    interfaces = instance.get("NetworkInterfaces", ())
    sixes = [entry["Ipv6Address"] for one in interfaces for entry in one.get("Ipv6Addresses", ())]
    public = instance.get("PublicIpAddress")
    # People with IPv4 networks need the IPv4 address; with IPv6 networks alone, there is nothing else to reach.
    wants_four = any(network.version == 4 for network in bastion.ingress)
    address = public if wants_four else next(iter(sixes), None)
    private = instance.get("PrivateIpAddress")
    if not address or not private:
        return Pending(f"the instance {instance['InstanceId']} has no address yet", _SOON)
    egress = tuple(ipaddress.ip_network(one) for one in (private, *sixes))
    endpoint = Endpoint(
        PORT, ipaddress.ip_address(address), str(instance.get("PublicDnsName") or "") if wants_four else ""
    )
    return Ready(endpoint, host_keys(bastion), egress)


def _state(instance: Mapping[str, Any]) -> str:
    return str(instance["State"]["Name"])


def _tag(resource: Mapping[str, Any], key: str) -> str:
    return next((str(tag["Value"]) for tag in resource.get("Tags", ()) if tag["Key"] == key), "")


def _made_at(resource: Mapping[str, Any]) -> datetime:
    """As its tag says; long ago where that was changed."""
    try:
        found = datetime.fromisoformat(_tag(resource, MADE_AT_TAG))
    except ValueError:
        return LONG_AGO
    return found if found.tzinfo is not None else LONG_AGO
