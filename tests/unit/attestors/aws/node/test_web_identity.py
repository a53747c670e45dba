"""The token that STS makes: asked for with this instance's credentials, of this Region, for this binding."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from attestors.aws.node import web_identity
from attestors.aws.node.credentials import RoleCredentials
from attestors.aws.node.web_identity import isolated_session, web_identity_token
from attestors.aws.partitions import parse_region
from attestors.aws.wire import audience
from attestors.contract import EvidenceUnavailable
from tests.support.silent_address import resolve, silent
from tests.unit.attestors.support import binding_for

_CREDENTIALS = RoleCredentials("ASIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG", "session/token+with=signs")
_REGION = parse_region("eu-central-1")
_BINDING = binding_for(provider="aws")
_TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOiJ4In0.c2lnbmF0dXJl"


@dataclass
class FakeSTS:
    """Gives one answer, and remembers what it was asked."""

    url: str = ""
    status: int = 200
    body: str = (
        '<GetWebIdentityTokenResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetWebIdentityTokenResult>'
        f"<WebIdentityToken>{_TOKEN}</WebIdentityToken><Expiration>2026-01-02T03:09:05Z</Expiration>"
        "</GetWebIdentityTokenResult></GetWebIdentityTokenResponse>"
    )
    asked: list[tuple[dict[str, str], dict[str, str]]] = field(default_factory=list)

    def refuse(self, status: int, code: str) -> None:
        """Answer with an error from now on."""
        self.status = status
        self.body = (
            f"<ErrorResponse><Error><Code>{code}</Code><Message>arn:aws:secret</Message></Error></ErrorResponse>"
        )


@pytest.fixture
def sts() -> Iterator[FakeSTS]:
    fake = FakeSTS()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            fake.asked.append(({name.lower(): value for name, value in self.headers.items()}, dict(parse_qsl(form))))
            self.send_response(fake.status)
            self.send_header("Content-Length", str(len(fake.body)))
            self.end_headers()
            self.wfile.write(fake.body.encode())

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = False
        fake.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield fake
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_identity, "ATTEMPTS", 1)


def ask(sts: FakeSTS) -> str:
    return web_identity_token(_CREDENTIALS, _REGION, _BINDING, endpoint=sts.url)


def refused(sts: FakeSTS, match: str) -> None:
    with pytest.raises(EvidenceUnavailable, match=match) as caught:
        ask(sts)
    assert "arn:aws" not in str(caught.value)


def test_token(sts: FakeSTS) -> None:
    assert ask(sts) == _TOKEN
    ((headers, form),) = sts.asked
    assert form == {
        "Action": "GetWebIdentityToken",
        "Version": "2011-06-15",
        "Audience.member.1": audience(_BINDING.value),
        "SigningAlgorithm": "RS256",
        "DurationSeconds": "300",
    }
    assert headers["x-amz-security-token"] == _CREDENTIALS.session_token
    assert "Credential=ASIAIOSFODNN7EXAMPLE/" in headers["authorization"]
    assert "/eu-central-1/sts/aws4_request" in headers["authorization"]


def test_surroundings_have_no_say(sts: FakeSTS, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither profiles nor variables of whoever runs this, of which kubelets and cloud-init have some."""
    (tmp_path / "config").write_text("[default]\nregion = us-east-1\nendpoint_url = http://127.0.0.1:9\n")
    for name, value in {
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "config"),
        "AWS_PROFILE": "nobody",
        "AWS_DEFAULT_REGION": "us-west-2",
        "AWS_ACCESS_KEY_ID": "AKIAOTHER",
        "AWS_SECRET_ACCESS_KEY": "other",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ENDPOINT_URL_STS": "http://127.0.0.1:9",
        "AWS_CA_BUNDLE": str(tmp_path / "nothing"),
        "HTTP_PROXY": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    assert ask(sts) == _TOKEN
    assert "Credential=ASIAIOSFODNN7EXAMPLE/" in sts.asked[0][0]["authorization"]
    session = isolated_session()
    assert session.full_config == {"profiles": {}}
    assert session.get_config_variable("profile") is None
    assert session.get_config_variable("ca_bundle") is None


def test_silent_addresses_do_not_delay_the_next(sts: FakeSTS, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, "sts.example", *["::1"] * 4, "127.0.0.1")
    port = int(sts.url.rpartition(":")[2])
    sts.url = f"http://sts.example:{port}"
    with silent("::1", port):
        began = time.monotonic()
        assert ask(sts) == _TOKEN
        assert time.monotonic() - began < 10


def test_federation_is_not_enabled(sts: FakeSTS) -> None:
    for code in ("OutboundWebIdentityFederationDisabledException", "OutboundWebIdentityFederationDisabled"):
        sts.refuse(403, code)
        refused(sts, rf"\({code}\): enable outbound identity federation in the account .* or set proof to presigned$")


def test_role_may_not(sts: FakeSTS) -> None:
    sts.refuse(403, "AccessDenied")
    refused(sts, r"\(AccessDenied\): allow this instance's role sts:GetWebIdentityToken")


def test_other_refusals(sts: FakeSTS) -> None:
    sts.refuse(400, "ExpiredToken")
    refused(sts, r"^STS refuses a web identity token \(ExpiredToken\)$")
    sts.refuse(400, "with arn:aws in it")
    refused(sts, r"\(without a reason\)$")


def test_no_server(sts: FakeSTS) -> None:
    with pytest.raises(EvidenceUnavailable, match=r"^STS is unreachable at sts\.eu-central-1\.amazonaws\.com \(.*\)$"):
        web_identity_token(_CREDENTIALS, _REGION, _BINDING, endpoint="http://127.0.0.1:9")


@pytest.mark.parametrize("token", ["", "a.b", "a.b.c.d", "a.b.c d", "a..c", "a.b." + "c" * 20000])
def test_token_that_is_none(sts: FakeSTS, token: str) -> None:
    sts.body = sts.body.replace(_TOKEN, token)
    refused(sts, "returns an unusable web identity token")


@pytest.mark.parametrize("body", ["", "<html>", "<GetWebIdentityTokenResponse/>"])
def test_answer_that_is_none(sts: FakeSTS, body: str) -> None:
    sts.body = body
    refused(sts, "STS returns an unreadable answer:")
