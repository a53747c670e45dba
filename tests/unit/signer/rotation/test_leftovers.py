"""A CA is found in every form in which people and programs keep it, and hostile texts cost nothing."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.authority.der import encode_block
from signer.kube.client import JsonObject, Parameters
from signer.kube.errors import Forbidden
from signer.kube.resources import API_SERVICES, CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS
from signer.rotation import leftovers
from signer.rotation.conditions import leftovers_condition
from signer.rotation.leftovers import SEARCH_AGAIN, Holder, LeftoverSearch, NotSearched, Scan, holds, scan_for

OLD = bytes(range(256)) * 3
"""Content of a certificate: its form does not matter here."""
OTHER = bytes(range(255, -1, -1))
DIGEST = hashlib.sha256(OLD).hexdigest()
PEM = encode_block("CERTIFICATE", OLD)
OTHER_PEM = encode_block("CERTIFICATE", OTHER)


@pytest.mark.parametrize(
    "text",
    [
        PEM,
        OLD,
        OTHER_PEM + b"# the second one\n" + PEM,
        PEM.replace(b"\n", b"\r\n"),
        b"ca: |\n" + b"".join(b"    " + line + b"\n" for line in PEM.splitlines()),
        json.dumps({"ca": PEM.decode()}).encode(),
        b"certificate-authority-data: " + base64.b64encode(PEM) + b"\n",
        b"certificate-authority-data: " + base64.b64encode(OTHER_PEM + PEM) + b"\n",
        b"-----BEGIN CERTIFICATE-----\n" + PEM,
    ],
    ids=["PEM", "DER", "bundle", "CRLF", "indented", "JSON", "kubeconfig", "kubeconfig bundle", "after a cut one"],
)
def test_the_ca_is_found(text: bytes) -> None:
    assert holds(text, DIGEST)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        OTHER_PEM,
        OTHER,
        PEM[:-30],
        b"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t====",
        PEM.replace(b"CERTIFICATE", b"KEY"),
    ],
    ids=["nothing", "another", "another's DER", "cut", "no base64", "another label"],
)
def test_nothing_else_is_taken_for_it(text: bytes) -> None:
    assert not holds(text, DIGEST)
    assert not holds(text, "")


@given(
    st.lists(st.sampled_from([PEM, OTHER_PEM, b"-----BEGIN CERTIFICATE-----", b"LS0tLS1CRUdJTiBD", b"\\n", b"\xff"]))
)
def test_any_text_is_read(parts: list[bytes]) -> None:
    text = b"".join(parts)
    assert holds(text, DIGEST) == (PEM in text)


class Pages:
    """A List of what a workload API server may say. Not the embedded API, which would refuse these objects."""

    def __init__(self, by_path: dict[str, list[Any]], refused: tuple[str, ...] = ()) -> None:
        self._by_path, self._refused = by_path, refused

    async def list_pages(
        self, path: str, params: Parameters | None = None, limit: int = 500, *, maximum_bytes: int | None = None
    ) -> AsyncGenerator[JsonObject, None]:
        """One page."""
        assert maximum_bytes is not None
        if path in self._refused:
            raise Forbidden("no")
        yield {"items": self._by_path.get(path, [])}


def scan(pages: Pages) -> leftovers.Scan:
    return asyncio.run(scan_for(pages, DIGEST))


def config_map(name: str, namespace: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, **fields}


def test_config_maps_that_a_rotation_writes_itself_are_no_leftovers() -> None:
    held = {"data": {"ca.crt": PEM.decode()}}
    found = scan(
        Pages(
            {
                CONFIG_MAPS.collection(): [
                    config_map("kube-root-ca.crt", "default", **held),
                    config_map("cluster-info", "kube-public", **held),
                    config_map("extension-apiserver-authentication", "kube-system", **held),
                    config_map("cluster-info", "default", **held),
                    config_map("der", "default", binaryData={"ca.der": base64.b64encode(OLD).decode()}),
                    config_map("other", "default", data={"ca.crt": OTHER_PEM.decode()}),
                ]
            }
        )
    )
    assert [str(one) for one in found.leftovers] == ["ConfigMap default/cluster-info", "ConfigMap default/der"]


def test_the_conversion_of_a_definition_is_read() -> None:
    webhook = {"clientConfig": {"caBundle": base64.b64encode(PEM).decode()}}
    definition = {"metadata": {"name": "a.example.org"}, "spec": {"conversion": {"webhook": webhook}}}
    found = scan(Pages({CUSTOM_RESOURCE_DEFINITIONS.collection(): [definition, {"spec": {}}]}))
    assert found.holders == (Holder("CustomResourceDefinition", "", "a.example.org", holds_old=True),)


def test_what_cannot_be_read_is_named_and_the_rest_is_read() -> None:
    path = CONFIG_MAPS.collection()
    found = scan(Pages({path: [config_map("a", "b", data={"c": PEM.decode()})]}, refused=(API_SERVICES.collection(),)))
    assert list(found.unread) == ["APIService"]
    assert len(found.leftovers) == 1


def test_malformed_objects_hold_nothing() -> None:
    malformed: tuple[Any, ...] = (None, [], {"metadata": 1, "data": {"a": 1}, "binaryData": {"b": "%%"}}, {"data": []})
    for item in malformed:
        assert scan(Pages({CONFIG_MAPS.collection(): [item]})).holders == ()
    service = {"metadata": {"name": "\x1b[31m"}, "spec": {"caBundle": "\xe4"}}
    assert scan(Pages({API_SERVICES.collection(): [service]})).holders == ()
    service["spec"] = {"caBundle": base64.b64encode(OTHER_PEM).decode()}
    assert "\x1b" not in str(scan(Pages({API_SERVICES.collection(): [service]})).holders[0])


def test_a_crowd_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "MOST_HOLDERS", 2)
    monkeypatch.setattr(leftovers, "_MAXIMUM_OBJECTS", 5)
    items = [config_map(f"m-{n}", "default", data={"a": PEM.decode()}) for n in range(6)]
    found = scan(Pages({CONFIG_MAPS.collection(): items}))
    assert (len(found.holders), found.more) == (2, 4)
    assert found.unread == {"ConfigMap": "there are more than 5, and the others were not read"}


def test_the_search_ends_when_nothing_is_left() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    held: list[Any] = [config_map("a", "b", data={"c": PEM.decode()})]
    pages = Pages({CONFIG_MAPS.collection(): held})
    search = LeftoverSearch(lambda: now)

    def found() -> int:
        asyncio.run(search.look(pages, DIGEST))
        assert isinstance(search.last, Scan)
        return len(search.last.leftovers)

    assert found() == 1
    held.clear()
    assert found() == 1, "it is not time yet"
    now += SEARCH_AGAIN
    assert found() == 0
    held.append(config_map("a", "b", data={"c": PEM.decode()}))
    now += timedelta(days=365)
    assert found() == 0, "nobody gives out the old CA any more"
    search.forget()
    assert isinstance(search.last, NotSearched)
    assert found() == 1


def test_the_condition_names_what_is_left() -> None:
    holders = tuple(Holder("ConfigMap", "team", f"ci-{n}", holds_old=True) for n in range(12))
    own = Holder("APIService", "", "metrics", holds_old=False)
    condition = leftovers_condition(Scan((own, *holders), unread={"Secret": "forbidden"}))
    assert (condition.status, condition.reason) == ("True", "OldAuthorityHeld")
    assert condition.message.startswith("12 objects of the workload cluster hold the old CA: ConfigMap team/ci-0, ")
    assert condition.message.endswith("ConfigMap team/ci-9 and 2 more")
    assert leftovers_condition(Scan((own,), unread={"Secret": "forbidden"})).status == "Unknown"
    assert leftovers_condition(Scan((own,))).status == "False"
    assert not leftovers_condition(Scan((own,))).type.counts_toward_ready(None)
