from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest

from attestors.clouds.calls import CloudCalls
from attestors.clouds.errors import CloudObjectMissing, CloudRefused, CloudUnavailable
from attestors.clouds.google import (
    ComputeEngine,
    GoogleAccess,
    Instance,
    InvalidGCEName,
    NoKey,
    compute_engine,
)
from attestors.clouds.google import compute as compute_module
from attestors.clouds.urls import InvalidURL
from tests.support.fake_google import FakeGoogle, Fault, Service
from tests.unit.attestors.clouds.google.support import INSTANCE, WHERE, Clock, asking

NAME = INSTANCE.name
QUOTA = '{"error":{"code":403,"errors":[{"reason":"rateLimitExceeded"}]}}'
FORBIDDEN = '{"error":{"code":403,"message":"secret-detail-of-the-answer","errors":[{"reason":"forbidden"}]}}'


async def test_an_instance_by_its_name_and_by_its_number(google: FakeGoogle, compute: ComputeEngine) -> None:
    google.add(INSTANCE)
    found = await compute.instance(*WHERE, NAME)
    assert found == Instance(
        project=INSTANCE.project,
        zone=INSTANCE.zone,
        name=NAME,
        instance_id=INSTANCE.instance_id,
        status="RUNNING",
        created=INSTANCE.created,
        hostname="",
        internal_addresses=(ip_address("10.132.0.7"), ip_address("fd20::7")),
        external_addresses=(ip_address("203.0.113.9"),),
    )
    assert found.running
    assert await compute.instance(*WHERE, INSTANCE.instance_id) == found


async def test_a_domain_scoped_project_a_host_name_and_another_state(
    google: FakeGoogle, compute: ComputeEngine
) -> None:
    added = google.add(replace(INSTANCE, project="example.com:web", hostname="n1.example.com", status="TERMINATED"))
    found = await compute.instance("example.com:web", added.zone, NAME)
    assert (found.hostname, found.running) == ("n1.example.com", False)


async def test_metadata_which_may_hold_secrets_is_not_asked_for(google: FakeGoogle, compute: ComputeEngine) -> None:
    google.add(INSTANCE)
    await compute.instance(*WHERE, NAME)
    (seen,) = google.seen(Service.COMPUTE)
    assert seen.query.startswith("fields=")
    assert "metadata" not in seen.query


async def test_an_instance_that_is_not_there(google: FakeGoogle, compute: ComputeEngine) -> None:
    google.add(INSTANCE)
    for where in ((INSTANCE.project, INSTANCE.zone, "worker-2"), (INSTANCE.project, "europe-west1-c", NAME)):
        with pytest.raises(CloudObjectMissing, match="there is no instance"):
            await compute.instance(*where)
    with pytest.raises(CloudObjectMissing, match="there is no instance with ID 1"):
        await compute.shielded_instance_identity(*WHERE, "1")


async def test_the_token_is_sent_and_asked_for_once(google: FakeGoogle, compute: ComputeEngine) -> None:
    google.add(INSTANCE)
    await compute.instance(*WHERE, NAME)
    await compute.instance_now(*WHERE, NAME)
    assert google.counts() == {Service.TOKEN: 1, Service.COMPUTE: 2}


async def test_a_token_that_was_revoked_is_replaced_once(google: FakeGoogle, compute: ComputeEngine) -> None:
    google.add(INSTANCE)
    await compute.instance_now(*WHERE, NAME)
    google.accounts.revoke_all()
    assert (await compute.instance_now(*WHERE, NAME)).name == NAME
    google.fail(Service.COMPUTE, Fault.status(401, "{}"))
    before = google.counts()[Service.COMPUTE]
    with pytest.raises(CloudRefused, match="rejects the controller's credentials in a call"):
        await compute.instance_now(*WHERE, NAME)
    assert google.counts()[Service.COMPUTE] == before + 2


async def test_answers_are_kept_for_seconds(google: FakeGoogle, access: GoogleAccess) -> None:
    google.add(INSTANCE)
    clock = Clock()
    with asking(access, clock=clock) as compute:
        first = await asyncio.gather(*(compute.instance(*WHERE, NAME) for _ in range(20)))
        google.add(replace(INSTANCE, status="STOPPING"))
        assert (await compute.instance(*WHERE, NAME)).running
        assert google.counts()[Service.COMPUTE] == 1
        assert not (await compute.instance_now(*WHERE, NAME)).running
        clock.now += 5.0
        assert not (await compute.instance(*WHERE, NAME)).running
    assert set(first) == {first[0]}


async def test_an_outage_does_not_cause_a_call_per_request(google: FakeGoogle, compute: ComputeEngine) -> None:
    google.fail(Service.COMPUTE, Fault.status(503))
    for _ in range(5):
        with pytest.raises(CloudUnavailable):
            await compute.instance(*WHERE, NAME)
    assert google.counts()[Service.COMPUTE] == 1


@pytest.mark.parametrize(
    ("fault", "text", "seconds"),
    [
        (Fault.status(500), "answers 500", 10),
        (Fault.status(503, "", {"Retry-After": "30"}), "answers 503", 30),
        (Fault.throttled("7"), "answers 429", 7),
        (Fault.throttled("soon"), "answers 429", 10),
        (Fault.status(403, QUOTA), "a quota of requests is exhausted", 60),
        (Fault.status(400, "{}"), "answers 400", 10),
        (Fault.redirect("https://example.com/"), "answers with a redirect, which is never followed", 10),
        (Fault.redirect("/compute/v1/elsewhere"), "answers with a redirect, which is never followed", 10),
        (Fault.content(b"<html>log in</html>", "text/html"), "is unusable: not JSON", 10),
        (Fault.content(b"[]"), "is unusable: not a JSON object", 10),
        (Fault.content(b'{"kind":"compute#disk"}'), "is unusable: not a compute#instance", 10),
        (Fault.content(b'{"kind":"compute#instance","kind":"compute#instance"}'), "a key is repeated", 10),
        (Fault.content(b" " * 1_048_577), "answers with more than 1048576 bytes", 10),
        (Fault.endless(), "answers with more than 1048576 bytes", 10),
        (Fault.breaks_off(), "is unreachable, or closed the connection", 10),
    ],
    ids=[
        "500",
        "503",
        "429",
        "429-without-a-time",
        "quota",
        "400",
        "redirect",
        "redirect-to-itself",
        "html",
        "list",
        "another-kind",
        "repeated-key",
        "too-large",
        "endless",
        "breaks-off",
    ],
)
async def test_an_outage_makes_a_request_wait_and_names_the_service(
    google: FakeGoogle, compute: ComputeEngine, fault: Fault, text: str, seconds: int
) -> None:
    google.add(INSTANCE)
    google.fail(Service.COMPUTE, fault)
    with pytest.raises(CloudUnavailable, match=r"^Google Compute Engine: ") as caught:
        await compute.instance(*WHERE, NAME)
    assert text in str(caught.value)
    assert caught.value.retry_after == timedelta(seconds=seconds)
    assert google.counts()[Service.COMPUTE] == 1, "not asked again, and no redirect followed"


async def test_compressed_answers_are_refused(google: FakeGoogle, compute: ComputeEngine) -> None:
    google.fail(Service.COMPUTE, Fault.status(200, "{}", {"Content-Encoding": "br"}))
    with pytest.raises(CloudUnavailable, match="answers compressed"):
        await compute.instance(*WHERE, NAME)
    assert google.seen(Service.COMPUTE)[0].headers["Accept-Encoding"] == "identity"


async def test_cookies_are_not_kept(google: FakeGoogle, compute: ComputeEngine) -> None:
    google.add(INSTANCE)
    google.fail(Service.COMPUTE, Fault.status(503, "", {"Set-Cookie": "track=1; Path=/"}), times=1)
    with pytest.raises(CloudUnavailable):
        await compute.instance_now(*WHERE, NAME)
    await compute.instance_now(*WHERE, NAME)
    assert "Cookie" not in google.seen(Service.COMPUTE)[-1].headers


@pytest.mark.slow
@pytest.mark.parametrize("fault", [Fault.hangs(), Fault.dribbles()], ids=["hangs", "dribbles"])
async def test_what_is_too_slow_ends_at_the_deadline_and_frees_its_thread(
    google: FakeGoogle, access: GoogleAccess, fault: Fault
) -> None:
    google.add(INSTANCE)
    google.fail(Service.COMPUTE, fault, times=1)
    with asking(access, calls=CloudCalls(threads=1, deadline_seconds=1)) as compute:
        with pytest.raises(CloudUnavailable, match="did not answer in time"):
            await compute.instance_now(*WHERE, NAME)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:  # the thread ends a moment later
            try:
                found = await compute.instance_now(*WHERE, NAME)
            except CloudUnavailable:
                continue
            assert found.name == NAME
            return
    pytest.fail("the thread never ended")


@pytest.mark.parametrize(
    "body", [FORBIDDEN, "no json", "[]", '{"error":{"errors":[7]}}', '{"error":"text"}'], ids=range(5)
)
async def test_a_missing_permission_is_named(google: FakeGoogle, compute: ComputeEngine, body: str) -> None:
    google.fail(Service.COMPUTE, Fault.status(403, body))
    with pytest.raises(CloudRefused) as caught:
        await compute.instance(*WHERE, NAME)
    assert "lack compute.instances.get," in str(caught.value)
    assert "secret-detail" not in str(caught.value)
    with pytest.raises(CloudRefused, match=r"lack compute\.instances\.getShieldedInstanceIdentity,"):
        await compute.shielded_instance_identity(*WHERE, INSTANCE.instance_id)


async def test_no_server_at_the_endpoint(access: GoogleAccess) -> None:
    nobody = replace(access, compute_url="http://127.0.0.1:1/compute/v1")
    with asking(nobody) as compute, pytest.raises(CloudUnavailable, match="is unreachable"):
        await compute.instance(*WHERE, NAME)


def test_plain_http_is_for_this_machine_only(access: GoogleAccess) -> None:
    with pytest.raises(InvalidURL), asking(replace(access, compute_url="http://compute.googleapis.com/compute/v1")):
        pass


@pytest.mark.parametrize(
    "where",
    [
        ("../projects/other", "z", "n"),
        ("p", "z/instances/x", "n"),
        ("p", "z", "n/../m"),
        ("p", "z", "n?fields=metadata"),
        ("p", "z", ""),
        ("p", "z", "01"),
        ("1", "z", "n"),
    ],
    ids=range(7),
)
async def test_names_that_are_none_are_not_asked_about(
    google: FakeGoogle, compute: ComputeEngine, where: tuple[str, str, str]
) -> None:
    with pytest.raises(InvalidGCEName):
        await compute.instance(*where)
    with pytest.raises(InvalidGCEName):
        await compute.shielded_instance_identity(*where)
    assert not google.counts()


async def test_a_shielded_identity_is_asked_for_by_number_only(google: FakeGoogle, compute: ComputeEngine) -> None:
    google.add(INSTANCE)
    identity = await compute.shielded_instance_identity(*WHERE, INSTANCE.instance_id)
    assert identity.rsa == NoKey()
    assert identity.keys == ()
    with pytest.raises(InvalidGCEName):
        await compute.shielded_instance_identity(*WHERE, NAME)


async def test_no_proxy_and_no_password_come_from_the_environment(
    google: FakeGoogle, compute: ComputeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    google.add(INSTANCE)
    assert (await compute.instance(*WHERE, NAME)).name == NAME


async def test_the_proxy_of_the_settings_is_used(access: GoogleAccess) -> None:
    through = replace(access, compute_url="https://compute.example.com/compute/v1", proxy_url="http://127.0.0.1:1")
    with asking(through) as compute, pytest.raises(CloudUnavailable, match="the proxy is unreachable"):
        await compute.instance(*WHERE, NAME)


def test_the_same_settings_have_the_same_answers_however_many_namespaces_have_others() -> None:
    each = [GoogleAccess(compute_url=f"https://{number}.example") for number in range(40)]
    engines = [compute_engine(access) for access in each]
    assert len(set(engines)) == len(each)
    assert [compute_engine(access) for access in each] == engines


@pytest.mark.slow
async def test_an_endpoint_of_one_namespace_that_hangs_holds_up_no_other(
    google: FakeGoogle, access: GoogleAccess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    google.add(INSTANCE)
    monkeypatch.setattr(compute_module, "CloudCalls", partial(CloudCalls, threads=1, deadline_seconds=3))
    with FakeGoogle() as hanging:
        hanging.fail(Service.COMPUTE, Fault.hangs())
        (tmp_path / "its").mkdir()
        key = hanging.write_account_key(tmp_path / "its")
        its = compute_engine(GoogleAccess(credentials_file=key, compute_url=hanging.compute_url))
        asked = asyncio.create_task(its.instance_now(*WHERE, NAME))
        await asyncio.sleep(0)  # it has its thread now
        assert (await compute_engine(access).instance_now(*WHERE, NAME)).name == NAME
        assert not asked.done()
        with pytest.raises(CloudUnavailable):
            await asked
