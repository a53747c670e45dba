"""Secrets and ConfigMaps: their keys, their size, and what a Secret's type asks for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import fields, refused
from tests.support.raw_client import RawClient

LONG = "a" * 254


@pytest.fixture
def secrets(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets"


@pytest.fixture
def config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def _secret(name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **content}


def _config_map(name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **content}


@pytest.mark.parametrize("key", ["a b", "a/b", "..", "..a", ".", "", "\u00e4", LONG])
def test_key_that_is_no_file_name_is_refused(
    admin: RawClient, secrets: str, config_maps: str, name: str, key: str
) -> None:
    wanted = {f"data[{key}]"}
    assert fields(refused(admin.post(secrets, _secret(name, stringData={key: "1"})), 422, "Invalid")) == wanted
    assert fields(refused(admin.post(config_maps, _config_map(name, data={key: "1"})), 422, "Invalid")) == wanted
    binary = refused(admin.post(config_maps, _config_map(name, binaryData={key: "MQ=="})), 422, "Invalid")
    assert fields(binary) == {f"binaryData[{key}]"}


@pytest.mark.parametrize("key", ["tls.crt", ".a", "A_1-b", "a..b", "a" * 253])
def test_key_that_is_a_file_name(admin: RawClient, secrets: str, name: str, key: str) -> None:
    assert admin.post(secrets, _secret(name, data={key: "MQ=="})).expect(201)["data"] == {key: "MQ=="}


def test_keys_are_checked_in_changes_too(admin: RawClient, secrets: str, config_maps: str, name: str) -> None:
    admin.post(secrets, _secret(name)).expect(201)
    admin.post(config_maps, _config_map(name)).expect(201)
    assert fields(refused(admin.patch(f"{secrets}/{name}", {"stringData": {"a b": "1"}}), 422, "Invalid"))
    assert fields(refused(admin.patch(f"{config_maps}/{name}", {"data": {"a b": "1"}}), 422, "Invalid"))


def test_a_key_stands_for_one_value(admin: RawClient, config_maps: str, name: str) -> None:
    answer = admin.post(config_maps, _config_map(name, data={"a": "1"}, binaryData={"a": "MQ=="}))
    assert fields(refused(answer, 422, "Invalid")) == {"data[a]"}


@pytest.mark.parametrize("bytes_too_many", [0, 1])
def test_size(admin: RawClient, secrets: str, config_maps: str, name: str, bytes_too_many: int) -> None:
    """The values together; bootstrap data is stored in a Secret."""
    text = {"a": "x" * (512 * 1024), "b": "x" * (512 * 1024 + bytes_too_many)}
    answers = [
        admin.post(secrets, _secret(name, stringData=text)),
        admin.post(config_maps, _config_map(name, data=text)),
    ]
    for answer in answers:
        if not bytes_too_many:
            answer.expect(201)
            continue
        (cause,) = refused(answer, 422, "Invalid")["details"]["causes"]
        assert cause["reason"] == "FieldValueTooLong"


@pytest.mark.parametrize(
    ("kind", "data", "wanted"),
    [
        ("kubernetes.io/tls", {}, {"data[tls.crt]", "data[tls.key]"}),
        ("kubernetes.io/tls", {"tls.crt": ""}, {"data[tls.key]"}),
        ("kubernetes.io/dockerconfigjson", {}, {"data[.dockerconfigjson]"}),
        ("kubernetes.io/dockercfg", {}, {"data[.dockercfg]"}),
    ],
)
def test_type_of_a_secret_asks_for_keys(
    admin: RawClient, secrets: str, name: str, kind: str, data: dict[str, str], wanted: set[str]
) -> None:
    assert fields(refused(admin.post(secrets, _secret(name, type=kind, data=data)), 422, "Invalid")) == wanted


@pytest.mark.parametrize(("kind", "missing"), [("kubernetes.io/basic-auth", 2), ("kubernetes.io/ssh-auth", 1)])
def test_types_whose_fields_are_named_in_ways_of_their_own(
    admin: RawClient, secrets: str, name: str, kind: str, missing: int
) -> None:
    causes = refused(admin.post(secrets, _secret(name, type=kind)), 422, "Invalid")["details"]["causes"]
    assert [cause["reason"] for cause in causes] == ["FieldValueRequired"] * missing


def test_token_of_a_service_account_names_it(admin: RawClient, secrets: str, name: str) -> None:
    answer = admin.post(secrets, _secret(name, type="kubernetes.io/service-account-token"))
    wanted = {"metadata.annotations[kubernetes.io/service-account.name]"}
    assert fields(refused(answer, 422, "Invalid")) == wanted


def test_empty_type_is_opaque(admin: RawClient, secrets: str, name: str) -> None:
    assert admin.post(secrets, _secret(name, type="")).expect(201)["type"] == "Opaque"
