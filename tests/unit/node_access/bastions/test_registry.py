"""Providers by entry point."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import pytest

from node_access.bastions.contract import BastionProvider, InvalidSettings, Ready, SettingsDocuments
from node_access.bastions.none import NoneProvider
from node_access.bastions.registry import ENTRY_POINT_GROUP, BastionRegistry, InvalidProvider, ProviderNotInstalled
from tests.unit.node_access.bastions.test_contract import BASTION

NONE = "node_access.bastions.none:provider"


def entry(name: str, value: str) -> importlib.metadata.EntryPoint:
    return importlib.metadata.EntryPoint(name, value, ENTRY_POINT_GROUP)


@pytest.mark.parametrize("name", ["aws", "local", "none", "pod"])
def test_the_providers_of_this_project(name: str) -> None:
    values = {
        "aws": "node_access.bastions.aws.provider:provider",
        "local": "node_access.bastions.local.provider:provider",
        "none": NONE,
        "pod": "node_access.bastions.pod.provider:provider",
    }
    registry = BastionRegistry([entry(name, values[name])])
    assert registry.names == {name}
    provider = registry.load(name)
    assert isinstance(provider, BastionProvider)
    assert registry.load(name) is provider


def test_one_that_is_not_installed() -> None:
    with pytest.raises(ProviderNotInstalled, match="installed are: none"):
        BastionRegistry([entry("none", NONE)]).load("azure")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("none", "node_access.bastions.nothing:provider"),
        ("none", "node_access.bastions.none:nothing"),
        ("none", "node_access.bastions.none:NoneProvider"),
        ("none", "node_access.bastions.contract:LOGIN"),
        ("other", NONE),
        ("None", NONE),
    ],
    ids=["no module", "no object", "a class", "another object", "another name", "no label"],
)
def test_one_that_is_unusable(name: str, value: str) -> None:
    with pytest.raises(InvalidProvider):
        BastionRegistry([entry(name, value)]).load(name)


def test_two_of_one_name() -> None:
    both = [entry("none", NONE), entry("none", "node_access.bastions.pod.provider:provider")]
    with pytest.raises(InvalidProvider, match="twice"):
        BastionRegistry(both).load("none")


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPjHUyfKmhKPaLC7D8u6oh1z9UIgXVy2Pj29E940gSaA"


def opened(operator: dict[str, Any]) -> Any:
    provider = NoneProvider()
    return provider.open(provider.settings(SettingsDocuments(operator)), None)  # type: ignore[arg-type]


def test_a_jump_host() -> None:
    host = {"hostname": "jump.example.com", "port": 2222, "hostKeys": [KEY], "egress": ["192.0.2.1/32"]}
    answer = opened({"jumpHost": host}).ensure(BASTION, None)
    assert isinstance(answer, Ready)
    assert (answer.endpoint.hostname, answer.endpoint.port) == ("jump.example.com", 2222)
    assert [str(one) for one in answer.egress] == ["192.0.2.1/32"]


def test_without_a_jump_host_there_is_no_bastion() -> None:
    assert opened({}).ensure(BASTION, None).final


@pytest.mark.parametrize(
    "host",
    [
        {"hostKeys": [KEY]},
        {"hostname": "jump", "hostKeys": []},
        {"hostname": "jump", "hostKeys": [f"{KEY} comment"]},
        {"hostname": "-jump", "hostKeys": [KEY]},
        {"ip": "jump", "hostKeys": [KEY]},
        {"ip": "192.0.2.1", "hostKeys": [KEY], "port": 0},
        {"ip": "192.0.2.1", "hostKeys": [KEY], "egress": ["192.0.2.1/24"]},
        {"ip": "192.0.2.1", "hostKeys": [KEY], "password": "x"},
    ],
)
def test_a_jump_host_that_is_none(host: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        opened({"jumpHost": host})
