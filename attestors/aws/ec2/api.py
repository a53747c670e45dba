"""Synchronous calls of EC2 and IAM through boto3. Import this module only where it is used: boto3 is slow to import.

The controller uses its own credentials, as boto3 finds them. For another account the operator names a role of that
account. Role names and clients are kept per account, so that an answer about one account can never be used for another
(CVE-2025-11621 of Vault).
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final

import botocore.session
from botocore.config import Config
from botocore.credentials import DeferredRefreshableCredentials
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
)

from attestors.aws.dialled_clients import dial_for
from attestors.aws.ec2.instance import Described, UnexpectedDescription, read_description
from attestors.aws.ec2.trust import RoleTrust, UnexpectedTrustPolicy, read_trust
from attestors.aws.partitions import Region
from attestors.clouds.calls import too_slow
from attestors.clouds.errors import CloudError, CloudObjectMissing, CloudRefused, CloudThrottled, CloudUnavailable

EC2: Final = "AWS EC2"
IAM: Final = "AWS IAM"
STS: Final = "AWS STS"
MAXIMUM_INSTANCES: Final = 200
"""Per call: the limit of values in one filter."""
MAXIMUM_CLIENTS: Final = 64
"""Number of cached clients: an EC2 client takes 1.5 MB, and there may be hundreds of accounts."""

_MAXIMUM_PAGES: Final = 10
_SESSION_NAME: Final = "node-attestation-controller"
_THROTTLED_PAUSE: Final = timedelta(seconds=20)
_THROTTLING: Final = frozenset(
    {"RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException", "EC2ThrottledException"}
)
_INVALID_CREDENTIALS: Final = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
"""Error codes of AWS for invalid or expired credentials."""
_REFUSING: Final = _INVALID_CREDENTIALS | {
    "AccessDenied",
    "AccessDeniedException",
    "Blocked",
    "IDPRejectedClaim",
    "InvalidIdentityToken",
    "OptInRequired",
    "RegionDisabledException",
    "UnauthorizedOperation",
}
_MISSING: Final = frozenset({"NoSuchEntity", "NoSuchEntityException"})
_CONFIG: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "connect_timeout": 3,
        "read_timeout": 5,
        "retries": {"total_max_attempts": 1},
        "max_pool_connections": 8,
        "proxies": {},
    }
)


@dataclass(frozen=True, slots=True)
class Access:
    """Access to accounts: the role to assume, by account; the controller's own credentials for all others."""

    roles: Mapping[str, str]
    endpoints: Mapping[str, str]
    """URL by service (``ec2``, ``iam``, ``sts``) in place of AWS: only for tests, no setting sets it."""


class AWSAPI:
    """EC2 and IAM of any account and Region. Its methods are thread-safe."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._creating = threading.Lock()
        self._clients: OrderedDict[tuple[str, str, str], Any] = OrderedDict()
        # EC2's description alone takes tens of megabytes once it is loaded, so all sessions share it.
        self._loader = botocore.session.get_session().get_component("data_loader")

    def instances(self, account: str, region: Region, instance_ids: Sequence[str]) -> tuple[Described, ...]:
        """The instances that EC2 knows. An unknown or odd instance does not affect the others.

        Raises:
            CloudUnavailable, CloudRefused: there is no answer.
        """
        if not 0 < len(instance_ids) <= MAXIMUM_INSTANCES:
            raise ValueError(f"1 to {MAXIMUM_INSTANCES} instances at once")
        # Use a filter: a request by instance IDs fails as a whole if one instance is missing. Do not set MaxResults:
        # with it EC2 filters page by page, and walks all instances of the account in as many calls.
        query: dict[str, Any] = {"Filters": [{"Name": "instance-id", "Values": list(instance_ids)}]}
        found: list[Described] = []
        for _ in range(_MAXIMUM_PAGES):
            page = self._call(
                EC2, "ec2", "DescribeInstances", account, region, lambda ec2: ec2.describe_instances(**query)
            )
            found.extend(_instances(page, region))
            if not page.get("NextToken"):
                return tuple(found)
            query["NextToken"] = page["NextToken"]
        raise CloudUnavailable(EC2, f"answers in more than {_MAXIMUM_PAGES} pages")

    def role_trust(self, account: str, region: Region, role_name: str) -> RoleTrust:
        """IAM's description of a role.

        Raises:
            CloudUnavailable, CloudRefused, CloudObjectMissing: there is no answer, or no such role.
        """
        answer = self._call(IAM, "iam", "GetRole", account, region, lambda iam: iam.get_role(RoleName=role_name))
        role = answer["Role"]
        _require_of_account(role["Arn"], account)
        try:
            return read_trust(role["RoleId"], role["AssumeRolePolicyDocument"], partition=region.partition.name)
        except UnexpectedTrustPolicy as error:
            raise CloudUnavailable(IAM, str(error)) from error

    def _call(
        self, service: str, name: str, action: str, account: str, region: Region, call: Callable[[Any], Any]
    ) -> Any:
        try:
            return call(self._client(name, account, region))
        except ClientError as error:
            if _code(error) in _INVALID_CREDENTIALS:
                self._forget(name, account, region)
            raise self._refusal(service, name, action, account, error) from None
        except (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError) as error:
            self._forget(name, account, region)
            raise CloudRefused(
                service,
                f"the controller has no credentials for it ({type(error).__name__}): give it a role, or other "
                "credentials that the AWS SDK finds",
            ) from None
        except (ConnectTimeoutError, ReadTimeoutError):
            raise too_slow(service, region.name) from None
        except (BotoCoreError, OSError) as error:
            # The exceptions' texts repeat URLs.
            raise CloudUnavailable(service, f"cannot be reached for {region.name} ({type(error).__name__})") from None

    def _client(self, name: str, account: str, region: Region) -> Any:
        key = _client_key(name, account, region)
        # While clients are created, sessions are not thread-safe; clients are.
        with self._creating:
            if key not in self._clients:
                self._clients[key] = self._make(name, account, region)
            self._clients.move_to_end(key)
            while len(self._clients) > MAXIMUM_CLIENTS:
                self._clients.popitem(last=False)
            return self._clients[key]

    def _forget(self, name: str, account: str, region: Region) -> None:
        """Drop a client: it keeps the credentials (or their absence) from its creation."""
        with self._creating:
            self._clients.pop(_client_key(name, account, region), None)

    def _make(self, name: str, account: str, region: Region) -> Any:
        session = self._session()
        if account in self._access.roles:
            assume = functools.partial(self._assume, self._access.roles[account], region)
            session.get_component("credential_provider").providers.insert(0, _AssumedRole(assume))
        return self._create(session, name, region)

    def _session(self) -> Any:
        session = botocore.session.get_session()
        session.register_component("data_loader", self._loader)
        dial_for(session)
        return session

    def _create(self, session: Any, name: str, region: Region) -> Any:
        return session.create_client(
            name, region_name=region.name, endpoint_url=self._access.endpoints.get(name), config=Config(**_CONFIG)
        )

    def _refusal(self, service: str, name: str, action: str, account: str, error: ClientError) -> CloudError:
        """The meaning of an AWS error. It may belong to the STS call for this call's credentials."""
        code, status = _code(error), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        permission, where = f"{name}:{action}", f"in account {account}"
        if error.operation_name != action:
            service, permission = STS, f"sts:{error.operation_name}"
            where = f"to get credentials for {self._access.roles.get(account, f'account {account}')}"
        if code in _THROTTLING or status == 429:
            return CloudThrottled(service, "too many requests at the moment", retry_after=_THROTTLED_PAUSE)
        if code in _MISSING:
            return CloudObjectMissing(service, f"{permission} {where} finds no such role{self._hint(account)}")
        if code in _REFUSING:
            return CloudRefused(service, f"the controller may not {permission} {where} ({code})")
        return CloudUnavailable(service, f"answers {permission} with status {status} and code {code}")

    def _hint(self, account: str) -> str:
        if account in self._access.roles:
            return ""
        return ", with the controller's own credentials: if they belong to another account, name a role in accountRoles"

    def _assume(self, role_arn: str, region: Region) -> Mapping[str, str]:
        sts = self._create(self._session(), "sts", region)
        credentials = sts.assume_role(RoleArn=role_arn, RoleSessionName=_SESSION_NAME)["Credentials"]
        return {
            "access_key": credentials["AccessKeyId"],
            "secret_key": credentials["SecretAccessKey"],
            "token": credentials["SessionToken"],
            "expiry_time": credentials["Expiration"].isoformat(),
        }


class _AssumedRole:
    """A credential provider for botocore's session: assumes a role, and again before the credentials expire."""

    METHOD = CANONICAL_NAME = "node-attestation-assume-role"

    def __init__(self, assume: Callable[[], Mapping[str, str]]) -> None:
        self._assume = assume

    def load(self) -> Any:
        """Credentials that are fetched on first use."""
        return DeferredRefreshableCredentials(refresh_using=self._assume, method=self.METHOD)


def _instances(page: Mapping[str, Any], region: Region) -> Iterable[Described]:
    for reservation in page.get("Reservations", []):
        for description in reservation.get("Instances", []):
            try:
                yield read_description(description, account=reservation.get("OwnerId", ""), region=region.name)
            except UnexpectedDescription as error:
                raise CloudUnavailable(EC2, str(error)) from error


def _client_key(name: str, account: str, region: Region) -> tuple[str, str, str]:
    """The cache key of a client: IAM has one for all Regions of a partition."""
    return (name, account, region.partition.name if name == "iam" else region.name)


def _require_of_account(role_arn: str, account: str) -> None:
    """Another account may have a role of the same name, whose trust policy means nothing for this one."""
    if role_arn.split(":")[4:5] != [account]:
        raise CloudRefused(
            IAM,
            f"the controller's own credentials do not belong to account {account}: name a role of it in accountRoles",
        )


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))[:64]
