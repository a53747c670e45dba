from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.clouds.google import (
    GCEProviderID,
    InvalidGCEName,
    InvalidGCEProviderID,
    check_instance_id,
    check_instance_name,
    check_project,
    check_zone,
)
from tests.unit.attestors.support import PATIENT

LABEL = st.from_regex(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
DOMAIN = st.from_regex(r"[a-z0-9]{1,10}(?:\.[a-z]{2,5}){1,2}", fullmatch=True)
PROJECT = LABEL | st.builds("{}:{}".format, DOMAIN, LABEL)


@PATIENT
@given(PROJECT, LABEL, LABEL)
def test_what_is_written_is_read(project: str, zone: str, name: str) -> None:
    written = GCEProviderID(project, zone, name)
    assert GCEProviderID.parse(str(written)) == written
    assert str(written) == f"gce://{project}/{zone}/{name}"


@PATIENT
@given(st.text(max_size=80) | st.text(alphabet="gce:/-.ab01%", max_size=80).map("gce://{}".format))
def test_a_text_is_the_one_spelling_of_something_or_refused(text: str) -> None:
    try:
        parsed = GCEProviderID.parse(text)
    except InvalidGCEProviderID:
        return
    assert str(parsed) == text
    assert not set(str(parsed)) - set("gce://abcdefghijklmnopqrstuvwxyz0123456789-.:")


def test_the_usual_and_the_domain_scoped() -> None:
    assert GCEProviderID.parse("gce://capi-workloads/europe-west1-b/worker-1") == GCEProviderID(
        "capi-workloads", "europe-west1-b", "worker-1"
    )
    assert GCEProviderID.parse("gce://example.com:web/us-east4-a/n1").project == "example.com:web"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gce://",
        "gce:///europe-west1-b/worker-1",
        "project/europe-west1-b/worker-1",
        "gce://project/europe-west1-b",
        "gce://project/europe-west1-b/",
        "gce://project//worker-1",
        "gce://project/europe-west1-b/worker-1/",
        "gce://project/europe-west1-b/worker-1/more",
        "gce://project/europe-west1-b/worker-1\n",
        " gce://project/europe-west1-b/worker-1",
        "GCE://project/europe-west1-b/worker-1",
        "aws:///eu-west-1a/i-0123456789abcdef0",
        "gce://Project/europe-west1-b/worker-1",
        "gce://123456789/europe-west1-b/worker-1",
        "gce://project/europe-west1-b/4711000000000000001",
        "gce://project/europe-west1-b/Worker-1",
        "gce://project/europe-west1-b/-worker",
        "gce://project/europe-west1-b/worker-",
        "gce://project/europe-west1-b/wor.ker",
        "gce://project/europe-west1-b/../worker-1",
        "gce://project/../europe-west1-b",
        "gce://project/europe-west1-b/worker%2f1",
        "gce://project/europe-west1-b/worker?x",
        "gce://project/europe-west1-b/worker#x",
        "gce://project/europe-west1-b/w\u00f6rker",
        "gce://project/europe-west1-b/worker\u0661",
        "gce://example.com:/europe-west1-b/worker-1",
        "gce://:web/europe-west1-b/worker-1",
        "gce://example:web/europe-west1-b/worker-1",
        "gce://example.com:web:web/europe-west1-b/worker-1",
        "gce://example..com:web/europe-west1-b/worker-1",
        f"gce://project/europe-west1-b/{'w' * 64}",
        f"gce://{'a.' * 300}com:web/europe-west1-b/worker-1",
    ],
    ids=range(34),
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(InvalidGCEProviderID) as caught:
        GCEProviderID.parse(text)
    assert "not of the form gce://<project>/<zone>/<name>" in str(caught.value)


@pytest.mark.parametrize("parts", [("P", "z", "n"), ("p", "Z", "n"), ("p", "z", "N"), ("p", "z", "../n")], ids=range(4))
def test_none_is_made_of_other_parts(parts: tuple[str, str, str]) -> None:
    with pytest.raises(InvalidGCEName):
        GCEProviderID(*parts)


@pytest.mark.parametrize("text", ["1", "4711000000000000001", str(2**64 - 1)])
def test_numeric_ids(text: str) -> None:
    assert check_instance_id(text) == text


@pytest.mark.parametrize("text", ["", "0", "01", "-1", "1.0", "1\n", " 1", "\u0661", str(2**64), "1" * 5000, "worker"])
def test_no_numeric_ids(text: str) -> None:
    with pytest.raises(InvalidGCEName):
        check_instance_id(text)


def test_names_of_each_kind() -> None:
    assert check_project("example.com:web") == "example.com:web"
    assert check_zone("europe-west1-b") == "europe-west1-b"
    assert check_instance_name("w") == "w"
    for check in (check_zone, check_instance_name):
        with pytest.raises(InvalidGCEName):
            check("example.com:web")
