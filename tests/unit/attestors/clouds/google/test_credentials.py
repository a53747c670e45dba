from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from attestors.clouds.calls import Deadline
from attestors.clouds.errors import CloudError, CloudRefused, CloudUnavailable
from attestors.clouds.exchange import Exchange
from attestors.clouds.google.credentials import SCOPES, GoogleCredentials
from tests.support.fake_google import FakeGoogle, FakeInstance, Fault, Service
from tests.unit.attestors.clouds.google.support import Clock


@pytest.fixture
def exchange() -> Iterator[Exchange]:
    opened = Exchange()
    yield opened
    opened.close()


def deadline(seconds: float = 10.0) -> Deadline:
    return Deadline("cloud", seconds)


def write(folder: Path, document: object) -> str:
    path = folder / "credentials.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def test_a_service_accounts_key(google: FakeGoogle, exchange: Exchange, tmp_path: Path) -> None:
    token = GoogleCredentials(google.write_account_key(tmp_path)).token(exchange, deadline())
    assert google.accounts.knows(token.text)
    assert token.text not in repr(token)


def test_workload_identity_federation_with_a_token_in_a_file(
    google: FakeGoogle, exchange: Exchange, tmp_path: Path
) -> None:
    token = GoogleCredentials(google.write_federation(tmp_path)).token(exchange, deadline())
    assert google.accounts.knows(token.text)


def test_the_file_that_the_environment_names(google: FakeGoogle, exchange: Exchange, tmp_path: Path) -> None:
    environment = {"GOOGLE_APPLICATION_CREDENTIALS": google.write_account_key(tmp_path)}
    assert GoogleCredentials(environment=environment).token(exchange, deadline()).text
    with pytest.raises(CloudRefused, match="credentialsFile"):
        GoogleCredentials("/nowhere", environment=environment).token(exchange, deadline())


@pytest.fixture
def on_compute_engine(google: FakeGoogle) -> Iterator[FakeGoogle]:
    """``GCE_METADATA_HOST`` is set when google-auth is imported: it reads it then, and keeps it where it likes."""
    from google.auth.compute_engine import _metadata

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GCE_METADATA_HOST", google.metadata_of(FakeInstance()).removeprefix("http://"))
        importlib.reload(_metadata)
        yield google
    importlib.reload(_metadata)


def test_the_metadata_server(on_compute_engine: FakeGoogle, exchange: Exchange) -> None:
    token = GoogleCredentials(environment={}).token(exchange, deadline())
    assert on_compute_engine.accounts.knows(token.text)
    asked = on_compute_engine.seen(Service.METADATA)
    assert any(SCOPES[0].rpartition("/")[2] in one.query for one in asked)


def test_the_metadata_server_is_away(on_compute_engine: FakeGoogle, exchange: Exchange) -> None:
    on_compute_engine.fail(Service.METADATA, Fault.status(503))
    with pytest.raises(CloudUnavailable, match="Google's credentials service: answers 503"):
        GoogleCredentials(environment={}).token(exchange, deadline())
    assert on_compute_engine.counts()[Service.METADATA] == 1, "google-auth's own patience is not ours"


@pytest.mark.parametrize(
    ("lifetime", "later", "fetched"),
    [(3600, 3300.0, 1), (3600, 3361.0, 2), (86400, 3361.0, 2), (120, 0.0, 2)],
    ids=["fresh", "old", "claims-to-last-a-day", "short"],
)
def test_a_token_is_used_until_minutes_before_its_end(
    google: FakeGoogle, exchange: Exchange, tmp_path: Path, lifetime: int, later: float, fetched: int
) -> None:
    google.accounts.lifetime_seconds = lifetime
    clock = Clock()
    credentials = GoogleCredentials(google.write_account_key(tmp_path), clock=clock)
    credentials.token(exchange, deadline())
    clock.now += later
    credentials.token(exchange, deadline())
    assert google.counts()[Service.TOKEN] == fetched


def test_many_threads_fetch_one_token(google: FakeGoogle, exchange: Exchange, tmp_path: Path) -> None:
    credentials = GoogleCredentials(google.write_account_key(tmp_path))
    start = threading.Barrier(8)

    def fetch(_: int) -> str:
        start.wait(10)
        return credentials.token(exchange, deadline()).text

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(fetch, range(8)))) == 1
    assert google.counts()[Service.TOKEN] == 1


@pytest.mark.slow
def test_waiting_for_another_threads_fetch_ends_at_the_deadline(
    google: FakeGoogle, exchange: Exchange, tmp_path: Path
) -> None:
    google.fail(Service.TOKEN, Fault.hangs())
    credentials = GoogleCredentials(google.write_account_key(tmp_path))
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(credentials.token, exchange, deadline(1.0))
        while not google.counts()[Service.TOKEN]:
            assert not other.done()
        with pytest.raises(CloudUnavailable, match="Google's credentials service: did not answer in time"):
            credentials.token(exchange, deadline(0.05))
        assert isinstance(other.exception(10), CloudUnavailable)


def test_a_failure_is_cached_for_a_short_time(google: FakeGoogle, exchange: Exchange, tmp_path: Path) -> None:
    clock = Clock()
    credentials = GoogleCredentials(google.write_account_key(tmp_path), clock=clock)
    google.fail(Service.TOKEN, Fault.status(503, "", {"Retry-After": "33"}))
    for _ in range(5):
        with pytest.raises(CloudUnavailable, match="answers 503") as caught:
            credentials.token(exchange, deadline())
        assert caught.value.retry_after == timedelta(seconds=33)
    assert google.counts()[Service.TOKEN] == 1
    google.mend(Service.TOKEN)
    clock.now += 5.0
    assert credentials.token(exchange, deadline()).text


def test_a_new_key_in_the_file_is_used_without_a_restart(
    google: FakeGoogle, exchange: Exchange, tmp_path: Path
) -> None:
    clock = Clock()
    credentials = GoogleCredentials(google.write_account_key(tmp_path), clock=clock)
    first = credentials.token(exchange, deadline())
    google.accounts.change_key()
    credentials.discard(first)
    with pytest.raises(CloudRefused, match=r"credentials are rejected \(invalid_grant\)$"):
        credentials.token(exchange, deadline())
    google.write_account_key(tmp_path)
    clock.now += 5.0
    assert credentials.token(exchange, deadline()).text != first.text


def test_only_the_token_that_was_refused_is_discarded(google: FakeGoogle, exchange: Exchange, tmp_path: Path) -> None:
    credentials = GoogleCredentials(google.write_account_key(tmp_path))
    first = credentials.token(exchange, deadline())
    credentials.discard(first)
    second = credentials.token(exchange, deadline())
    credentials.discard(first)
    assert credentials.token(exchange, deadline()) is second


@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        (Fault.throttled("9"), CloudUnavailable, "answers 429"),
        (Fault.redirect("https://example.com/"), CloudUnavailable, "answers with a redirect"),
        (Fault.endless(), CloudUnavailable, "answers with more than"),
        (Fault.breaks_off(), CloudUnavailable, "is unreachable"),
        (Fault.status(400, '{"error":"invalid_scope"}'), CloudRefused, "are rejected (invalid_scope)"),
        (Fault.status(400, '{"error":"secret detail","error_description":"x"}'), CloudRefused, "are rejected"),
        (Fault.status(400, "garbage"), CloudRefused, "are rejected"),
        (Fault.status(200, "{}"), CloudRefused, "are rejected"),
        (Fault.status(200, '{"access_token":"a\\nb","expires_in":3600}'), CloudUnavailable, "returns an invalid token"),
        (Fault.status(200, '{"access_token":7,"expires_in":3600}'), CloudUnavailable, "returns an invalid token"),
        (Fault.status(200, '{"access_token":"a","expires_in":"soon"}'), CloudRefused, "are unusable"),
    ],
    ids=range(11),
)
def test_what_the_token_endpoint_may_do_wrong(
    google: FakeGoogle,
    exchange: Exchange,
    tmp_path: Path,
    fault: Fault,
    kind: type[CloudError],
    text: str,
) -> None:
    google.fail(Service.TOKEN, fault)
    with pytest.raises(kind) as caught:
        GoogleCredentials(google.write_account_key(tmp_path)).token(exchange, deadline())
    assert text in str(caught.value)
    assert "secret" not in str(caught.value)
    assert google.counts()[Service.TOKEN] == 1


def test_a_pool_that_does_not_trust_the_token(google: FakeGoogle, exchange: Exchange, tmp_path: Path) -> None:
    path = google.write_federation(tmp_path)
    google.accounts.subject_token = "another"
    with pytest.raises(CloudRefused, match="are rejected"):
        GoogleCredentials(path).token(exchange, deadline())


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda key: key.update(type="authorized_user"), "must name a service account's key"),
        (lambda key: key.update(type="impersonated_service_account"), "must name a service account's key"),
        (lambda key: key.update(type="external_account_authorized_user"), "must name a service account's key"),
        (lambda key: key.update(type=["service_account"]), "must name a service account's key"),
        (lambda key: key.pop("type"), "must name a service account's key"),
        (lambda key: key.pop("private_key"), "credentials are rejected"),
        (lambda key: key.update(private_key="-----BEGIN PRIVATE KEY-----\nsecret\n"), "are unusable"),
        (lambda key: key.update(token_uri="http://oauth2.example.com/token"), "a URL in the credentials file"),
        (lambda key: key.update(token_uri="file:///etc/passwd"), "a URL in the credentials file"),
    ],
    ids=range(9),
)
def test_files_that_are_not_taken(
    google: FakeGoogle, exchange: Exchange, tmp_path: Path, change: Change, text: str
) -> None:
    document = google.accounts.key_document("http://127.0.0.1:1")
    change(document)
    with pytest.raises(CloudRefused) as caught:
        GoogleCredentials(write(tmp_path, document)).token(exchange, deadline())
    assert text in str(caught.value)
    assert "PRIVATE" not in str(caught.value)
    assert not google.counts()


@pytest.mark.parametrize(
    "source",
    [
        {"executable": {"command": "/bin/true"}},
        {"file": "/tmp/token", "executable": {"command": "/bin/true"}},
        {"environment_id": "aws1", "url": "http://169.254.169.254/latest"},
        {"certificate": {"use_default_certificate_config": True}},
        {"file": "/tmp/token", "url": "https://example.com/"},
        {},
        "text",
        ["file"],
    ],
    ids=range(8),
)
def test_a_federation_that_runs_a_command_or_reads_elsewhere_is_not_taken(
    google: FakeGoogle, exchange: Exchange, tmp_path: Path, source: object
) -> None:
    document = google.accounts.federation_document("http://127.0.0.1:1", "/tmp/token")
    with pytest.raises(CloudRefused, match="supported only with a file or a url as its source"):
        GoogleCredentials(write(tmp_path, {**document, "credential_source": source})).token(exchange, deadline())


@pytest.mark.parametrize("content", ["", "[]", '{"type":"a","type":"b"}', "{" + " " * 70_000 + "}"], ids=range(4))
def test_a_file_that_cannot_be_read(exchange: Exchange, tmp_path: Path, content: str) -> None:
    for path in (write(tmp_path, content), str(tmp_path), str(tmp_path / "missing")):
        with pytest.raises(CloudRefused, match="credentialsFile names is unreadable, or not a JSON") as caught:
            GoogleCredentials(path).token(exchange, deadline())
        assert str(tmp_path) not in str(caught.value)


def test_a_file_is_bounded(google: FakeGoogle, exchange: Exchange, tmp_path: Path) -> None:
    document = Path(google.write_account_key(tmp_path)).read_text()
    with pytest.raises(CloudRefused, match="is unreadable,"):
        GoogleCredentials(write(tmp_path, document + " " * 70_000)).token(exchange, deadline())


def test_a_federations_token_does_not_go_to_a_plain_address(
    google: FakeGoogle, exchange: Exchange, tmp_path: Path
) -> None:
    document = json.loads(Path(google.write_federation(tmp_path)).read_text())
    document["token_url"] = "http://sts.example.com/v1/token"
    with pytest.raises(CloudRefused, match="a URL in the credentials file"):
        GoogleCredentials(write(tmp_path, document)).token(exchange, deadline())
