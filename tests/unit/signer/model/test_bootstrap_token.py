"""KubeadmConfigs and bootstrap tokens' Secrets: what is read of them, and that no token is kept."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from signer.model.bootstrap_token import (
    EXTENDED_UNTIL_ANNOTATION,
    Extension,
    InvalidBootstrapConfig,
    InvalidRequester,
    InvalidTokenSecret,
    NeverExpires,
    NodeRequester,
    TokenOwner,
    TokenRequester,
    Unowned,
    bootstrap_config_view,
    requester_of,
    token_secret,
)
from tests.unit.signer.builders import machine_view

SECRET_HALF = "0123456789abcdef"
TOKEN = f"abc123.{SECRET_HALF}"
CLUSTER_API = "cluster.x-k8s.io/v1beta2"


def reference(kind: str = "Machine", name: str = "m1", **changes: Any) -> dict[str, Any]:
    return {"apiVersion": CLUSTER_API, "kind": kind, "name": name, "uid": "u", "controller": True} | changes


def config(token: Any = TOKEN, *owners: Any, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "team-a",
            "name": "m1",
            "labels": {"cluster.x-k8s.io/cluster-name": "prod"},
            "ownerReferences": list(owners) or [reference()],
            **metadata,
        },
        "spec": {"joinConfiguration": {"discovery": {"bootstrapToken": {"token": token}}}},
    }


# KubeadmConfigs


def test_a_machines_kubeadm_config() -> None:
    view = bootstrap_config_view(config())
    assert (view.namespace, view.name, view.cluster_name, view.token_id) == ("team-a", "m1", "prod", "abc123")
    assert view.owner == TokenOwner("team-a", "Machine", "m1", "u")


def test_the_secret_half_is_dropped() -> None:
    assert SECRET_HALF not in repr(bootstrap_config_view(config()))


@pytest.mark.parametrize(
    "token", ["", "abc123", "abc123.", f"abc123.{SECRET_HALF}x", f"ABC123.{SECRET_HALF}", None, 7, {}, [TOKEN]]
)
def test_what_is_no_token_leads_nowhere(token: Any) -> None:
    assert bootstrap_config_view(config(token)).token_id == ""


@pytest.mark.parametrize("spec", [{}, {"joinConfiguration": None}, {"joinConfiguration": {"discovery": []}}, []])
def test_config_without_discovery_by_token(spec: Any) -> None:
    assert bootstrap_config_view(config() | {"spec": spec}).token_id == ""


@pytest.mark.parametrize(
    "owner",
    [
        reference(controller=False),
        {"kind": "Machine", "name": "m1", "apiVersion": CLUSTER_API},
        reference(kind="KubeadmControlPlane"),
        reference(apiVersion="elsewhere.example/v1"),
        reference(apiVersion="cluster.x-k8s.io.example/v1"),
        reference(name=""),
        "Machine",
    ],
)
def test_who_is_no_controlling_machine_or_pool_owns_nothing(owner: Any) -> None:
    assert bootstrap_config_view(config(TOKEN, owner)).owner == Unowned()


def test_the_controller_among_several_owners() -> None:
    owners = (reference(name="other", controller=False), reference("MachinePool", "p1"))
    assert bootstrap_config_view(config(TOKEN, *owners)).owner == TokenOwner("team-a", "MachinePool", "p1", "u")


def test_config_without_a_name() -> None:
    with pytest.raises(InvalidBootstrapConfig):
        bootstrap_config_view({"metadata": {"name": "m1"}})


def test_whose_token_a_machine_may_use() -> None:
    machine = machine_view(name="m1")
    instance = machine_view(kind="MachinePool", name="p1")
    pools_machine = machine_view(name="p1-x", owner_pool="p1")
    of_machine, of_pool = TokenOwner("team-a", "Machine", "m1"), TokenOwner("team-a", "MachinePool", "p1")
    assert [of_machine.is_owner_of(one) for one in (machine, instance, pools_machine)] == [True, False, False]
    assert [of_pool.is_owner_of(one) for one in (machine, instance, pools_machine)] == [False, True, True]


def test_an_owner_of_the_same_name_is_not_the_same() -> None:
    machine = machine_view(name="m1")
    assert not TokenOwner("team-a", "MachinePool", "m1").is_owner_of(machine)
    assert not TokenOwner("team-b", "Machine", "m1").is_owner_of(machine)
    assert not TokenOwner("team-b", "MachinePool", "p1").is_owner_of(machine_view(owner_pool="p1"))
    assert not TokenOwner("team-a", "Machine", "").is_owner_of(machine_view(name="m2"))


# Requesters


def test_requesters() -> None:
    assert requester_of("system:bootstrap:abc123") == TokenRequester("abc123")
    assert requester_of("system:node:n1") == NodeRequester()


@pytest.mark.parametrize("username", ["", "abc123", "system:bootstrap:", "system:bootstrap:abc1234", "system:admin"])
def test_neither_token_nor_node(username: str) -> None:
    with pytest.raises(InvalidRequester):
        requester_of(username)


# Secrets


def secret(expiration: str = "2026-03-01T12:15:00Z", **changes: Any) -> dict[str, Any]:
    data = {
        "token-id": "abc123",
        "token-secret": SECRET_HALF,
        "expiration": expiration,
        "usage-bootstrap-authentication": "true",
    }
    return {
        "metadata": {"namespace": "kube-system", "name": "bootstrap-token-abc123", "resourceVersion": "7"},
        "type": "bootstrap.kubernetes.io/token",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
    } | changes


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_tokens_secret() -> None:
    read = token_secret(secret())
    assert (read.name, read.token_id, read.resource_version) == ("bootstrap-token-abc123", "abc123", "7")
    assert read.authenticates
    assert read.expiration == datetime(2026, 3, 1, 12, 15, tzinfo=UTC)
    assert read.extension is Extension.NONE
    assert SECRET_HALF not in repr(read)


def test_an_expiration_with_an_offset() -> None:
    assert token_secret(secret("2026-03-01T13:15:00+01:00")).expiration == datetime(2026, 3, 1, 12, 15, tzinfo=UTC)


def test_no_expiration_is_for_ever() -> None:
    assert token_secret(secret("")).expiration == NeverExpires()


def test_our_mark_counts_while_the_expiration_is_what_we_wrote() -> None:
    given = secret()
    given["metadata"]["annotations"] = {EXTENDED_UNTIL_ANNOTATION: "2026-03-01T12:15:00Z"}
    assert token_secret(given).extension is Extension.OURS
    given["data"]["expiration"] = encoded("2026-03-02T12:15:00Z")
    assert token_secret(given).extension is Extension.OVERWRITTEN


def test_a_token_for_signing_only() -> None:
    given = secret()
    given["data"]["usage-bootstrap-authentication"] = encoded("false")
    assert not token_secret(given).authenticates
    del given["data"]["usage-bootstrap-authentication"]
    assert not token_secret(given).authenticates


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "Opaque"},
        {"metadata": {"name": "bootstrap-token-zzz999", "resourceVersion": "7"}},
        {"metadata": {"name": "bootstrap-token-abc123"}},
        {"data": {}},
        {"data": {"token-id": "!"}},
        {"data": {"token-id": encoded("../../x")}},
        {"data": {"token-id": encoded("abc123"), "expiration": encoded("tomorrow")}},
        {"data": {"token-id": encoded("abc123"), "expiration": encoded("2026-03-01T12:15:00")}},
        {"data": {"token-id": encoded("abc123"), "expiration": encoded("2" * 100_000)}},
        {"data": {"token-id": encoded("abc123"), "expiration": encoded("20260301T121500Z")}},
        {"data": {"token-id": encoded("abc123"), "expiration": encoded("2026-02-30T12:15:00Z")}},
        {"data": {"token-id": encoded("abc123"), "expiration": encoded("9999-12-31T23:59:59-14:00")}},
    ],
)
def test_what_is_no_tokens_secret(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidTokenSecret) as caught:
        token_secret(secret() | changes)
    assert SECRET_HALF not in str(caught.value)
