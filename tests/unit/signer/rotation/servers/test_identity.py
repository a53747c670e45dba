"""Which Machine a server's certificate names, and which servers are expected."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from signer.model.cluster import LONG_AGO, machine_view
from signer.rotation.servers.identity import (
    MAXIMUM_ASKED_ADDRESSES,
    MAXIMUM_CERTIFICATES,
    MAXIMUM_NAMES,
    Identities,
    Name,
    NotIdentified,
    ServerCertificate,
    expected_servers,
    read_server_certificate,
)
from signer.rotation.servers.observation import ExpectedServer
from signer.testing.api.authorities import Issuer, load_certificates

ISSUER = Issuer.new()
ONE = ExpectedServer("one", "node-1", ("10.0.0.1", "2001:db8::1", "node-1.internal"), ("10.0.0.1",))
TWO = ExpectedServer("two", "node-2", ("10.0.0.2",), ("10.0.0.2",))


def certificate(names: list[str], addresses: list[str]) -> ServerCertificate:
    return read_server_certificate((der(names, addresses),))


def der(names: list[str], addresses: list[str]) -> bytes:
    (leaf,) = load_certificates(ISSUER.serving(names, addresses)[0])
    return leaf.public_bytes(encoding=Encoding.DER)


def machine(
    name: str, *addresses: tuple[str, str], node: str = "", control_plane: bool = True, **metadata: Any
) -> dict[str, Any]:
    labels = {"cluster.x-k8s.io/control-plane": ""} if control_plane else {}
    return {
        "metadata": {"namespace": "default", "name": name, "labels": labels, **metadata},
        "spec": {"clusterName": "c"},
        "status": {
            "nodeRef": {"name": node},
            "addresses": [{"type": kind, "address": address} for kind, address in addresses],
        },
    }


def expected(*machines: dict[str, Any]) -> tuple[ExpectedServer, ...]:
    return expected_servers(machine_view(one) for one in machines)


@pytest.mark.parametrize(
    ("names", "addresses"),
    [
        (["node-1"], []),
        (["NODE-1"], []),
        (["kubernetes", "node-1", "api.example.com"], ["10.96.0.1", "10.0.0.1"]),
        ([], ["10.0.0.1"]),
        ([], ["2001:db8::1"]),
        ([], ["::ffff:10.0.0.1"]),
        (["node-1.internal"], ["10.0.0.9"]),
    ],
)
def test_names_of_one_machine_identify_it(names: list[str], addresses: list[str]) -> None:
    assert Identities((ONE, TWO), ("api.example.com",)).server_of(certificate(names, addresses)) == ONE


@pytest.mark.parametrize(
    ("names", "addresses"),
    [
        (["kubernetes"], ["10.96.0.1"]),
        (["node-3"], []),
        (["*.internal"], []),
        (["node-1.example.com"], []),
        (["10.0.0.1"], []),  # a DNS name
        (["node-1", "node-2"], []),
        (["node-1"], ["10.0.0.2"]),
        ([], []),
    ],
)
def test_other_names_identify_none(names: list[str], addresses: list[str]) -> None:
    with pytest.raises(NotIdentified):
        Identities((ONE, TWO), ("api.example.com",)).server_of(certificate(names, addresses))


def test_a_name_of_two_machines_identifies_neither() -> None:
    shared = ("10.0.0.7",)
    one, two = ExpectedServer("one", "node-1", shared, shared), ExpectedServer("two", "node-2", shared, shared)
    identities = Identities((one, two), ())
    with pytest.raises(NotIdentified):
        identities.server_of(certificate([], ["10.0.0.7"]))
    assert identities.server_of(certificate(["node-2"], ["10.0.0.7"])) == two


def test_a_node_name_that_is_the_address_name_of_another_machine_identifies_neither() -> None:
    one = ExpectedServer("one", "node-1", (), ())
    two = ExpectedServer("two", "node-2", ("node-1",), ())
    with pytest.raises(NotIdentified):
        Identities((one, two), ()).server_of(certificate(["node-1"], []))


def test_an_empty_name_is_of_no_machine() -> None:
    """A Machine whose Node has not registered has no node name, and no certificate can have that name."""
    nameless = ServerCertificate(frozenset({Name(x509.DNSName, "")}), LONG_AGO, "")
    with pytest.raises(NotIdentified):
        Identities((ExpectedServer("new", "", (), ()),), ()).server_of(nameless)


def test_the_endpoints_address_is_of_no_machine() -> None:
    """A virtual address is among the addresses of the Machine that holds it, and in every server's certificate."""
    holder = ExpectedServer("one", "node-1", ("10.0.0.1", "10.0.0.100"), ())
    identities = Identities((holder, TWO), ("10.0.0.100", "api.example.com"))
    assert identities.server_of(certificate(["node-2"], ["10.0.0.2", "10.0.0.100"])) == TWO
    with pytest.raises(NotIdentified):
        identities.server_of(certificate([], ["10.0.0.100"]))


@given(st.lists(st.sampled_from(["node-1", "node-2", "node-3"]), max_size=3), st.booleans())
def test_a_certificate_is_never_of_a_machine_that_it_does_not_name(names: list[str], reverse: bool) -> None:
    servers = (TWO, ONE) if reverse else (ONE, TWO)
    try:
        found = Identities(servers, ()).server_of(certificate(names, []))
    except NotIdentified:
        assert ("node-1" in names) == ("node-2" in names)
    else:
        assert found.node_name in names
        assert not ({"node-1", "node-2"} - {found.node_name}) & set(names)


def test_garbage_is_of_no_server() -> None:
    good = der(["node-1"], [])
    for chain in ((), (b"",), (good[:-1],), (good + b"\0",), (b"\x30\x80",), (good,) * (MAXIMUM_CERTIFICATES + 1)):
        with pytest.raises(NotIdentified):
            read_server_certificate(chain)


@given(st.binary(max_size=200), st.integers(min_value=0, max_value=500))
def test_a_changed_certificate_raises_nothing_else(inserted: bytes, position: int) -> None:
    changed = CERTIFICATE[:position] + inserted + CERTIFICATE[position + len(inserted) :]
    with contextlib.suppress(NotIdentified):
        read_server_certificate((changed,))


def test_a_certificate_with_too_many_names_is_of_no_server() -> None:
    names = ["node-1", *(f"x{number}" for number in range(MAXIMUM_NAMES))]
    with pytest.raises(NotIdentified, match="names"):
        certificate(names, [])
    assert len(certificate(names[:MAXIMUM_NAMES], []).names) == MAXIMUM_NAMES


def test_each_control_plane_machine_is_expected() -> None:
    found = expected(
        machine("b", ("InternalIP", "10.0.0.2"), ("InternalDNS", "b.internal"), ("Hostname", "b"), node="node-b"),
        machine("a", ("ExternalIP", "192.0.2.1"), ("InternalIP", "10.0.0.1/24"), ("InternalIP", "no address at all")),
        machine("worker", ("InternalIP", "10.0.0.3"), control_plane=False),
        machine("leaving", ("InternalIP", "10.0.0.4"), deletionTimestamp="2026-01-02T03:04:05Z"),
    )
    assert found == (
        ExpectedServer("a", "", ("10.0.0.1",), ("10.0.0.1", "192.0.2.1")),
        ExpectedServer("b", "node-b", ("10.0.0.2", "b.internal"), ("10.0.0.2",)),
    )


def test_few_addresses_of_a_machine_are_asked() -> None:
    (found,) = expected(machine("a", *(("InternalIP", f"10.0.0.{number}") for number in range(1, 100))))
    assert len(found.addresses) == MAXIMUM_ASKED_ADDRESSES
    assert len(found.internal_names) == 99


def test_a_machine_without_a_status_is_expected() -> None:
    assert expected({"metadata": {"name": "a", "labels": {"cluster.x-k8s.io/control-plane": ""}}}) == (
        ExpectedServer("a", "", (), ()),
    )


CERTIFICATE = der(["node-1"], ["10.0.0.1"])
