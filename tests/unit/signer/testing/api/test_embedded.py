"""The server as a whole: what the conformance tests cannot ask of a real one."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from signer.testing.api import APIError, EmbeddedAPI, User, reading
from signer.testing.api.authorities import Issuer
from tests.support.certificates import CertificateAuthority
from tests.support.raw_client import RawClient
from tests.support.signing_requests import COLLECTION, condition, request_pem, signing_request, with_conditions
from tests.support.yaml_documents import safe_load

_CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def _config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _request(name: str, **spec: Any) -> dict[str, Any]:
    return signing_request(name, **spec)


def test_cluster_api_authority_with_serial_number_zero(admin: RawClient) -> None:
    authority = CertificateAuthority.like_cluster_api()
    with (
        EmbeddedAPI(ca_certificate=authority.certificate_pem, ca_key=authority.key_pem) as api,
        RawClient(api.connection("alice", ["a"])) as client,
    ):
        assert client.get("/version").status == 200
        assert api.ca_certificate_pem == authority.certificate_pem


def test_authority_needs_certificate_and_matching_key() -> None:
    one, other = Issuer.new(), Issuer.new()
    with pytest.raises(ValueError, match="both"):
        EmbeddedAPI(ca_certificate=one.certificate_pem)
    with pytest.raises(ValueError, match="does not belong"):
        EmbeddedAPI(ca_certificate=one.certificate_pem, ca_key=other.key_pem)


def test_foreign_and_expired_certificates_are_unauthorized(api: EmbeddedAPI) -> None:
    foreign = Issuer.new().client("system:admin", ["system:masters"], timedelta(days=1))
    for connection in (api.certificate_connection(*foreign), api.connection(lifetime=-timedelta(hours=1))):
        with RawClient(connection) as client:
            assert client.get("/version").status == 401


def test_certificate_of_a_second_authority() -> None:
    second = Issuer.new("second")
    with EmbeddedAPI(client_authorities=second.certificate_pem) as api:
        pair = second.client("alice", [], timedelta(days=1))
        with RawClient(api.certificate_connection(*pair)) as client:
            assert client.get("/version").status == 200


def test_another_address_and_another_serving_certificate() -> None:
    stranger = Issuer.new("stranger")
    with EmbeddedAPI(address="127.0.0.2") as api, RawClient(api.connection()) as client:
        assert api.server.startswith("https://127.0.0.2:")
        assert client.get("/version").status == 200
    with (
        EmbeddedAPI(serving=stranger.serving(["localhost"], ["127.0.0.1"])) as api,
        RawClient(replace(api.connection(), certificate_authority=stranger.certificate_pem)) as client,
    ):
        assert client.get("/version").status == 200


def test_serving_certificate_is_not_a_client_certificate(api: EmbeddedAPI) -> None:
    issuer = Issuer.load(api.ca_certificate_pem, api.ca_key_pem)
    with (
        RawClient(api.certificate_connection(*issuer.serving(["a"], []))) as client,
        pytest.raises((AssertionError, OSError, http.client.HTTPException, ssl.SSLError)),
    ):
        client.get("/version").expect(200)


def test_static_tokens_and_always_allow() -> None:
    with EmbeddedAPI(tokens={"secret": User("alice", ("a",))}, authorization="AlwaysAllow") as api:
        api.add_token("later", User("bob"))
        for token, name in (("secret", "alice"), ("later", "bob")):
            with RawClient(api.token_connection(token)) as client:
                created = client.post(COLLECTION, _request(name)).expect(201)
                assert created["spec"]["username"] == name


def test_restart_keeps_objects_and_port(api: EmbeddedAPI, admin: RawClient) -> None:
    server = api.server
    version = admin.post(_CONFIG_MAPS, _config_map("a")).expect(201)["metadata"]["resourceVersion"]
    with admin.watch(_CONFIG_MAPS, resourceVersion=version) as watch:
        api.stop_listening()
        assert watch.rest() == []
    with RawClient(api.connection()) as client, pytest.raises(OSError, match="refused"):
        client.get("/version")
    api.create(_config_map("b"))
    api.start_listening()
    assert api.server == server
    with RawClient(api.connection()) as client:
        names = [item["metadata"]["name"] for item in client.get(_CONFIG_MAPS).expect(200)["items"]]
        with client.watch(_CONFIG_MAPS, resourceVersion=version) as watch:
            assert [event.name for event in watch.take(1)] == ["b"]
    assert names == ["a", "b"]


def test_a_connection_whose_handshake_outlives_the_port_is_not_served(api: EmbeddedAPI) -> None:
    host, port = api.server.removeprefix("https://").split(":")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cadata=api.ca_certificate_pem.decode())
    client = context.wrap_bio(incoming, outgoing, server_hostname=host)
    with socket.create_connection((host, int(port)), timeout=10) as plain:
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        plain.sendall(outgoing.read())
        incoming.write(plain.recv(65536))  # the server is in its handshake now
        api.stop_listening()
        client.do_handshake()
        client.write(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        plain.sendall(outgoing.read())
        assert _read(plain, client, incoming) == b""


def _read(plain: socket.socket, client: ssl.SSLObject, incoming: ssl.MemoryBIO) -> bytes:
    """What the server answers until it closes the connection."""
    answer = b""
    with contextlib.suppress(ConnectionResetError, ssl.SSLZeroReturnError, ssl.SSLEOFError):
        while data := plain.recv(65536):
            incoming.write(data)
            with contextlib.suppress(ssl.SSLWantReadError):
                while True:
                    answer += client.read(65536)
    return answer


def test_calls_outside_of_the_context() -> None:
    api = EmbeddedAPI()
    api.create(_config_map("a", key="value"))
    assert api.get("configmaps", "a", "default")["data"] == {"key": "value"}
    with pytest.raises(RuntimeError, match="not running"):
        api.restart()
    api.close()


def test_injected_errors_delays_and_counts(api: EmbeddedAPI, admin: RawClient) -> None:
    fault = api.faults.inject("GET */configmaps", status=429, retry_after_seconds=3, times=2)
    for status in (429, 429, 200):
        assert admin.get(_CONFIG_MAPS).status == status
    assert fault.hits == 2
    api.faults.inject(lambda request: request.user.name == "kubernetes-admin", status=500, times=None)
    assert admin.get(_CONFIG_MAPS).body["reason"] == "InternalError"
    assert admin.get(_CONFIG_MAPS).status == 500
    api.faults.clear()
    api.faults.inject("GET *", delay_seconds=0.01)
    assert admin.get(_CONFIG_MAPS).status == 200


@pytest.mark.parametrize(("drop", "stored"), [("before", []), ("after", ["a"])])
def test_dropped_connections(api: EmbeddedAPI, drop: Any, stored: list[str]) -> None:
    # The client tries a second time on a fresh connection.
    api.faults.inject("POST *", drop=drop, times=2)
    with RawClient(api.connection()) as client, pytest.raises((OSError, http.client.HTTPException)):
        client.post(_CONFIG_MAPS, _config_map("a"))
    assert [item["metadata"]["name"] for item in api.objects("configmaps")] == stored
    assert [entry.status for entry in api.requests.matching("POST *")] == [0, 0]


def test_request_log_and_hook(api: EmbeddedAPI, admin: RawClient) -> None:
    seen = []
    api.on_request(lambda method, path, user: seen.append((method, path, user.name)))
    admin.post(_CONFIG_MAPS, _config_map("a")).expect(201)
    admin.post(_CONFIG_MAPS, _config_map("a")).expect(409)
    api.on_request(None)
    admin.get(_CONFIG_MAPS)
    assert seen == [("POST", _CONFIG_MAPS, "kubernetes-admin")] * 2
    assert [(entry.status, entry.user) for entry in api.requests.writes()] == [(201, "kubernetes-admin")]
    assert len(api.requests) == 3
    api.requests.clear()
    assert api.requests.matching() == []


def test_owner_takes_its_dependents(api: EmbeddedAPI, admin: RawClient) -> None:
    owner = api.create(_config_map("owner"))
    other = api.create(_config_map("other"))
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": item["metadata"]["name"], "uid": item["metadata"]["uid"]}
        for item in (owner, other)
    ]
    for name, owners in (("one", references[:1]), ("both", references), ("none", [])):
        value = _config_map(name)
        api.create({**value, "metadata": {**value["metadata"], "ownerReferences": owners}})
    admin.delete(f"{_CONFIG_MAPS}/owner").expect(200)
    assert [item["metadata"]["name"] for item in api.objects("configmaps")] == ["both", "none", "other"]
    assert api.get("configmaps", "both", "default")["metadata"]["ownerReferences"] == references[1:]
    admin.delete(f"{_CONFIG_MAPS}/other", {"propagationPolicy": "Orphan"}).expect(200)
    assert "ownerReferences" not in api.get("configmaps", "both", "default")["metadata"]


def test_namespace_goes_with_its_last_object(api: EmbeddedAPI, admin: RawClient) -> None:
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant"}})
    held = _config_map("held")
    held["metadata"] |= {"namespace": "tenant", "finalizers": ["example.com/hold"]}
    api.create(held)
    api.create({**_config_map("free"), "metadata": {"name": "free", "namespace": "tenant"}})
    assert admin.delete("/api/v1/namespaces/tenant").expect(200)["status"]["phase"] == "Terminating"
    assert [item["metadata"]["name"] for item in api.objects("configmaps", "tenant")] == ["held"]
    refused = admin.post("/api/v1/namespaces/tenant/configmaps", _config_map("late"))
    assert (refused.status, refused.reason) == (403, "Forbidden")
    api.patch("configmaps", "held", {"metadata": {"finalizers": None}}, "tenant")
    with pytest.raises(APIError, match="not found"):
        api.get("namespaces", "tenant")


def test_bookmarks_come_after_their_period() -> None:
    with EmbeddedAPI(bookmark_seconds=0.05) as api, RawClient(api.connection()) as client:
        with client.watch(_CONFIG_MAPS, resourceVersion="0", allowWatchBookmarks="true") as watch:
            event = watch.next()
        assert event.type == "BOOKMARK"
        assert event.object["metadata"]["resourceVersion"] == str(api.resource_version)


@pytest.mark.parametrize("seconds", [0.0, 0.1])
def test_late_events_come_in_order(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def be_late(seconds: float) -> None:
        pauses.append(seconds)
        await original(seconds)

    original = reading._be_late
    monkeypatch.setattr(reading, "_be_late", be_late)
    with EmbeddedAPI(late_events_seconds=seconds) as api, RawClient(api.connection()) as client:
        start = str(api.resource_version)
        names = [f"late-{number}" for number in range(8)]
        with client.watch(_CONFIG_MAPS, resourceVersion=start) as watch:
            for name in names:
                api.create(_config_map(name))
            assert [watch.next().name for _ in names] == names
    assert set(pauses) == {seconds}


def test_late_events_are_late_by_so_much_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(pause: float) -> None:
        slept.append(pause)

    monkeypatch.setattr(reading, "asyncio", SimpleNamespace(sleep=sleep))
    asyncio.run(reading._be_late(0.0))
    assert slept == []
    for _ in range(100):
        asyncio.run(reading._be_late(2.0))
    assert len({*slept}) > 1
    assert all(0 <= pause <= 2 for pause in slept)


def test_initial_events_are_announced(api: EmbeddedAPI, admin: RawClient) -> None:
    api.create(_config_map("a"))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with admin.watch(_CONFIG_MAPS, **query) as watch:
        assert watch.next().name == "a"
        marked = watch.next()
    assert marked.object["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_watch_from_outside_of_the_window() -> None:
    with EmbeddedAPI(watch_window=2) as api, RawClient(api.connection()) as client:
        start = str(api.resource_version)
        for name in "abc":
            api.create(_config_map(name))
        with client.watch(_CONFIG_MAPS, resourceVersion=start) as watch:
            events = watch.rest()
    assert [(event.type, event.object["code"], event.object["reason"]) for event in events] == [
        ("ERROR", 410, "Expired")
    ]


def test_continue_token_shows_one_state_and_expires(api: EmbeddedAPI, admin: RawClient) -> None:
    for name in "abcd":
        api.create(_config_map(name))
    first = admin.get(_CONFIG_MAPS, limit="2").expect(200)
    api.delete("configmaps", "c", "default")
    token = first["metadata"]["continue"]
    rest = admin.get(_CONFIG_MAPS, limit="2", **{"continue": token}).expect(200)
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c", "d"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    api.compact()
    expired = admin.get(_CONFIG_MAPS, limit="2", **{"continue": token})
    assert (expired.status, expired.reason) == (410, "Expired")


@pytest.mark.parametrize("version", ["1.29", "1.29.3", "v1.29.0", "v1.31.2-rc.1"])
def test_version_as_cluster_api_writes_it(version: str) -> None:
    with EmbeddedAPI(server_version=version) as api, RawClient(api.connection()) as client:
        assert client.get("/version").expect(200)["minor"] in {"29", "31"}


@pytest.mark.parametrize("version", ["1.19", "v1", "1", "latest", ""])
def test_version_that_it_does_not_play(version: str) -> None:
    with pytest.raises(ValueError, match=r"from 1\.20 on"):
        EmbeddedAPI(server_version=version)


def test_rules_of_the_server_version() -> None:
    for version, kept in (("1.20", None), ("1.36", 700)):
        with EmbeddedAPI(server_version=version) as api, RawClient(api.connection()) as client:
            created = client.post(COLLECTION, _request("a", expirationSeconds=700)).expect(201)
            assert created["spec"].get("expirationSeconds") == kept
            assert ("extra" in created["spec"]) is (kept is not None)
    node = User("system:node:n2", ("system:nodes",))
    value = {**signing_request("b"), "apiVersion": "certificates.k8s.io/v1"}
    value["spec"] = {**value["spec"], "signerName": "kubernetes.io/kube-apiserver-client-kubelet"}
    EmbeddedAPI(server_version="1.30").create(value, node)
    with pytest.raises(APIError, match="can only create a node CSR with CN=system:node:n2"):
        EmbeddedAPI(server_version="1.31").create(value, node)


def test_approval_in_process(api: EmbeddedAPI) -> None:
    created = api.create({**signing_request("a"), "apiVersion": "certificates.k8s.io/v1"})
    created["metadata"]["annotations"] = {"a": "b"}
    approved = api.update(with_conditions(created, condition("Approved")), "approval")
    assert approved["metadata"]["annotations"] == {"a": "b"}
    assert approved["status"]["conditions"][0]["lastUpdateTime"]
    with pytest.raises(APIError, match="mutually exclusive"):
        api.update(with_conditions(approved, condition("Denied")), "approval")


def test_yaml_and_definitions(api: EmbeddedAPI, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}}
                for name in ("v1", "v2")
            ],
        },
    }
    file = tmp_path / "things.yaml"
    file.write_text(yaml.safe_dump(definition))
    api.install_crds([file])
    api.install_crds([str(file)])
    text = "apiVersion: example.com/v2\nkind: Thing\nmetadata: {name: t}\nspec: {a: 2020-01-01, b: 1}\n---\n"
    (thing,) = api.apply_yaml(text)
    assert (thing["apiVersion"], thing["spec"], thing["metadata"]["generation"]) == (
        "example.com/v2",
        {"a": "2020-01-01"},
        1,
    )
    assert api.get("things", "t", "default")["apiVersion"] == "example.com/v1"
    (changed,) = api.apply_yaml(text.replace("2020-01-01", "other"))
    assert (changed["spec"], changed["metadata"]["generation"]) == ({"a": "other"}, 2)
    api.delete("customresourcedefinitions", "things.example.com")
    with pytest.raises(LookupError):
        api.objects("things")
    file.write_text("kind: Other\n")
    with pytest.raises(ValueError, match="holds a Other"):
        api.install_crds([file])


def test_kubeconfig_has_the_names_of_cluster_api(api: EmbeddedAPI) -> None:
    document = safe_load(api.kubeconfig("c1"))
    assert document["current-context"] == "c1-admin@c1"
    assert document["users"][0]["name"] == "c1-admin"
    assert set(document["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}
    assert document["clusters"][0]["cluster"]["server"] == api.server


def test_bootstrap_token_runs_out(api: EmbeddedAPI) -> None:
    for lifetime, status in ((timedelta(minutes=1), 201), (-timedelta(minutes=1), 401)):
        with RawClient(api.token_connection(api.bootstrap_token(lifetime))) as client:
            assert client.post(COLLECTION, _request("t")).status == status


async def test_from_inside_of_an_event_loop(api: EmbeddedAPI) -> None:
    found = await asyncio.to_thread(api.objects, "namespaces")
    assert found == api.objects("namespaces")


def test_seeding_puts_deleted_bindings_back(api: EmbeddedAPI) -> None:
    name = "kubeadm:node-autoapprove-bootstrap"
    api.delete("clusterrolebindings", name)
    api.seed_kubeadm()
    assert api.get("clusterrolebindings", name)["roleRef"]["kind"] == "ClusterRole"


def test_signing_request_text_is_kept(api: EmbeddedAPI, admin: RawClient) -> None:
    text = request_pem() + b"anything behind it"
    created = admin.post(COLLECTION, signing_request("a", text)).expect(201)
    assert api.get("certificatesigningrequests", "a")["spec"]["request"] == created["spec"]["request"]
