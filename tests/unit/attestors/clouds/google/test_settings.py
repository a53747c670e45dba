from __future__ import annotations

from typing import Any

import pytest

from attestors.clouds.google import GoogleAccess, parse_projects
from attestors.contract import InvalidSettings


def test_all_may_be_left_out() -> None:
    access = GoogleAccess.parse({})
    assert access == GoogleAccess("", "https://compute.googleapis.com/compute/v1", "")


def test_all_that_there_are() -> None:
    access = GoogleAccess.parse(
        {
            "credentialsFile": "/etc/google/key.json",
            "computeEndpoint": "https://compute-psc.p.googleapis.com/compute/v1/",
            "proxy": "http://proxy.example.com:3128",
        }
    )
    assert access.credentials_file == "/etc/google/key.json"
    assert access.compute_url == "https://compute-psc.p.googleapis.com/compute/v1"
    assert access.proxy_url == "http://proxy.example.com:3128"
    assert "proxy.example.com" not in repr(access)


@pytest.mark.parametrize(
    "settings",
    [
        {"credentialsFile": "key.json"},
        {"credentialsFile": ""},
        {"credentialsFile": None},
        {"computeEndpoint": "http://compute.googleapis.com/compute/v1"},
        {"computeEndpoint": 1},
        {"computeEndpoint": ""},
        {"proxy": "proxy.example.com"},
        {"proxy": "https://me:hunter2@proxy.example.com"},
        {"credentials": "/etc/google/key.json"},
    ],
    ids=range(9),
)
def test_what_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings) as caught:
        GoogleAccess.parse(settings)
    assert min(settings) in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_projects() -> None:
    assert parse_projects(["a", "example.com:b", "a"], "projects") == {"a", "example.com:b"}


@pytest.mark.parametrize(
    "projects",
    [None, [], "a", {"a": 1}, [1], ["*"], [""], ["123456789"], ["a", "B"], ["a"] * 1025],
    ids=range(10),
)
def test_no_projects(projects: object) -> None:
    with pytest.raises(InvalidSettings, match="projects"):
        parse_projects(projects, "projects")
