"""The operator's kubeconfig and the Pod's service account.

Importing ``kubernetes`` takes more than a second, so the tests that do are slow.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from signer.kube.client import Client
from signer.kube.errors import Unauthorized
from signer.kube.management import (
    TOKEN_SECONDS,
    ManagementConfigurationRefused,
    RefreshingToken,
    management_connection,
)
from tests.unit.signer.kube.support import Authority, Pair, aiohttp_server, as_yaml, kubeconfig_document

PATH = "/api/v1/secrets"
CONTEXT = "c1-admin@c1"
"""Of the kubeconfigs here. The library reads those whose context is named, also if that is the current one."""


@pytest.fixture(autouse=True)
def no_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No kubeconfig and no Pod but the test's own; temporary files in a folder of the test."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return temporary


# The token source alone


class Fetches:
    def __init__(self) -> None:
        self.calls: list[bool] = []
        self.now = 0.0

    async def fetch(self, rejected: bool) -> str | None:
        self.calls.append(rejected)
        await asyncio.sleep(0)
        return f"token{len(self.calls)}"


async def test_a_token_is_fetched_again_after_its_time_and_after_a_401() -> None:
    fetches = Fetches()
    source = RefreshingToken(fetches.fetch, clock=lambda: fetches.now)
    assert [await source.token(), await source.token()] == ["token1", "token1"]
    fetches.now = TOKEN_SECONDS
    assert await source.token() == "token2"
    source.rejected()
    assert [await source.token(), await source.token()] == ["token3", "token3"]
    assert fetches.calls == [False, False, True]


async def test_calls_at_the_same_time_fetch_once() -> None:
    fetches = Fetches()
    source = RefreshingToken(fetches.fetch, clock=lambda: fetches.now)
    assert set(await asyncio.gather(*(source.token() for _ in range(10)))) == {"token1"}


async def test_a_failed_fetch_is_retried() -> None:
    results: list[str | Exception] = [Unauthorized("no"), "token"]

    async def fetch(rejected: bool) -> str | None:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    source = RefreshingToken(fetch)
    with pytest.raises(Unauthorized):
        await source.token()
    assert await source.token() == "token"


async def test_a_rejected_token_is_replaced_even_if_the_caller_is_cancelled() -> None:
    calls: list[bool] = []

    async def fetch(rejected: bool) -> str | None:
        calls.append(rejected)
        if calls == [False, True]:
            await asyncio.Event().wait()
        return f"token{len(calls)}"

    source = RefreshingToken(fetch)
    assert await source.token() == "token1"
    source.rejected()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await source.token()
    assert await source.token() == "token3"
    assert calls == [False, True, True]


def test_importing_the_module_does_not_import_kubernetes() -> None:
    code = "import sys, signer.kube.management; sys.exit('kubernetes' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# A kubeconfig that embeds its credential

IMPORTED = """
import asyncio, pathlib, sys
from signer.kube.management import management_connection
asyncio.run(management_connection(pathlib.Path(sys.argv[1])))
print(*sorted({"aiohttp", "kubernetes"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_an_embedded_credential_needs_no_library(authority: Authority, client_pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    embedded = _write(tmp_path / "embedded", kubeconfig_document(authority, client_pair))
    named = _write(tmp_path / "named", _with_user(authority, client_pair, {"tokenFile": "token"}))

    def imported_for(path: Path) -> str:
        command = [sys.executable, "-c", IMPORTED, str(path)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert imported_for(embedded) == ""
    assert imported_for(named) == "aiohttp kubernetes"


@pytest.mark.slow
@pytest.mark.parametrize(
    "given", [{"certificate"}, {"token"}, {"certificate", "token"}], ids=["certificate", "token", "both"]
)
async def test_an_embedded_credential_is_read_as_the_library_reads_it(
    authority: Authority, client_pair: Pair, tmp_path: Path, given: set[str]
) -> None:
    user = kubeconfig_document(authority, client_pair)["users"][0]["user"] if "certificate" in given else {}
    document = _with_user(authority, client_pair, user | ({"token": "secret"} if "token" in given else {}))
    document["clusters"][0]["cluster"]["tls-server-name"] = "kubernetes.example"
    path = _write(tmp_path / "config", document)
    ours, librarys = await management_connection(path), await management_connection(path, CONTEXT)
    assert ours.connection == librarys.connection
    assert (
        await ours.token_source.token()
        == await librarys.token_source.token()
        == ("secret" if "token" in given else None)
    )


@pytest.mark.slow
async def test_an_embedded_token_that_changes(authority: Authority, client_pair: Pair, tmp_path: Path) -> None:
    path = _write(tmp_path / "config", _with_user(authority, client_pair, {"token": "first"}))
    access = await management_connection(path)
    assert (access.connection.bearer_token, await access.token_source.token()) == (None, "first")

    async def token_after(user: dict[str, Any]) -> str | None:
        _write(path, _with_user(authority, client_pair, user))
        access.token_source.rejected()
        return await access.token_source.token()

    assert await token_after({"token": "second"}) == "second"
    (tmp_path / "token").write_text("third")
    assert await token_after({"tokenFile": "token"}) == "third"
    with pytest.raises(Unauthorized, match="user name and password are not supported"):
        await token_after({"username": "one", "password": "two"})
    path.unlink()
    with pytest.raises(Unauthorized, match="no such file"):
        await access.token_source.token()


async def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    """Nobody writes to it, so that reading would not end."""
    os.mkfifo(tmp_path / "config")
    with pytest.raises(ManagementConfigurationRefused, match="no such file"):
        await management_connection(tmp_path / "config")


# With kubernetes.aio.config

NOBODY = """
import asyncio, pathlib, pwd, sys
def unknown(number):
    raise KeyError(number)
pwd.getpwuid = unknown
from signer.kube.management import ManagementConfigurationRefused, management_connection
try:
    access = asyncio.run(management_connection(pathlib.Path(sys.argv[1]) if sys.argv[1:] else None))
    print(access.connection.server)
except ManagementConfigurationRefused as error:
    print(error)
"""


@pytest.mark.slow
def test_a_user_that_has_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Authority, client_pair: Pair
) -> None:
    """A numeric user that no list of users contains, and no HOME: the library cannot even be imported there."""
    monkeypatch.delenv("HOME")
    path = _write(tmp_path / "kubeconfig", kubeconfig_document(authority, client_pair))

    def run(*arguments: str) -> str:
        command = [sys.executable, "-c", NOBODY, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert run(str(path)).startswith("https://")
    assert run() == "kubeconfig /.kube/config: no such file; give --kubeconfig, or set KUBECONFIG"


@pytest.mark.slow
async def test_no_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Authority, client_pair: Pair
) -> None:
    """A read-only root file system."""
    path = _write(tmp_path / "kubeconfig", kubeconfig_document(authority, client_pair))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "nowhere")])
    assert (await management_connection(path)).connection.client_key == client_pair.key
    with pytest.raises(
        ManagementConfigurationRefused, match=r"none can be written: make /tmp writable, or name .* TMPDIR$"
    ):
        await management_connection(path, CONTEXT)


def _write(path: Path, document: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(as_yaml(document))
    return path


def _with_user(authority: Authority, pair: Pair, user: dict[str, Any]) -> dict[str, Any]:
    document = kubeconfig_document(authority, pair)
    document["users"][0]["user"] = user
    return document


@pytest.mark.slow
async def test_embedded_certificates_leave_no_file(
    authority: Authority, client_pair: Pair, tmp_path: Path, no_operator: Path
) -> None:
    path = _write(tmp_path / "config", kubeconfig_document(authority, client_pair))
    access = await management_connection(path)
    assert access.connection.server == "https://c1.example:6443"
    assert access.connection.certificate_authority == authority.certificate
    assert access.connection.client_certificate == client_pair.certificate
    assert access.connection.client_key == client_pair.key
    assert await access.token_source.token() is None
    assert os.listdir(no_operator) == []
    Client(access.connection, token_source=access.token_source)


def _with_two_contexts(authority: Authority, pair: Pair) -> dict[str, Any]:
    document = kubeconfig_document(authority, pair)
    document["clusters"].append({"name": "other", "cluster": {"server": "https://other.example:6443"}})
    user = document["users"][0]["name"]
    document["contexts"].append({"name": "other", "context": {"cluster": "other", "user": user}})
    return document


@pytest.mark.slow
async def test_a_named_context(
    authority: Authority, client_pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a Pod: a context is never one of its service account."""
    path = _write(tmp_path / "config", _with_two_contexts(authority, client_pair))
    assert (await management_connection(path)).connection.server == "https://c1.example:6443"
    assert (await management_connection(path, "other")).connection.server == "https://other.example:6443"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    _write(tmp_path / ".kube" / "config", _with_two_contexts(authority, client_pair))
    assert (await management_connection(None, "other")).connection.server == "https://other.example:6443"


async def test_a_context_that_is_not_there(authority: Authority, client_pair: Pair, tmp_path: Path) -> None:
    path = _write(tmp_path / "config", _with_two_contexts(authority, client_pair))
    with pytest.raises(ManagementConfigurationRefused, match="no context nowhere: `kubectl config get-contexts`"):
        await management_connection(path, "nowhere")


@pytest.mark.slow
async def test_relative_files_and_a_token_file_that_changes(
    authority: Authority, client_pair: Pair, tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    (tmp_path / "token").write_text("first\n")
    document = _with_user(authority, client_pair, {"tokenFile": "token"})
    document["clusters"][0]["cluster"] = {"server": "https://c1.example/", "certificate-authority": "ca.pem"}
    access = await management_connection(_write(tmp_path / "config", document))
    assert access.connection.server == "https://c1.example"
    assert await access.token_source.token() == "first"
    (tmp_path / "token").write_text("second\n")
    access.token_source.rejected()
    assert await access.token_source.token() == "second"


def _plugin(tmp_path: Path, **status: str) -> dict[str, Any]:
    """An exec stanza whose program counts its runs."""
    program = tmp_path / "plugin"
    runs = tmp_path / "runs"
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    program.write_text(
        f"#!/bin/sh\necho run >> {runs}\nn=$(wc -l < {runs})\n"
        f"[ -e {tmp_path}/broken ] && exit 1\necho '{json.dumps(answer)}' | sed s/@/$n/\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program)}}


@pytest.mark.slow
@pytest.mark.parametrize("expiry", [{}, {"expirationTimestamp": "2999-01-01T00:00:00Z"}])
async def test_a_credential_plugin_runs_again_only_after_a_401(
    authority: Authority, client_pair: Pair, tmp_path: Path, expiry: dict[str, str]
) -> None:
    document = _with_user(authority, client_pair, _plugin(tmp_path, token="token@", **expiry))
    access = await management_connection(_write(tmp_path / "config", document))
    source = access.token_source
    assert isinstance(source, RefreshingToken)
    assert await source.token() == "token1"
    source._fetched_at = None
    assert await source.token() == "token1"
    source.rejected()
    assert await source.token() == "token2"
    (tmp_path / "broken").touch()
    source.rejected()
    for _ in range(2):
        with pytest.raises(Unauthorized, match="gave no credential: exec: process returned 1"):
            await source.token()
    (tmp_path / "broken").unlink()
    assert await source.token() == "token5"


async def test_a_rejection_counts_until_a_token_has_been_fetched_after_it() -> None:
    told: list[bool] = []
    gate = asyncio.Event()

    async def fetch(rejected: bool) -> str:
        told.append(rejected)
        await gate.wait()
        return f"token{len(told)}"

    source = RefreshingToken(fetch, clock=lambda: 0.0)
    source.rejected()
    cancelled = asyncio.create_task(source.token())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    fetching = asyncio.create_task(source.token())
    await asyncio.sleep(0)
    source.rejected()  # perhaps the token that is being fetched
    gate.set()
    assert await fetching == "token2"
    assert await source.token() == "token3"
    assert await source.token() == "token3"
    assert told == [True, True, True]


@pytest.mark.slow
async def test_an_expired_token_of_a_plugin_is_replaced(
    authority: Authority, client_pair: Pair, tmp_path: Path
) -> None:
    user = _plugin(tmp_path, token="token@", expirationTimestamp="2020-01-01T00:00:00Z")
    access = await management_connection(_write(tmp_path / "config", _with_user(authority, client_pair, user)))
    assert await access.token_source.token() == "token2"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("#!/bin/sh\necho 'log in again' >&2\nexit 1\n", "process returned 1. b'log in again'"),
        ("", "Exec format error"),
    ],
    ids=["ends", "is none"],
)
async def test_a_failing_credential_plugin_is_reported_with_its_log(
    authority: Authority,
    client_pair: Pair,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    program: str,
    said: str,
) -> None:
    user = _plugin(tmp_path, token="token@")
    (tmp_path / "plugin").write_text(program)
    path = _write(tmp_path / "config", _with_user(authority, client_pair, user))
    with pytest.raises(
        ManagementConfigurationRefused, match=f"^kubeconfig {path}: its credential plugin gave no credential: .*{said}"
    ):
        await management_connection(path)
    assert not caplog.records, "it would be said twice"


@pytest.mark.slow
async def test_a_pod_s_token_is_read_again(
    authority: Authority, tls: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubernetes.aio.config import incluster_config

    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first")
    ca.write_bytes(authority.certificate)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(ca))

    async def guarded(request: web.Request) -> web.Response:
        if request.headers["Authorization"] != f"Bearer {token.read_text()}":
            return web.Response(status=401)
        return web.json_response({"ok": True})

    async with aiohttp_server(authority, guarded, context=tls) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        access = await management_connection(None)
        async with Client(access.connection, token_source=access.token_source) as client:
            assert await client.get(PATH) == {"ok": True}
            token.write_text("second")
            with pytest.raises(Unauthorized):
                await client.get(PATH)
            assert await client.get(PATH) == {"ok": True}
            token.unlink()
            access.token_source.rejected()
            with pytest.raises(Unauthorized):
                await client.get(PATH)


@pytest.mark.slow
async def test_the_source_of_the_configuration(
    authority: Authority, client_pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named(name: str) -> dict[str, Any]:
        document = kubeconfig_document(authority, client_pair)
        document["clusters"][0]["cluster"]["server"] = f"https://{name}.example"
        return document

    async def server(path: Path | None) -> str:
        return (await management_connection(path)).connection.server

    with pytest.raises(ManagementConfigurationRefused, match="no such file"):
        await server(None)
    _write(tmp_path / "home" / ".kube" / "config", named("home"))
    assert await server(None) == "https://home.example"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    for unset in (None, ""):
        if unset is not None:
            monkeypatch.setenv("KUBECONFIG", unset)
        with pytest.raises(ManagementConfigurationRefused, match="in-cluster"):
            await server(None)
    monkeypatch.setenv("KUBECONFIG", str(_write(tmp_path / "environment", named("environment"))))
    assert await server(None) == "https://environment.example"
    assert await server(_write(tmp_path / "given", named("given"))) == "https://given.example"
    with pytest.raises(ManagementConfigurationRefused, match="no such file"):
        await server(tmp_path / "missing")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        ({"server": "http://c1.example"}, {}, "https"),
        ({"server": "https://c1.example:65536"}, {}, "https://host"),
        ({"server": "https://user@c1.example"}, {}, "https://host"),
        ({"insecure-skip-tls-verify": True}, {}, "insecure-skip-tls-verify"),
        ({"proxy-url": "http://proxy.example"}, {}, "proxy-url"),
        ({}, {"username": "a", "password": "b"}, "password"),
        ({"certificate-authority-data": None, "certificate-authority": "missing.pem"}, {}, "missing.pem"),
    ],
)
async def test_unsupported_features_are_refused(
    authority: Authority, client_pair: Pair, tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], message: str
) -> None:
    document = _with_user(authority, client_pair, user)
    target = document["clusters"][0]["cluster"]
    target.update(cluster)
    document["clusters"][0]["cluster"] = {key: value for key, value in target.items() if value is not None}
    path = _write(tmp_path / "config", document)
    with pytest.raises(ManagementConfigurationRefused, match=f"^kubeconfig {path}: .*{message}"):
        await management_connection(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is not a kubeconfig"),
        (b"[]", "it is not a kubeconfig"),
        (b"a: [", r"it is not YAML at line 1, column 5$"),
        (b"\xff\xfe", "it is not UTF-8 text$"),
        (b"a: \0", "it is not YAML$"),
        (b"a: " + b"[" * 10_000, "it is nested too deeply$"),
        (b"a: " + b"{a: " * 10_000, "it is nested too deeply$"),
        (b"a: 2024-99-99", r"it is not a kubeconfig \(ValueError\)$"),
        (b"a: 1" + b":59" * 400 + b".5", r"it is not a kubeconfig \(OverflowError\)$"),
        (b"apiVersion: v1", "Invalid kube-config file. Expected key current-context"),
        (b"current-context: x\ncontexts: {}\n", "Invalid kube-config"),
    ],
)
async def test_a_malformed_file_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(ManagementConfigurationRefused, match=f"^kubeconfig {path}: .*{why}") as refused:
        await management_connection(path)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("cluster", "the certificate authority is not a PEM bundle"),
        ("user", "the client certificate and key cannot be"),
    ],
)
async def test_unusable_certificates_are_refused(
    authority: Authority, client_pair: Pair, tmp_path: Path, where: str, words: str
) -> None:
    document = kubeconfig_document(authority, client_pair)
    garbage = base64.b64encode(b"garbage").decode()
    if where == "cluster":
        document["clusters"][0]["cluster"]["certificate-authority-data"] = garbage
    else:
        document["users"][0]["user"]["client-certificate-data"] = garbage
    with pytest.raises(ManagementConfigurationRefused, match=f"the management cluster: {words}"):
        await management_connection(_write(tmp_path / "config", document))


@pytest.mark.slow
async def test_an_unreadable_file_is_refused_with_a_clear_message(
    authority: Authority, client_pair: Pair, tmp_path: Path
) -> None:
    with pytest.raises(ManagementConfigurationRefused, match=f"^kubeconfig {tmp_path}: no such file; give --kube"):
        await management_connection(tmp_path)
    # As in a folder that may not be searched: root may.
    nowhere = tmp_path / ("x" * 300)
    with pytest.raises(ManagementConfigurationRefused, match=f"^kubeconfig {nowhere}: {nowhere}: File name too long$"):
        await management_connection(nowhere)
    with pytest.raises(ManagementConfigurationRefused, match=r"^kubeconfig ~nobody-of-that-name/config: no such file"):
        await management_connection(Path("~nobody-of-that-name/config"))
    document = kubeconfig_document(authority, client_pair)
    del document["clusters"][0]["cluster"]["certificate-authority-data"]
    document["clusters"][0]["cluster"]["certificate-authority"] = str(tmp_path)
    with pytest.raises(ManagementConfigurationRefused, match=f": {tmp_path}: Is a directory$|does not exist"):
        await management_connection(_write(tmp_path / "config", document))


@pytest.mark.slow
async def test_the_system_trust_store_replaces_a_missing_authority(
    authority: Authority, client_pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = ssl.create_default_context(cadata=authority.certificate.decode())
    monkeypatch.setattr(ssl, "create_default_context", lambda: system)
    document = _with_user(authority, client_pair, {"token": base64.b64encode(b"t").decode()})
    del document["clusters"][0]["cluster"]["certificate-authority-data"]
    access = await management_connection(_write(tmp_path / "config", document))
    assert ssl.PEM_cert_to_DER_cert(access.connection.certificate_authority.decode()) == ssl.PEM_cert_to_DER_cert(
        authority.certificate.decode()
    )
