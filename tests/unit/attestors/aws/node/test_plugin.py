"""The agent plugin: evidence that the controller can use, or a sentence that a person can."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, urlsplit

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from attestors.aws import plugin, wire
from attestors.aws.document import verify_identity_document
from attestors.aws.node.plugin import AWSAgentPlugin
from attestors.aws.node.settings import NodeSettings
from attestors.contract import EvidenceUnavailable, GatherRequest, InvalidSettings
from attestors.wire import evidence as envelope
from attestors.wire.binding import Binding
from attestors.wire.evidence import Evidence
from attestors.wire.names import Purpose
from tests.support import aws_documents as aws
from tests.support.fake_instance_metadata import (
    DOCUMENT_PATH,
    PKCS7_PATH,
    ROLE_PATH,
    Answer,
    FakeInstanceMetadata,
    Instance,
)
from tests.unit.attestors.support import CLUSTER, binding_for

_BINDING = binding_for(provider="aws")
_CREDENTIALS = Instance()


def request(**changes: str) -> GatherRequest:
    values = {"cluster": CLUSTER.text, "evidence_version": "v1", "challenge": ""} | changes
    return GatherRequest(binding=_BINDING, purpose=Purpose.CLIENT, **values)


def gather(metadata: FakeInstanceMetadata, **settings: str) -> Evidence:
    return plugin.agent_plugin({"metadata-endpoint": metadata.url, **settings}).gather(request())


def refused(metadata: FakeInstanceMetadata, match: str, **settings: str) -> None:
    with pytest.raises(EvidenceUnavailable, match=match) as caught:
        gather(metadata, **settings)
    said: BaseException | None = caught.value
    while said is not None:
        for secret in (_CREDENTIALS.secret_access_key, _CREDENTIALS.session_token):
            assert secret[:20] not in str(said)
        said = said.__cause__


def test_provider_id(metadata: FakeInstanceMetadata) -> None:
    agent = plugin.agent_plugin({"metadata-endpoint": metadata.url})
    assert agent.provider_id() == f"aws:///eu-west-1a/{aws.INSTANCE}"
    assert metadata.paths() == [DOCUMENT_PATH]


class TestEvidence:
    def test_document(self, metadata: FakeInstanceMetadata) -> None:
        evidence = gather(metadata)
        evidence.expect_fields(*wire.CALLER_IDENTITY_FIELDS)
        pkcs7 = evidence.binary(wire.IDENTITY_DOCUMENT_FIELD, maximum_bytes=wire.MAXIMUM_IDENTITY_DOCUMENT_BYTES)
        assert verify_identity_document(pkcs7, aws.certificates()).instance_id == aws.INSTANCE
        assert evidence.cluster == CLUSTER
        assert envelope.decode(envelope.encode(evidence)) == evidence

    def test_request(self, metadata: FakeInstanceMetadata) -> None:
        evidence = gather(metadata)
        split = urlsplit(evidence.fields[wire.CALLER_IDENTITY_REQUEST_FIELD])
        assert (split.scheme, split.netloc, split.path) == ("https", "sts.eu-west-1.amazonaws.com", "/")
        pairs = parse_qsl(split.query, keep_blank_values=True, strict_parsing=True)
        parameters = dict(pairs)
        assert len(parameters) == len(pairs) == 9
        assert parameters["Action"] == "GetCallerIdentity"
        assert parameters["Version"] == "2011-06-15"
        assert parameters["X-Amz-Expires"] == str(wire.PRESIGNED_SECONDS)
        assert parameters["X-Amz-SignedHeaders"] == "host;x-capi-node-attestation-binding"
        assert parameters["X-Amz-Security-Token"] == _CREDENTIALS.session_token
        key_id, date, *scope = parameters["X-Amz-Credential"].split("/")
        assert (key_id, scope) == (_CREDENTIALS.access_key_id, ["eu-west-1", "sts", "aws4_request"])
        signed_at = datetime.strptime(parameters["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        assert signed_at.strftime("%Y%m%d") == date
        assert timedelta(seconds=-1) < datetime.now(UTC) - signed_at < timedelta(minutes=5)

    def test_request_is_signed_for_this_binding_only(self, metadata: FakeInstanceMetadata) -> None:
        """Signing it again with the same header gives the same signature, and with another one another."""
        evidence = gather(metadata)
        assert wire.parse_binding_text(evidence.fields[wire.CALLER_IDENTITY_BINDING_FIELD]) == _BINDING.value
        url = evidence.fields[wire.CALLER_IDENTITY_REQUEST_FIELD]
        assert sign_again(url, {wire.BINDING_HEADER: _BINDING.value.hex()}) == url
        assert sign_again(url, {wire.BINDING_HEADER: bytes(32).hex()}) != url
        assert sign_again(url, {}) != url

    def test_region_of_another_sts(self, metadata: FakeInstanceMetadata) -> None:
        evidence = gather(metadata, region="cn-north-1")
        url = evidence.fields[wire.CALLER_IDENTITY_REQUEST_FIELD]
        assert url.startswith("https://sts.cn-north-1.amazonaws.com.cn/?")
        assert "%2Fcn-north-1%2Fsts%2Faws4_request" in url
        assert DOCUMENT_PATH not in metadata.paths()

    def test_partition_of_the_instance(self) -> None:
        with FakeInstanceMetadata(Instance(document=aws.document(region="us-gov-west-1"))) as metadata:
            url = gather(metadata).fields[wire.CALLER_IDENTITY_REQUEST_FIELD]
        assert url.startswith("https://sts.us-gov-west-1.amazonaws.com/?")

    def test_web_identity(self, metadata: FakeInstanceMetadata) -> None:
        asked = []

        def token(credentials: object, region: object, binding: Binding) -> str:
            asked.append((credentials, region, binding))
            return "a.b.c"

        settings = NodeSettings.parse({"metadata-endpoint": metadata.url, "proof": "web-identity"})
        evidence = AWSAgentPlugin(settings, token).gather(request())
        evidence.expect_fields(*wire.WEB_IDENTITY_FIELDS)
        assert evidence.fields[wire.WEB_IDENTITY_TOKEN_FIELD] == "a.b.c"
        ((credentials, region, binding),) = asked
        assert getattr(region, "name", None) == "eu-west-1"
        assert binding == _BINDING
        assert _CREDENTIALS.secret_access_key not in repr(credentials)
        assert _CREDENTIALS.session_token not in repr(credentials)

    def test_largest_session_token(self) -> None:
        with FakeInstanceMetadata(Instance(session_token="/" * 2000)) as metadata:
            assert len(gather(metadata).fields[wire.CALLER_IDENTITY_REQUEST_FIELD]) < 8192
        with FakeInstanceMetadata(Instance(session_token="/" * 2800)) as metadata:
            refused(metadata, "the session token of this instance's role is too long")


def sign_again(url: str, headers: Mapping[str, str]) -> str:
    """The same request, signed at the same time, with these headers."""
    split = urlsplit(url)
    parameters = dict(parse_qsl(split.query))
    again = AWSRequest(
        "GET", f"https://{split.netloc}/?Action=GetCallerIdentity&Version=2011-06-15", headers=dict(headers)
    )
    again.context["timestamp"] = parameters["X-Amz-Date"]
    credentials = Credentials(_CREDENTIALS.access_key_id, _CREDENTIALS.secret_access_key, _CREDENTIALS.session_token)
    signer = SigV4QueryAuth(credentials, "sts", "eu-west-1", expires=wire.PRESIGNED_SECONDS)
    signer._modify_request_before_signing(again)
    text = signer.string_to_sign(again, signer.canonical_request(again))
    signer._inject_signature_to_request(again, signer.signature(text, again))
    return str(again.url)


class TestWithoutEvidence:
    def test_no_role(self) -> None:
        with FakeInstanceMetadata(Instance(role=None)) as metadata:
            refused(metadata, "this instance has no role: give it an instance profile")

    def test_no_role_any_more(self, metadata: FakeInstanceMetadata) -> None:
        metadata.pages[ROLE_PATH] = b"\n"
        refused(metadata, "this instance has no role: give it an instance profile")

    @pytest.mark.parametrize("role", ["../x", "a/b", "a?b", "x" * 65, "é"])
    def test_role_that_is_none(self, metadata: FakeInstanceMetadata, role: str) -> None:
        metadata.pages[ROLE_PATH] = role.encode()
        refused(metadata, "names a role that cannot be one")
        assert metadata.paths()[-1] == ROLE_PATH

    def test_role_that_ec2_may_not_assume(self, metadata: FakeInstanceMetadata) -> None:
        answer = {"Code": "AssumeRoleUnauthorizedAccess", "Message": "EC2 cannot assume the role"}
        metadata.pages[ROLE_PATH + "worker-node"] = json.dumps(answer).encode()
        refused(
            metadata, r"no credentials for role worker-node \(AssumeRoleUnauthorizedAccess\): EC2 must be allowed to"
        )

    def test_refusal_without_a_reason(self, metadata: FakeInstanceMetadata) -> None:
        for code in (None, 1, "with spaces\n"):
            metadata.pages[ROLE_PATH + "worker-node"] = json.dumps({"Code": code}).encode()
            refused(metadata, r"\(it does not say why\)")

    @pytest.mark.parametrize(
        "changes",
        [
            {"AccessKeyId": ""},
            {"AccessKeyId": "ASIA/eu-west-1/sts"},
            {"SecretAccessKey": None},
            {"SecretAccessKey": 7},
            {"Token": "a b"},
            {"Token": "x" * 7000},
        ],
        ids=lambda changes: next(iter(changes)),
    )
    def test_credentials_that_are_none(self, metadata: FakeInstanceMetadata, changes: dict[str, object]) -> None:
        answer = _CREDENTIALS.credentials() | changes
        metadata.pages[ROLE_PATH + "worker-node"] = json.dumps(answer).encode()
        refused(metadata, "gives no usable credentials for role worker-node")

    @pytest.mark.parametrize("cut", [0, 1, 100, 250, 400])
    def test_credentials_cut_short(self, metadata: FakeInstanceMetadata, cut: int) -> None:
        metadata.pages[ROLE_PATH + "worker-node"] = metadata.pages[ROLE_PATH + "worker-node"][:cut]
        refused(metadata, "gives no usable credentials for role worker-node")

    def test_credentials_that_are_no_object(self, metadata: FakeInstanceMetadata) -> None:
        metadata.pages[ROLE_PATH + "worker-node"] = b'["Success"]'
        refused(metadata, "gives no usable credentials for role worker-node")

    def test_document_that_is_none(self, metadata: FakeInstanceMetadata) -> None:
        metadata.pages[DOCUMENT_PATH] = aws.document(instanceId="x")
        refused(metadata, "has a missing or malformed instanceId, as the instance metadata service returns it")
        with pytest.raises(EvidenceUnavailable, match="missing or malformed instanceId"):
            plugin.agent_plugin({"metadata-endpoint": metadata.url}).provider_id()

    @pytest.mark.parametrize(
        ("text", "match"),
        [
            (b"<html>", "the recorded PKCS#7 is not base64"),
            (b"", "too large or empty"),
            (base64.b64encode(bytes(8193)), "too large or empty"),
            (b"x" * 20000, "the recorded PKCS#7 is too large"),
        ],
        ids=["no base64", "empty", "large", "larger"],
    )
    def test_pkcs7_that_is_none(self, metadata: FakeInstanceMetadata, text: bytes, match: str) -> None:
        metadata.pages[PKCS7_PATH] = text
        refused(metadata, match)

    def test_no_pkcs7(self, metadata: FakeInstanceMetadata) -> None:
        metadata.instead(PKCS7_PATH, Answer(404))
        refused(metadata, "has no /latest/dynamic/instance-identity/rsa2048")

    def test_another_version(self, metadata: FakeInstanceMetadata) -> None:
        agent = plugin.agent_plugin({"metadata-endpoint": metadata.url})
        with pytest.raises(EvidenceUnavailable, match="writes evidence v1 only"):
            agent.gather(request(evidence_version="v2"))
        with pytest.raises(EvidenceUnavailable, match="supports no challenges"):
            agent.gather(request(challenge="x"))
        assert metadata.asked == []

    def test_wrong_setting(self) -> None:
        with pytest.raises(InvalidSettings, match="no setting 'account'"):
            plugin.agent_plugin({"account": "1"})


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "module",
    ["", ".wire", ".partitions", ".document", ".node.settings", ".node.instance_metadata", ".node.credentials"],
)
def test_settings_without_calls_need_no_botocore(module: str) -> None:
    done = run(f"import sys; sys.modules['botocore'] = None; import attestors.aws{module}")
    assert (done.returncode, done.stderr) == (0, "")


def test_agent_plugin_names_what_is_missing() -> None:
    done = run(
        "import sys; sys.modules['botocore'] = None\nfrom attestors.aws import plugin\n"
        "try:\n    plugin.agent_plugin({})\nexcept ImportError as error:\n    print(error.name)\n"
    )
    assert (re.sub(r"\..*", "", done.stdout.strip()), done.stderr) == ("botocore", "")


def test_agent_plugin_does_not_import_boto3() -> None:
    done = run(
        "import sys\nfrom attestors.aws import plugin\nplugin.agent_plugin({})\n"
        "print(sorted(name for name in sys.modules if name in ('boto3', 'botocore.session', 'botocore.client')))"
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
