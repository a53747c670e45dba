"""Settings of the server plugin: the operator allows, the policy narrows."""

from __future__ import annotations

from typing import Any

import pytest

from attestors.clouds.google import GoogleAccess
from attestors.contract import AttestorSettings, InvalidSettings
from attestors.gcp.settings import MAXIMUM_ENTRIES, AnyServiceAccount, GCPSettings, LookUp, TokenOnly

PROJECTS = {"one-project": 1001, "two-project": 1002, "example.com:web": 1003}
NODES = "nodes@one-project.iam.gserviceaccount.com"
OTHERS = "others@one-project.iam.gserviceaccount.com"


def parse(policy: dict[str, Any] | None = None, **operator: Any) -> GCPSettings:
    return GCPSettings.parse(AttestorSettings(operator={"projects": PROJECTS, **operator}, policy=policy or {}))


def test_the_least() -> None:
    assert parse() == GCPSettings(PROJECTS, AnyServiceAccount(), TokenOnly(), GoogleAccess())


def test_everything() -> None:
    parsed = parse(
        {"projects": ["two-project"], "serviceAccounts": [NODES]},
        serviceAccounts=[NODES, OTHERS],
        checkInstance=True,
        credentialsFile="/etc/credentials.json",
        computeEndpoint="https://compute.example.com/compute/v1",
        proxy="https://proxy.example.com",
    )
    access = GoogleAccess(
        "/etc/credentials.json", "https://compute.example.com/compute/v1", "https://proxy.example.com"
    )
    assert parsed == GCPSettings({"two-project": 1002}, frozenset({NODES}), LookUp(), access)


def test_a_proxy_is_for_the_certificates_too() -> None:
    assert parse(proxy="https://proxy.example.com").access.proxy_url == "https://proxy.example.com"


def test_a_policy_narrows_service_accounts_that_the_operator_leaves_open() -> None:
    assert parse({"serviceAccounts": [OTHERS]}).service_accounts == frozenset({OTHERS})
    assert parse(serviceAccounts=[OTHERS]).service_accounts == frozenset({OTHERS})


@pytest.mark.parametrize(
    ("operator", "part"),
    [
        ({"projects": None}, "projects must have"),
        ({"projects": {}}, "projects must have"),
        ({"projects": ["one-project"]}, "projects must have"),
        ({"projects": {f"project-{number}": 1 for number in range(MAXIMUM_ENTRIES + 1)}}, "projects must have"),
        ({"projects": {"1001": 1001}}, "not a project ID"),
        ({"projects": {1001: 1001}}, "not a project ID"),
        ({"projects": {"*": 1001}}, "not a project ID"),
        ({"projects": {"one-project": None}}, "one-project needs its project number"),
        ({"projects": {"one-project": "1001"}}, "one-project needs its project number"),
        ({"projects": {"one-project": True}}, "one-project needs its project number"),
        ({"projects": {"one-project": 0}}, "one-project needs its project number"),
        ({"serviceAccounts": []}, "serviceAccounts must be"),
        ({"serviceAccounts": NODES}, "serviceAccounts must be"),
        ({"serviceAccounts": ["*"]}, "serviceAccounts must be"),
        ({"serviceAccounts": [5]}, "serviceAccounts must be"),
        ({"serviceAccounts": [NODES] * (MAXIMUM_ENTRIES + 1)}, "serviceAccounts must be"),
        ({"checkInstance": "yes"}, "checkInstance must be"),
        ({"checkInstance": 1}, "checkInstance must be"),
        ({"credentialsFile": "/etc/x"}, "credentialsFile requires checkInstance"),
        ({"computeEndpoint": "https://example.com"}, "computeEndpoint requires checkInstance"),
        ({"checkInstance": True, "credentialsFile": "x"}, "credentialsFile must be"),
        ({"checkInstance": True, "computeEndpoint": "http://example.com"}, "computeEndpoint: "),
        ({"certificatesURL": "https://example.com"}, "have no 'certificatesURL'"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value)[:48].replace("/", " "),
)
def test_a_wrong_setting_of_the_operator(operator: dict[str, Any], part: str) -> None:
    with pytest.raises(InvalidSettings, match=part):
        parse(**operator)


def test_projects_are_required() -> None:
    with pytest.raises(InvalidSettings, match="projects must have"):
        GCPSettings.parse(AttestorSettings())


@pytest.mark.parametrize(
    ("policy", "part"),
    [
        ({"projects": ["three-project"]}, "the operator does not allow three-project"),
        ({"projects": ["one-project", "three-project"]}, "the operator does not allow three-project"),
        ({"projects": {"one-project": 6}}, "projects must be a list"),
        ({"projects": []}, "projects must be a list"),
        ({"serviceAccounts": [OTHERS]}, "the operator does not allow others@"),
        ({"serviceAccounts": []}, "serviceAccounts must be"),
        ({"checkInstance": False}, "a policy's settings of the GCP attestor have no 'checkInstance'"),
        ({"credentialsFile": "/etc/shadow"}, "have no 'credentialsFile'"),
        ({"computeEndpoint": "https://example.com"}, "have no 'computeEndpoint'"),
        ({"proxy": "https://example.com"}, "have no 'proxy'"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value)[:48].replace("/", " "),
)
def test_a_policy_cannot_widen(policy: dict[str, Any], part: str) -> None:
    with pytest.raises(InvalidSettings, match=part):
        parse(policy, serviceAccounts=[NODES])
