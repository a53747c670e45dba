"""The one call for Google's certificates, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from attestors.clouds.calls import CloudCalls
from attestors.clouds.errors import CloudUnavailable
from attestors.gcp.certificate_service import certificate_service, maximum_age
from attestors.gcp.certificates import CERTIFICATES_URL, MAXIMUM_CERTIFICATES_BYTES, parse_certificates
from tests.support.fake_google import FakeGoogle, Fault, Service


@pytest.fixture(scope="module")
def running() -> Iterator[FakeGoogle]:
    with FakeGoogle() as google:
        yield google


@pytest.fixture
def google(running: FakeGoogle) -> Iterator[FakeGoogle]:
    yield running
    running.mend(Service.CERTIFICATES)


@pytest.fixture
def calls() -> Iterator[CloudCalls]:
    calls = CloudCalls(threads=1, waiting=0, deadline_seconds=5)
    yield calls
    calls.close()


@pytest.fixture
def impatient() -> Iterator[CloudCalls]:
    calls = CloudCalls(threads=1, waiting=0, deadline_seconds=0.2)
    yield calls
    calls.close()


def test_the_url_is_googles() -> None:
    assert CERTIFICATES_URL == "https://www.googleapis.com/oauth2/v1/certs"


async def test_the_certificates(google: FakeGoogle, calls: CloudCalls) -> None:
    answer = await certificate_service(google.pem_certificates_url, calls=calls)()
    assert set(parse_certificates(answer.body)) == {key.key_id for key in google.keys}
    assert answer.maximum_age == timedelta(seconds=19302)
    assert answer.age == timedelta()


async def test_how_long_a_cache_had_them(google: FakeGoogle, calls: CloudCalls) -> None:
    google.fail(Service.CERTIFICATES, Fault.status(200, "{}", {"Cache-Control": "max-age=60", "Age": "45"}))
    answer = await certificate_service(google.pem_certificates_url, calls=calls)()
    assert (answer.maximum_age, answer.age) == (timedelta(seconds=60), timedelta(seconds=45))


@pytest.mark.parametrize(
    ("fault", "part"),
    [
        (Fault.status(500), "answers with status 500"),
        (Fault.status(404), "answers with status 404"),
        (Fault.status(204), "answers with status 204"),
        (Fault.redirect("https://example.com/certs"), "answers with a redirect"),
        (Fault.endless(), f"more than {MAXIMUM_CERTIFICATES_BYTES} bytes"),
        (Fault.breaks_off(), "is unreachable, or closed the connection"),
    ],
    ids=["500", "404", "204", "redirect", "endless", "connection closed"],
)
async def test_what_is_an_outage(google: FakeGoogle, calls: CloudCalls, fault: Fault, part: str) -> None:
    google.fail(Service.CERTIFICATES, fault)
    with pytest.raises(CloudUnavailable, match=r"Google's certificates \(www.googleapis.com\): .*" + part):
        await certificate_service(google.pem_certificates_url, calls=calls)()


@pytest.mark.parametrize("fault", [Fault.hangs(), Fault.dribbles()], ids=["hangs", "dribbles"])
async def test_what_is_too_slow(google: FakeGoogle, impatient: CloudCalls, fault: Fault) -> None:
    google.fail(Service.CERTIFICATES, fault)
    with pytest.raises(CloudUnavailable, match="did not answer in time"):
        await certificate_service(google.pem_certificates_url, calls=impatient)()


async def test_throttling_says_when_to_come_again(google: FakeGoogle, calls: CloudCalls) -> None:
    google.fail(Service.CERTIFICATES, Fault.throttled("33"))
    with pytest.raises(CloudUnavailable) as found:
        await certificate_service(google.pem_certificates_url, calls=calls)()
    assert found.value.retry_after == timedelta(seconds=33)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("public, max-age=19302, must-revalidate, no-transform", 19302),
        ("MAX-AGE=5", 5),
        ("max-age=5, max-age=5", 5),
        ("max-age=5, max-age=6", 0),
        ("max-age=-5", 0),
        ("max-age=5.5", 0),
        ('max-age="5"', 0),
        ("max-age=99999999999999999999", 0),
        ("max-age", 0),
        ("s-maxage=5", 0),
        ("max-age=5, no-store", 0),
        ("no-cache, max-age=5", 0),
        ("", 0),
    ],
)
def test_cache_control(header: str, seconds: int) -> None:
    assert maximum_age({"Cache-Control": header}) == timedelta(seconds=seconds)


def test_no_cache_control() -> None:
    assert maximum_age({}) == timedelta()
