"""The provider ``aws``, and its settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from node_access.bastions.aws.ec2 import Connector
from node_access.bastions.aws.resources import AWSBastions, AWSNetwork, AWSSettings
from node_access.bastions.contract import InvalidSettings, Place, SettingsDocuments, Surroundings
from node_access.bastions.fields import mapping, require_known, switch, text

_KNOWN: Final = frozenset(
    {
        "region",
        "networks",
        "network",
        "imageID",
        "instanceType",
        "publicIPv4",
        "ipv6",
        "profile",
        "roleARN",
        "externalID",
        "endpointURL",
    }
)
_REGION: Final = re.compile(r"[a-z]{2}(?:-[a-z]{2,12}){1,3}-[0-9]", re.ASCII)
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,62})", re.ASCII)
_SUBNET: Final = re.compile(r"subnet-[0-9a-f]{8,17}", re.ASCII)
_GROUP: Final = re.compile(r"sg-[0-9a-f]{8,17}", re.ASCII)
_IMAGE: Final = re.compile(r"ami-[0-9a-f]{8,17}", re.ASCII)
_TYPE: Final = re.compile(r"[a-z0-9-]{1,20}\.[a-z0-9-]{1,20}", re.ASCII)
_PROFILE: Final = re.compile(r"[A-Za-z0-9_.@-]{0,64}", re.ASCII)
_ROLE: Final = re.compile(r"(?:arn:[a-z-]{1,16}:iam::[0-9]{12}:role/[!-~]{1,512})?", re.ASCII)
_EXTERNAL_ID: Final = re.compile(r"[A-Za-z0-9_+=,.@:/-]{0,1224}", re.ASCII)
_ENDPOINT: Final = re.compile(r"(?:https?://[A-Za-z0-9.:\[\]-]{1,253})?", re.ASCII)


class AWSProvider:
    """The provider."""

    name: str = "aws"

    def settings(self, documents: SettingsDocuments) -> AWSSettings:
        """See :class:`~node_access.bastions.contract.BastionProvider`. A policy may choose a network by its name."""
        operator, policy = documents.operator, documents.policy
        require_known(operator, _KNOWN, "the operator's settings")
        require_known(policy, frozenset({"network"}), "a policy's settings")
        networks = mapping(operator, "networks")
        if not networks:
            raise InvalidSettings(
                "networks must name at least one network: {name: {subnetID, standingSecurityGroupID}}"
            )
        parsed = {name: _network(name, entry) for name, entry in networks.items()}
        default = text(operator, "network", _NAME, next(iter(parsed)))
        chosen = text(policy, "network", _NAME, default)
        for name in (default, chosen):
            if name not in parsed:
                raise InvalidSettings(f"network: the operator has none called {name!r}")
        return AWSSettings(
            region=text(operator, "region", _REGION),
            network=parsed[chosen],
            image=text(operator, "imageID", _IMAGE),
            instance_type=text(operator, "instanceType", _TYPE, "t3.nano"),
            public_ipv4=switch(operator, "publicIPv4", default=True),
            ipv6=switch(operator, "ipv6", default=False),
            profile=text(operator, "profile", _PROFILE, ""),
            role=text(operator, "roleARN", _ROLE, ""),
            external_id=text(operator, "externalID", _EXTERNAL_ID, ""),
            endpoint=text(operator, "endpointURL", _ENDPOINT, ""),
        )

    def place(self, settings: Any) -> Place:
        """See :class:`~node_access.bastions.contract.BastionProvider`: a Region of an account. A role says the
        account; where there is none, the profile does.
        """
        if not isinstance(settings, AWSSettings):
            raise TypeError("settings of another provider")
        account = ":".join(settings.role.split(":")[:5])
        return Place(
            (
                ("region", settings.region),
                ("roleARN", account),
                ("profile", "" if account else settings.profile),
                ("endpointURL", settings.endpoint),
            )
        )

    def open(self, settings: Any, surroundings: Surroundings) -> AWSBastions:
        """See :class:`~node_access.bastions.contract.BastionProvider`."""
        if not isinstance(settings, AWSSettings):
            raise TypeError("settings of another provider")
        client = Connector(
            settings.region,
            profile=settings.profile,
            role=settings.role,
            external_id=settings.external_id,
            endpoint=settings.endpoint,
        )
        return AWSBastions(settings, surroundings, client)


def _network(name: str, entry: Any) -> AWSNetwork:
    if _NAME.fullmatch(name) is None or not isinstance(entry, Mapping):
        raise InvalidSettings("networks must map names to {subnetID, standingSecurityGroupID}")
    require_known(entry, frozenset({"subnetID", "standingSecurityGroupID"}), f"networks.{name}")
    return AWSNetwork(text(entry, "subnetID", _SUBNET), text(entry, "standingSecurityGroupID", _GROUP))


provider: Final = AWSProvider()
