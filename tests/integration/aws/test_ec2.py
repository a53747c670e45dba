"""EC2 and IAM through boto3, against moto's server; and the whole server plugin against everything."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from attestors.aws import AWSAttestor
from attestors.aws.ec2.api import AWSAPI, MAXIMUM_CLIENTS, Access
from attestors.aws.ec2.instance import Instance, MetadataOptions
from attestors.aws.partitions import parse_region
from attestors.aws.services import Elsewhere
from attestors.aws.settings import AWSSettings
from attestors.clouds.errors import CloudError, CloudObjectMissing, CloudRefused, CloudThrottled, CloudUnavailable
from attestors.contract import (
    AttestorSettings,
    FormerInstance,
    InstanceExists,
    InstanceGone,
    TerminationNotProvable,
    VerifiedIdentity,
)
from tests.integration.aws.fixtures import OPERATOR, ROLE, fields, presigned
from tests.support import aws_documents
from tests.support.fake_aws import FakeAWS, FakeEC2
from tests.support.fake_aws.ec2 import ACCOUNT, EC2_TRUST
from tests.support.silent_address import resolve, silent
from tests.unit.attestors.aws.ec2.descriptions import INSTANCE, description
from tests.unit.attestors.support import attestation_request, binding_for, evidence_of

pytestmark = pytest.mark.slow

REGION: Final = parse_region("eu-west-1")
OTHER_ACCOUNT: Final = "210987654321"


@pytest.fixture(scope="module")
def ec2() -> Iterator[FakeEC2]:
    """One for all tests here."""
    with FakeEC2() as cloud:
        yield cloud


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller has some, and nothing else of whoever runs the tests is looked at."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x" * 40)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")


def api(ec2: FakeEC2, **roles: str) -> AWSAPI:
    return AWSAPI(Access({account.removeprefix("a"): role for account, role in roles.items()}, ec2.endpoints))


@pytest.fixture(scope="module")
def asking(ec2: FakeEC2) -> AWSAPI:
    """With a client that is there already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "x" * 40)
        made = api(ec2)
        made.instances(ACCOUNT, REGION, ["i-0123456789abcdef0"])
        return made


def test_instances_are_described_and_unknown_ones_left_out(ec2: FakeEC2, asking: AWSAPI) -> None:
    launched = ec2.launch(tags={"team": "a"})
    found = asking.instances(ACCOUNT, REGION, [launched.instance_id, "i-0123456789abcdef0"])
    [instance] = found
    assert isinstance(instance, Instance)
    assert (instance.instance_id, instance.account) == (launched.instance_id, ACCOUNT)
    assert instance.private_dns_name == launched.private_dns_name
    assert launched.private_ip in {str(address) for address in instance.addresses}
    assert instance.metadata_options == MetadataOptions(True, 1)
    assert dict(instance.tags) == {"team": "a"}


@pytest.mark.parametrize("credentials_of", ["its own", "a role", "a token"])
def test_silent_addresses_keep_no_call_from_the_next(
    ec2: FakeEC2, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, credentials_of: str
) -> None:
    """Where IPv6 is broken and a name has several addresses; also of the calls that botocore makes for credentials."""
    resolve(monkeypatch, "aws.example", *["::1"] * 5, "127.0.0.1")
    port = int(ec2.endpoint.rpartition(":")[2])
    endpoint = f"http://aws.example:{port}"
    roles: dict[str, str] = {}
    if credentials_of == "a role":
        roles = {OTHER_ACCOUNT: f"arn:aws:iam::{OTHER_ACCOUNT}:role/reader"}
    elif credentials_of == "a token":  # of the Pod's ServiceAccount, as on EKS
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        (tmp_path / "token").write_text("a.b.c")
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("AWS_ROLE_ARN", f"arn:aws:iam::{ACCOUNT}:role/controller")
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
    asking = AWSAPI(Access(roles, dict.fromkeys(("ec2", "sts"), endpoint)))
    with silent("::1", port):
        began = time.monotonic()
        account = OTHER_ACCOUNT if roles else ACCOUNT
        assert asking.instances(account, REGION, ["i-0123456789abcdef0"]) == ()
        assert time.monotonic() - began < 10  # an address had three seconds, or for credentials sixty


def test_instances_are_filtered_in_one_call_and_pages_are_read_where_there_are_some(
    asking: AWSAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With MaxResults EC2 filters a page after the other: of a large account that would be many calls."""
    asked: list[Mapping[str, Any]] = []

    def answer(client: Any, operation: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(dict(parameters))
        if len(asked) == 1:
            return {"Reservations": [], "NextToken": "more"}
        return {"Reservations": [{"OwnerId": ACCOUNT, "Instances": [description()]}]}

    monkeypatch.setattr(BaseClient, "_make_api_call", answer)
    assert [found.instance_id for found in asking.instances(ACCOUNT, REGION, [INSTANCE])] == [INSTANCE]
    filters = [{"Name": "instance-id", "Values": [INSTANCE]}]
    assert asked == [{"Filters": filters}, {"Filters": filters, "NextToken": "more"}]


def test_pages_without_end_are_an_outage(asking: AWSAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BaseClient, "_make_api_call", lambda *asked: {"Reservations": [], "NextToken": "more"})
    with pytest.raises(CloudUnavailable, match="in more than 10 pages"):
        asking.instances(ACCOUNT, REGION, [INSTANCE])


def test_a_terminated_instance_is_described_as_such(ec2: FakeEC2, asking: AWSAPI) -> None:
    launched = ec2.launch()
    ec2.ec2.terminate_instances(InstanceIds=[launched.instance_id])
    [instance] = asking.instances(ACCOUNT, REGION, [launched.instance_id])
    assert isinstance(instance, Instance)
    assert instance.state.value == "terminated"


def test_another_account_is_entered_by_its_role_and_sees_its_own_instances_only(ec2: FakeEC2) -> None:
    launched = ec2.launch()
    both = api(ec2, **{f"a{OTHER_ACCOUNT}": f"arn:aws:iam::{OTHER_ACCOUNT}:role/reader"})
    assert both.instances(OTHER_ACCOUNT, REGION, [launched.instance_id]) == ()
    assert len(both.instances(ACCOUNT, REGION, [launched.instance_id])) == 1


def test_a_roles_trust_is_read(ec2: FakeEC2) -> None:
    role_id = ec2.create_role("ec2-only")
    trust = api(ec2).role_trust(ACCOUNT, REGION, "ec2-only")
    assert (trust.role_id, trust.ec2_only) == (role_id, True)
    anybody = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    ec2.create_role("open", {**EC2_TRUST, "Statement": [*EC2_TRUST["Statement"], anybody]})
    assert not api(ec2).role_trust(ACCOUNT, REGION, "open").ec2_only


def test_a_role_that_is_not_there_is_missing(ec2: FakeEC2) -> None:
    with pytest.raises(CloudObjectMissing, match="AWS IAM"):
        api(ec2).role_trust(ACCOUNT, REGION, "nobody")


def test_missing_credentials_are_reported(ec2: FakeEC2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(CloudRefused, match="AWS EC2: the controller has no credentials"):
        api(ec2).instances(ACCOUNT, REGION, ["i-0123456789abcdef0"])


def test_credentials_that_come_later_are_found(ec2: FakeEC2, monkeypatch: pytest.MonkeyPatch) -> None:
    """A metadata service that is not there yet, as when a Pod has just started, leaves a client without them."""
    launched = ec2.launch()
    with monkeypatch.context() as without:
        without.delenv("AWS_ACCESS_KEY_ID")
        without.delenv("AWS_SECRET_ACCESS_KEY")
        asking = api(ec2)
        with pytest.raises(CloudRefused, match="the controller has no credentials"):
            asking.instances(ACCOUNT, REGION, [launched.instance_id])
        with pytest.raises(CloudRefused, match="the controller has no credentials"):
            asking.role_trust(ACCOUNT, REGION, "nobody")
    assert len(asking.instances(ACCOUNT, REGION, [launched.instance_id])) == 1
    with pytest.raises(CloudObjectMissing):
        asking.role_trust(ACCOUNT, REGION, "nobody")


@pytest.mark.parametrize(
    ("code", "found_anew"),
    [("AuthFailure", True), ("RequestExpired", True), ("UnauthorizedOperation", False), ("InternalError", False)],
)
def test_credentials_that_hold_no_longer_are_found_anew(ec2: FakeEC2, code: str, found_anew: bool) -> None:
    asking, launched = api(ec2), ec2.launch()
    asking.instances(ACCOUNT, REGION, [launched.instance_id])
    client = asking._clients["ec2", ACCOUNT, REGION.name]

    class Response:
        status_code = 400

    def refuse(**event: Any) -> Any:
        return Response(), {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}}

    client.meta.events.register("before-call.ec2.DescribeInstances", refuse)
    with pytest.raises(CloudError):
        asking.instances(ACCOUNT, REGION, [launched.instance_id])
    if found_anew:
        assert len(asking.instances(ACCOUNT, REGION, [launched.instance_id])) == 1
    else:
        assert asking._clients["ec2", ACCOUNT, REGION.name] is client


def test_a_role_of_that_name_in_the_controllers_own_account_says_nothing_of_anothers(ec2: FakeEC2) -> None:
    ec2.create_role("in-every-account")
    with pytest.raises(CloudRefused, match=f"not belong to account {OTHER_ACCOUNT}: name a role of it in accountRoles"):
        api(ec2).role_trust(OTHER_ACCOUNT, REGION, "in-every-account")
    with pytest.raises(CloudObjectMissing, match="name a role in accountRoles"):
        api(ec2).role_trust(OTHER_ACCOUNT, REGION, "nobody")


@pytest.mark.parametrize(
    ("code", "status", "kind", "message"),
    [
        ("AccessDenied", 403, CloudRefused, "AWS STS: the controller may not sts:AssumeRole to get credentials for "),
        ("Throttling", 400, CloudThrottled, "AWS STS: too many requests"),
        ("InternalFailure", 500, CloudUnavailable, "AWS STS: answers sts:AssumeRole with status 500"),
    ],
)
def test_a_refused_role_of_another_account_is_named(
    ec2: FakeEC2, monkeypatch: pytest.MonkeyPatch, code: str, status: int, kind: type[CloudError], message: str
) -> None:
    """And not a permission on the instances, which would not help."""
    role = f"arn:aws:iam::{OTHER_ACCOUNT}:role/reader"
    asking, ask = api(ec2, **{f"a{OTHER_ACCOUNT}": role}), BaseClient._make_api_call

    def refuse(client: Any, operation: str, parameters: Any) -> Any:
        if operation != "AssumeRole":
            return ask(client, operation, parameters)
        raise ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, operation)

    with monkeypatch.context() as patch:
        patch.setattr(BaseClient, "_make_api_call", refuse)
        with pytest.raises(kind) as caught:
            asking.instances(OTHER_ACCOUNT, REGION, ["i-0123456789abcdef0"])
    assert type(caught.value) is kind
    assert str(caught.value).startswith(message)
    assert (role in str(caught.value)) is (code == "AccessDenied")
    assert asking.instances(OTHER_ACCOUNT, REGION, ["i-0123456789abcdef0"]) == ()


def test_clients_are_few_and_the_last_used_ones(ec2: FakeEC2) -> None:
    """Each takes a megabyte and a half, and there may be hundreds of accounts."""
    asking = api(ec2)
    first = asking._client("ec2", ACCOUNT, REGION)
    for number in range(MAXIMUM_CLIENTS - 1):
        asking._client("iam", f"{number:012}", REGION)
    assert asking._client("ec2", ACCOUNT, REGION) is first
    asking._client("ec2", OTHER_ACCOUNT, REGION)
    assert len(asking._clients) == MAXIMUM_CLIENTS
    assert asking._client("ec2", ACCOUNT, REGION) is first
    assert ("iam", f"{0:012}", "aws") not in asking._clients


def test_iam_has_one_client_for_all_regions_of_an_account_and_ec2_one_for_each(ec2: FakeEC2) -> None:
    asking, other = api(ec2), parse_region("eu-central-1")
    assert asking._client("iam", ACCOUNT, REGION) is asking._client("iam", ACCOUNT, other)
    assert asking._client("iam", ACCOUNT, REGION) is not asking._client("iam", ACCOUNT, parse_region("cn-north-1"))
    assert asking._client("iam", ACCOUNT, REGION) is not asking._client("iam", OTHER_ACCOUNT, REGION)
    assert asking._client("ec2", ACCOUNT, REGION) is not asking._client("ec2", ACCOUNT, other)


def test_an_unreachable_endpoint_is_an_outage_and_its_address_is_not_quoted() -> None:
    nowhere = AWSAPI(Access({}, MappingProxyType({"ec2": "http://127.0.0.1:1"})))
    with pytest.raises(CloudUnavailable, match="AWS EC2: cannot be reached for eu-west-1") as caught:
        nowhere.instances(ACCOUNT, REGION, ["i-0123456789abcdef0"])
    assert "127.0.0.1" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("RequestLimitExceeded", 503, CloudThrottled),
        ("Throttling", 400, CloudThrottled),
        ("Anything", 429, CloudThrottled),
        ("UnauthorizedOperation", 403, CloudRefused),
        ("AuthFailure", 401, CloudRefused),
        ("InternalError", 500, CloudUnavailable),
        ("SomethingNew", 400, CloudUnavailable),
    ],
)
def test_an_error_is_an_outage_or_the_operators_and_never_the_nodes(
    asking: AWSAPI, code: str, status: int, kind: type[CloudError]
) -> None:
    client = asking._client("ec2", ACCOUNT, REGION)

    def fail(**event: Any) -> Any:
        document = {"Error": {"Code": code, "Message": "arn:secret"}, "ResponseMetadata": {"HTTPStatusCode": status}}

        class _Response:
            status_code = status

        return _Response(), document

    client.meta.events.register("before-call.ec2.DescribeInstances", fail)
    try:
        with pytest.raises(kind) as caught:
            asking.instances(ACCOUNT, REGION, ["i-0123456789abcdef0"])
    finally:
        client.meta.events.unregister("before-call.ec2.DescribeInstances", fail)
    assert type(caught.value) is kind
    assert "secret" not in str(caught.value)


# The server plugin as the plugin makes it.


@pytest.fixture
def attestor(aws: FakeAWS, ec2: FakeEC2) -> AWSAttestor:
    """The plugin, with AWS on this machine."""
    return AWSAttestor(Elsewhere(routes=aws.elsewhere.routes, endpoints=ec2.endpoints))


@pytest.fixture
def role_id(ec2: FakeEC2) -> str:
    """The instances' role, which may be there already."""
    try:
        return ec2.create_role(ROLE)
    except ec2.iam.exceptions.EntityAlreadyExistsException:
        return str(ec2.iam.get_role(RoleName=ROLE)["Role"]["RoleId"])


async def join(plugin: Any, aws: FakeAWS, launched: Any, role_id: str) -> Any:
    """What one instance gets."""
    session = aws.remember(aws.credentials(launched.instance_id, account=ACCOUNT, role_name=ROLE).but(role_id=role_id))
    binding = binding_for(provider="aws")
    document = aws_documents.document(
        instanceId=launched.instance_id, availabilityZone=launched.zone, privateIp=launched.private_ip
    )
    evidence = fields(presigned(session), document=aws_documents.sign(document))
    provider_id = f"aws:///{launched.zone}/{launched.instance_id}"
    return await plugin.verify_client(
        attestation_request(evidence_of(evidence), binding=binding, provider_id=provider_id)
    )


def plugin_of(attestor: AWSAttestor, **operator: Any) -> Any:
    plugin = attestor.server_plugin(AttestorSettings(operator={**OPERATOR, **operator}))
    return replace(plugin, settings=replace(plugin.settings, certificates=aws_documents.certificates()))


async def test_an_instance_joins(attestor: AWSAttestor, aws: FakeAWS, ec2: FakeEC2, role_id: str) -> None:
    launched = ec2.launch()
    outcome = await join(plugin_of(attestor), aws, launched, role_id)
    assert isinstance(outcome, VerifiedIdentity), outcome
    assert outcome.provider_id == f"aws:///{launched.zone}/{launched.instance_id}"
    assert outcome.node_names == (launched.private_dns_name,)


async def test_an_instance_is_proven_gone_once_it_is_terminated(
    attestor: AWSAttestor, aws: FakeAWS, ec2: FakeEC2, role_id: str
) -> None:
    plugin, running, terminated = plugin_of(attestor), ec2.launch(), ec2.launch()
    outcome = await join(plugin, aws, running, role_id)
    assert isinstance(outcome, VerifiedIdentity), outcome
    ec2.ec2.terminate_instances(InstanceIds=[terminated.instance_id])
    former = outcome.identity.replace(running.instance_id, terminated.instance_id)
    assert await plugin.termination_of(FormerInstance(former, "")) == InstanceGone()
    exists = await plugin.termination_of(FormerInstance(outcome.identity, outcome.provider_id))
    assert exists == InstanceExists(f"instance {running.instance_id} is running")
    unknown = outcome.identity.replace(running.instance_id, "i-0123456789abcdef0")
    assert isinstance(await plugin.termination_of(FormerInstance(unknown, "")), TerminationNotProvable)


async def test_many_joins_are_few_calls(attestor: AWSAttestor, aws: FakeAWS, ec2: FakeEC2, role_id: str) -> None:
    """Two clusters of one operator share what EC2 said, and the rate of calls."""
    plugins = [plugin_of(attestor), plugin_of(attestor, clockSkewSeconds=30)]
    launched = [ec2.launch() for _ in range(20)]
    described = 0

    class Counting:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        async def __call__(self, *asked: Any) -> Any:
            nonlocal described
            described += 1
            return await self.inner(*asked)

    directory = plugins[0].services.instances
    assert directory is plugins[1].services.instances
    directory._describe = Counting(directory._describe)
    outcomes = await asyncio.gather(
        *(join(plugins[number % 2], aws, instance, role_id) for number, instance in enumerate(launched))
    )
    assert all(isinstance(outcome, VerifiedIdentity) for outcome in outcomes)
    assert described <= 2


def test_boto_is_imported_with_the_first_call_only() -> None:
    """In a process of its own: this one knows it already."""
    code = (
        "import sys, attestors.aws as aws\n"
        "from attestors.contract import AttestorSettings\n"
        f"aws.plugin.server_plugin(AttestorSettings(operator={dict(OPERATOR)!r}))\n"
        "sys.exit(any(name.partition('.')[0] in ('boto3', 'botocore') for name in sys.modules))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_boto_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError) as caught:
        AWSAttestor().server_plugin(AttestorSettings(operator=dict(OPERATOR)))
    assert caught.value.name == "botocore"
    without = {**OPERATOR, "describeInstances": False, "checkRoleTrust": False}
    assert not AWSSettings.parse(AttestorSettings(operator=without)).asks_aws_with_credentials
    AWSAttestor().server_plugin(AttestorSettings(operator=without))
