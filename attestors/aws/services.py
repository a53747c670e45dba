"""All calls to AWS that the server plugin makes; all workload clusters share one instance."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from attestors.aws.caller_identity import SecurityTokenService
from attestors.aws.ec2.directory import InstanceDirectory
from attestors.aws.ec2.instance import Described
from attestors.aws.ec2.trust import RoleTrust
from attestors.aws.issuers import IssuerKeys
from attestors.aws.partitions import Region
from attestors.clouds.cache import SingleFlightCache
from attestors.clouds.calls import CloudCalls, shared_calls
from attestors.clouds.https import HTTPSClient, Route

if TYPE_CHECKING:
    from attestors.aws.ec2.api import AWSAPI

_EC2: Final = "AWS EC2"
_IAM: Final = "AWS IAM"
_MAXIMUM_INSTANCES: Final = 200
_TRUST_SECONDS: Final = 300.0
_TRUST_FAILURE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Redirections of AWS calls, for tests and the demo. No setting sets them."""

    routes: Mapping[str, Route] = field(default_factory=lambda: MappingProxyType({}))
    """By host, for calls without credentials."""
    endpoints: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """URL by service (``ec2``, ``iam``, ``sts``), for calls with the controller's credentials."""


NOWHERE_ELSE: Final = Elsewhere()


class RoleTrusts:
    """Trust of roles according to IAM; cached for minutes, because roles change rarely and IAM's limits are low."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._cache: SingleFlightCache[tuple[str, str, str], RoleTrust] = SingleFlightCache(
            lifetime_seconds=_TRUST_SECONDS, failure_seconds=_TRUST_FAILURE_SECONDS
        )

    async def find(self, account: str, region: Region, role_name: str) -> RoleTrust:
        """The trust of that account's role.

        Raises:
            CloudError: there is no answer.
        """
        key = (region.partition.name, account, role_name)
        return await self._cache.get(key, lambda: self._accounts.role_trust(account, region, role_name))


class Accounts:
    """EC2 and IAM with the controller's credentials, in threads. The first call imports boto3."""

    def __init__(self, calls: CloudCalls, roles: Mapping[str, str], endpoints: Mapping[str, str]) -> None:
        self._calls = calls
        self._roles = roles
        self._endpoints = endpoints

    async def instances(self, account: str, region: Region, instance_ids: Sequence[str]) -> Sequence[Described]:
        """See :meth:`attestors.aws.ec2.api.AWSAPI.instances`."""
        return await self._calls.run(
            _EC2, "DescribeInstances", lambda _: self._api.instances(account, region, instance_ids), site=region.name
        )

    async def role_trust(self, account: str, region: Region, role_name: str) -> RoleTrust:
        """See :meth:`attestors.aws.ec2.api.AWSAPI.role_trust`."""
        return await self._calls.run(_IAM, "GetRole", lambda _: self._api.role_trust(account, region, role_name))

    @functools.cached_property
    def _api(self) -> AWSAPI:
        from attestors.aws.ec2.api import AWSAPI, Access

        return AWSAPI(Access(self._roles, self._endpoints))


@dataclass(frozen=True, slots=True)
class AWSServices:
    """The services that the server plugin calls."""

    callers: SecurityTokenService
    issuers: IssuerKeys
    instances: InstanceDirectory
    roles: RoleTrusts


def make_services(
    account_roles: Mapping[str, str], *, calls: CloudCalls | None = None, elsewhere: Elsewhere = NOWHERE_ELSE
) -> AWSServices:
    """New services, with empty caches."""
    threads = calls or shared_calls()
    https = HTTPSClient(threads, routes=elsewhere.routes)
    accounts = Accounts(threads, account_roles, elsewhere.endpoints)
    return AWSServices(
        callers=SecurityTokenService(https),
        issuers=IssuerKeys(https),
        instances=InstanceDirectory(accounts.instances, at_once=_MAXIMUM_INSTANCES),
        roles=RoleTrusts(accounts),
    )
