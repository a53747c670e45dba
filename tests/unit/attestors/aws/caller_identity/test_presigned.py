"""The presigned request: one form is read, and what goes out is built from parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.aws.caller_identity import PresignedRequest
from attestors.aws.partitions import parse_region
from attestors.aws.wire import BINDING_HEADER
from attestors.wire.evidence import MalformedEvidence
from tests.unit.attestors.support import PATIENT

HOST: Final = "sts.eu-west-1.amazonaws.com"
PARAMETERS: Final[Mapping[str, str]] = {
    "Action": "GetCallerIdentity",
    "Version": "2011-06-15",
    "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
    "X-Amz-Credential": "ASIAIOSFODNN7EXAMPLE/20260102/eu-west-1/sts/aws4_request",
    "X-Amz-Date": "20260102T030400Z",
    "X-Amz-Expires": "300",
    "X-Amz-SignedHeaders": f"host;{BINDING_HEADER}",
    "X-Amz-Security-Token": "IQoJb3JpZ2luX2VjEA+/Zm9v==",
    "X-Amz-Signature": "0123456789abcdef" * 4,
}
"""As botocore orders them."""


def query(parameters: Mapping[str, str]) -> str:
    return "&".join(f"{name}={quote(value, safe='-._~')}" for name, value in parameters.items())


def url(changes: Mapping[str, str | None] | None = None, *, base: str = f"https://{HOST}/") -> str:
    """With some parameters changed, added, or left out (None)."""
    merged = {**PARAMETERS, **(changes or {})}
    return f"{base}?{query({name: value for name, value in merged.items() if value is not None})}"


def refused(text: str) -> str:
    with pytest.raises(MalformedEvidence) as caught:
        PresignedRequest.parse(text)
    assert "0123456789abcdef" not in str(caught.value)
    return str(caught.value).removeprefix("the caller identity request ")


def test_a_request_is_read_into_its_parts() -> None:
    request = PresignedRequest.parse(url())
    assert request.region == parse_region("eu-west-1")
    assert request.host == HOST
    assert request.signed_at == datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    assert request.lifetime == timedelta(minutes=5)


def test_the_request_that_goes_out_says_the_same() -> None:
    target = PresignedRequest.parse(url()).target
    assert target.startswith("/?")
    assert dict(parse_qsl(target[2:], strict_parsing=True)) == dict(PARAMETERS)
    assert PresignedRequest.parse(f"https://{HOST}{target}") == PresignedRequest.parse(url())


@pytest.mark.parametrize("token", ["x", "IQoJ" * 1536, "a-b_c~.!|" + "%" * 100])
def test_a_session_token_may_be_any_that_a_node_sends(token: str) -> None:
    """AWS says neither how long it is nor of what."""
    request = PresignedRequest.parse(url({"X-Amz-Security-Token": token}))
    assert request.session_token == token
    assert dict(parse_qsl(request.target[2:], strict_parsing=True))["X-Amz-Security-Token"] == token


def test_neither_signature_nor_credentials_are_shown() -> None:
    shown = repr(PresignedRequest.parse(url()))
    for name in ("X-Amz-Security-Token", "X-Amz-Signature"):
        assert PARAMETERS[name] not in shown
    assert "ASIA" not in shown


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("us-east-1", "sts.us-east-1.amazonaws.com"),
        ("cn-north-1", "sts.cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "sts.us-gov-west-1.amazonaws.com"),
        ("eusc-de-east-1", "sts.eusc-de-east-1.amazonaws.eu"),
    ],
)
def test_every_partition_has_its_hosts(region: str, host: str) -> None:
    credential = f"ASIAIOSFODNN7EXAMPLE/20260102/{region}/sts/aws4_request"
    assert PresignedRequest.parse(url({"X-Amz-Credential": credential}, base=f"https://{host}/")).host == host


@pytest.mark.parametrize(
    "base",
    [
        "https://sts.amazonaws.com/",
        "https://sts.eu-west-2.amazonaws.com/",
        "https://sts.eu-west-1.amazonaws.com.cn/",
        "https://sts.eu-west-1.amazonaws.com.evil.example/",
        "https://sts.eu-west-1.amazonaws.com:8443/",
        "https://sts.eu-west-1.amazonaws.com@evil.example/",
        "https://evil.example@sts.eu-west-1.amazonaws.com/",
        "https://STS.eu-west-1.amazonaws.com/",
        "https://iam.amazonaws.com/",
        "https://169.254.169.254/",
        "https:///",
    ],
)
def test_a_request_to_another_host_is_refused(base: str) -> None:
    assert refused(url(base=base)) == "is for another host than the STS of the Region that it is signed for"


@pytest.mark.parametrize(
    "base", [f"http://{HOST}/", f"HTTPS://{HOST}/", f"//{HOST}/", f"ftp://{HOST}/", f" https://{HOST}/"]
)
def test_another_scheme_is_refused(base: str) -> None:
    assert refused(url(base=base)) == "is not an https URL with a query"


@pytest.mark.parametrize("path", ["", "/x", "//", "/;a", "/%2e", "/../"])
def test_another_path_is_refused(path: str) -> None:
    assert refused(url(base=f"https://{HOST}{path}")) == "has another path than /"


@pytest.mark.parametrize("tail", ["#fragment", "?Action=GetSessionToken", "\n"])
def test_nothing_may_stand_behind_the_query(tail: str) -> None:
    refused(url() + tail)


@pytest.mark.parametrize("character", ["\ud800", "\u00e9", "\u0662", "\x00"], ids=range(4))
def test_what_is_no_text_of_a_url_is_refused(character: str) -> None:
    for at in range(0, len(url()), 7):
        refused(url()[:at] + character + url()[at:])


def test_a_url_without_a_query_is_refused() -> None:
    assert refused(f"https://{HOST}/") == "is not an https URL with a query"


@pytest.mark.parametrize("character", ["a", "/", "&", "="])
def test_a_long_one_takes_no_longer_than_it_is(character: str) -> None:
    """If host and path could be told apart in several ways, this would take minutes, and 8 KiB a fifth of a second."""
    assert refused("https://" + character * 300_000) == "is not an https URL with a query"


@pytest.mark.parametrize("name", list(PARAMETERS))
def test_every_parameter_must_be_there(name: str) -> None:
    assert refused(url({name: None})) == f"lacks the parameter {name}"


@pytest.mark.parametrize("name", list(PARAMETERS))
@pytest.mark.parametrize("again", [str, str.lower, str.upper, str.swapcase])
def test_no_parameter_may_be_there_twice_in_any_letter_case(name: str, again: Callable[[str], str]) -> None:
    for both in (f"{url()}&{again(name)}=x", url().replace("?", f"?{again(name)}=x&")):
        assert refused(both) in ("has a parameter twice", "has a parameter in another letter case")


@pytest.mark.parametrize("name", list(PARAMETERS))
def test_a_parameter_in_another_letter_case_is_refused(name: str) -> None:
    varied = {key: value for key, value in PARAMETERS.items() if key != name} | {name.swapcase(): PARAMETERS[name]}
    assert refused(f"https://{HOST}/?{query(varied)}") == "has a parameter in another letter case"


@pytest.mark.parametrize("part", ["RoleArn=x", "x", "", "=x", "X-Amz-Content-Sha256=x", "Action%20=GetCallerIdentity"])
def test_an_unknown_parameter_is_refused(part: str) -> None:
    for both in (f"{url()}&{part}", url().replace("?", f"?{part}&")):
        assert refused(both) == "has an unknown parameter"


def test_thousands_of_parameters_are_not_looked_at() -> None:
    refused(url() + "&a=b" * 100_000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Action", "GetSessionToken"),
        ("Action", "getcalleridentity"),
        ("Action", "GetCallerIdentity "),
        ("Version", "2011-06-16"),
        ("X-Amz-Algorithm", "AWS4-ECDSA-P256-SHA256"),
    ],
)
def test_another_action_version_or_algorithm_is_refused(name: str, value: str) -> None:
    assert refused(url({name: value})).startswith(f"has another {name} than ")


@pytest.mark.parametrize(
    "names",
    [
        "host",
        BINDING_HEADER,
        f"{BINDING_HEADER};host",
        f"host;{BINDING_HEADER.upper()}",
        f"host;x-amz-content-sha256;{BINDING_HEADER}",
        f"host;{BINDING_HEADER};{BINDING_HEADER}",
        f"host;{BINDING_HEADER};x-k8s-aws-id",
        "",
    ],
)
def test_an_unsigned_binding_header_or_another_header_is_refused(names: str) -> None:
    assert refused(url({"X-Amz-SignedHeaders": names})) == f"must sign exactly the headers host;{BINDING_HEADER}"


@pytest.mark.parametrize(
    ("credential", "cause"),
    [
        ("ASIAIOSFODNN7EXAMPLE/20260102/eu-west-1/ec2/aws4_request", "is signed for another service than sts"),
        ("ASIAIOSFODNN7EXAMPLE/20260102/eu-west-1/sts/aws3_request", "is signed for another service than sts"),
        ("ASIAIOSFODNN7EXAMPLE/20260102/eu-west-1/sts", "is signed for another service than sts"),
        ("ASIAIOSFODNN7EXAMPLE/20260102/eu-west-1/sts/aws4_request/x", "is signed for another service than sts"),
        ("AKIAIOSFODNN7EXAMPLE/20260102/eu-west-1/sts/aws4_request", "is not signed with a role's"),
        ("ASIA/20260102/eu-west-1/sts/aws4_request", "is not signed with a role's"),
        ("ASIAIOSFODNN7EXAMPLE/20260103/eu-west-1/sts/aws4_request", "is signed for another day than its X-Amz-Date"),
        ("ASIAIOSFODNN7EXAMPLE/2026010/eu-west-1/sts/aws4_request", "is signed for another day than its X-Amz-Date"),
        ("ASIAIOSFODNN7EXAMPLE/20260102/evil.example/sts/aws4_request", "is signed for an unknown Region"),
        ("ASIAIOSFODNN7EXAMPLE/20260102/eu-west-1@x/sts/aws4_request", "is signed for an unknown Region"),
    ],
)
def test_another_credential_scope_is_refused(credential: str, cause: str) -> None:
    assert refused(url({"X-Amz-Credential": credential})).startswith(cause)


@pytest.mark.parametrize("expires", ["0", "901", "9999999", "-1", "1.0", "+60", "060", "", " 60", "٦٠"])
def test_another_lifetime_is_refused(expires: str) -> None:
    refused(url({"X-Amz-Expires": expires}))


@pytest.mark.parametrize("expires", ["1", "900"])
def test_up_to_fifteen_minutes_is_allowed(expires: str) -> None:
    assert PresignedRequest.parse(url({"X-Amz-Expires": expires})).lifetime == timedelta(seconds=int(expires))


@pytest.mark.parametrize(
    "date",
    [
        "20260102T030400",
        "2026-01-02T03:04:00Z",
        "20260102t030400z",
        "2026012T034Z",
        "20261302T030400Z",
        "20260102T250400Z",
        "",
    ],
)
def test_another_date_is_refused(date: str) -> None:
    assert "X-Amz-Date" in refused(url({"X-Amz-Date": date}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Amz-Signature", "0123456789ABCDEF" * 4),
        ("X-Amz-Signature", "ab" * 31),
        ("X-Amz-Security-Token", ""),
        ("X-Amz-Security-Token", "a b"),
        ("X-Amz-Security-Token", "a\r\nHost: evil.example"),
        ("X-Amz-Security-Token", "a" * 6145),
    ],
)
def test_values_of_another_form_are_refused(name: str, value: str) -> None:
    assert refused(url({name: value})) == f"has an {name} of another form"


@pytest.mark.parametrize(
    "encoded", ["GetCaller%49dentity", "GetCallerIdentity%", "GetCallerIdentity%00", "GetCaller+Identity", "%ff", "é"]
)
def test_only_the_one_percent_encoding_is_read(encoded: str) -> None:
    refused(url().replace("Action=GetCallerIdentity", f"Action={encoded}"))


def test_lower_case_percent_encoding_is_refused() -> None:
    assert refused(url().replace("%2F", "%2f")) == "holds a value that is not percent-encoded as AWS does"


@PATIENT
@given(st.text(max_size=300))
def test_whatever_comes_is_read_or_refused(text: str) -> None:
    for candidate in (text, f"https://{HOST}/?{text}", f"{url()}{text}"):
        try:
            request = PresignedRequest.parse(candidate)
        except MalformedEvidence:
            continue
        assert candidate == url()
        assert request == PresignedRequest.parse(url())


@PATIENT
@given(st.sampled_from(list(PARAMETERS)), st.text(max_size=40))
def test_whatever_is_read_goes_out_to_sts_as_get_caller_identity(name: str, value: str) -> None:
    try:
        request = PresignedRequest.parse(url({name: value}))
    except (MalformedEvidence, UnicodeEncodeError):
        return
    parts = urlsplit(f"https://{request.host}{request.target}")
    assert (parts.netloc, parts.path, parts.fragment) == (HOST, "/", "")
    sent = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True)
    assert sorted(key for key, _ in sent) == sorted(PARAMETERS)
    assert dict(sent) == {**PARAMETERS, name: value}
