"""The serving certificate: asked for with the client certificate, for this node's names and addresses, and renewed."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import Mock

import pytest
from cryptography import x509
from keyed_mac.node import KeyedMACAgentPlugin

from attestors.contract import IPAddress
from attestors.wire.names import Purpose
from authenticator.configuration import Serving
from authenticator.flow import own_addresses as own
from authenticator.model.attempt import Attempt
from authenticator.model.certificate import load_key, new_key
from authenticator.model.failures import (
    Denied,
    ExitCode,
    InvalidConfiguration,
    NoCredential,
    StillPending,
    StoreUnusable,
)
from signer.testing.api import EmbeddedAPI
from signer.testing.fixtures import embedded_api
from signer.testing.world import WorldCluster
from tests.integration.authenticator.fixtures import (
    DAY,
    LONG_AGO,
    ClusterAdmin,
    Node,
    Timepiece,
    alternative_names,
    asked,
    asking,
    certificate_request,
    created,
    key_of,
)
from tests.integration.fixtures import Harness, node_of, provider_id
from tests.support.node_program import NodeProgram

FRESH: Final[dict[str, Any]] = {"age": LONG_AGO, "left": DAY}
ADDRESS: Final = "192.0.2.10"


@pytest.fixture
def node(node: Node) -> Node:
    """A node with a client certificate that wants a serving certificate."""
    node.put_pair(**FRESH)
    node.serve(addresses=[ADDRESS])
    return node


def sans(node: Node, *addresses: str) -> list[x509.GeneralName]:
    """The node's name and these addresses, as alternative names."""
    return [x509.DNSName(node.name), *(x509.IPAddress(ip_address(address)) for address in addresses)]


def test_it_is_asked_for_with_the_client_certificate_for_the_configured_names(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    node.serve("one.example", "two.example", addresses=[ADDRESS, "2001:db8:1::2"])
    with asking(node.certificates().serving) as answer:
        found = admin.next()
        certificate = admin.grant(found)
        use = answer.result()
    assert found["spec"]["username"] == f"system:node:{node.name}"
    assert found["spec"]["signerName"] == "cluster.x-k8s.io/kubelet-serving-keyed-mac"
    assert found["spec"]["usages"] == ["digital signature", "server auth"]
    wanted = [x509.DNSName("one.example"), x509.DNSName("two.example")]
    addresses = [x509.IPAddress(IPv4Address(ADDRESS)), x509.IPAddress(IPv6Address("2001:db8:1::2"))]
    assert alternative_names(certificate_request(found)) == [*wanted, *addresses]
    stored = node.store.pair(Purpose.SERVING)
    assert stored is not None
    assert stored.certificate == use.pair.certificate == certificate.decode()
    assert node.store.attempt(Purpose.SERVING) == Attempt()
    assert {entry.user for entry in asked(api)} == {f"system:node:{node.name}"}


def test_more_names_than_the_controller_reads_are_not_asked_for(
    api: EmbeddedAPI, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.serve(*(f"{'a' * 60}.name-{number}.example" for number in range(110)))
    gathered = Mock()
    monkeypatch.setattr(KeyedMACAgentPlugin, "gather", gathered)
    with pytest.raises(InvalidConfiguration, match=r"with its 110 DNS names and 1 addresses.*request fewer names"):
        node.certificates().serving()
    assert (asked(api), gathered.call_count) == ([], 0), "nor is any evidence gathered for them"


def test_a_request_whose_certificate_is_stored_is_not_waited_for_again(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash or the disk kept it from being forgotten; when the next one is due, the API server has deleted it."""

    def kept(path: Path) -> None:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr("authenticator.store.store.remove", kept)
    with pytest.raises(StoreUnusable), admin.granting():
        node.certificates().serving()
    monkeypatch.undo()
    former = node.store.pair(Purpose.SERVING)
    assert former is not None
    assert node.store.attempt(Purpose.SERVING).pending is not None
    for name in admin.names:
        api.delete("certificatesigningrequests", name)
    node.put_pair(age=LONG_AGO, left=9 * DAY)
    node.time.pass_by(former.renewal - node.time.now)
    with (
        asking(node.certificates().serving) as answer,
        admin.deciding(lambda found: admin.grant(found, not_after=node.time.now + DAY)),
    ):
        assert answer.result().pair.key != former.key
    assert node.store.attempt(Purpose.SERVING) == Attempt()


def test_other_users_cannot_read_its_file_which_holds_the_key(admin: ClusterAdmin, node: Node) -> None:
    with asking(node.certificates().serving) as answer, admin.granting():
        answer.result()
    path = node.store.pair_file(Purpose.SERVING)
    assert path.name == "kubelet-authenticator-serving.pem"
    assert path.stat().st_mode & 0o777 == 0o600
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    key = path.read_text()[path.read_text().index("-----BEGIN PRIVATE") :]
    assert load_key(key).public_key() == certificate.public_key()


def test_a_fresh_certificate_for_these_names_is_used_without_a_call(api: EmbeddedAPI, node: Node) -> None:
    pair = node.put_pair(**FRESH, purpose=Purpose.SERVING, names=sans(node, ADDRESS))
    use = node.certificates().serving()
    assert (use.pair.key, use.until) == (pair.key, pair.renewal)
    assert len(asked(api)) == 0


@pytest.mark.parametrize("order", [(ADDRESS, "192.0.2.11"), ("192.0.2.11", ADDRESS)])
def test_the_order_of_names_says_nothing(api: EmbeddedAPI, node: Node, order: tuple[str, ...]) -> None:
    node.put_pair(**FRESH, purpose=Purpose.SERVING, names=sans(node, ADDRESS, "192.0.2.11"))
    node.serve(addresses=order)
    node.certificates().serving()
    assert len(asked(api)) == 0


def test_it_is_renewed_with_a_new_key_when_a_fifth_is_left(admin: ClusterAdmin, node: Node) -> None:
    former = node.put_pair(age=8000, left=2000, purpose=Purpose.SERVING, names=sans(node, ADDRESS))
    with asking(node.certificates().serving) as answer, admin.granting():
        assert answer.result().pair.key != former.key


@pytest.mark.parametrize(
    "has", [[], ["192.0.2.11"], [ADDRESS, "192.0.2.11"]], ids=["without address", "another", "one more"]
)
def test_it_is_asked_for_again_when_the_addresses_changed(admin: ClusterAdmin, node: Node, has: list[str]) -> None:
    former = node.put_pair(**FRESH, purpose=Purpose.SERVING, names=sans(node, *has))
    with asking(node.certificates().serving) as answer:
        found = admin.next()
        admin.grant(found)
        assert answer.result().pair.key != former.key
    assert alternative_names(certificate_request(found)) == sans(node, ADDRESS)


def test_one_without_any_names_is_not_taken_for_ours(admin: ClusterAdmin, node: Node) -> None:
    former = node.put_pair(**FRESH, purpose=Purpose.SERVING)
    with asking(node.certificates().serving) as answer, admin.granting():
        assert answer.result().pair.key != former.key


def test_another_address_while_a_request_waits_is_another_request(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, nobody_decides: Timepiece
) -> None:
    with pytest.raises(StillPending, match=r"provider ID \S+, and addresses of each requested kind\?$"):
        node.certificates().serving()
    first = admin.next()
    node.serve(addresses=["192.0.2.99"])
    with pytest.raises(StillPending):
        node.certificates().serving()
    assert key_of(admin.next()) != key_of(first)
    assert len(created(api)) == 2


def test_refused_names_keep_the_former_pair_and_say_so(api: EmbeddedAPI, admin: ClusterAdmin, node: Node) -> None:
    former = node.put_pair(**FRESH, purpose=Purpose.SERVING, names=sans(node, "192.0.2.11"))
    with asking(node.certificates().serving) as answer:
        admin.decide(admin.next(), "Denied", "InvalidSubjectAlternativeNames", f"{ADDRESS} is not the Machine's")
        failure = answer.exception()
    assert isinstance(failure, Denied)
    assert f"{ADDRESS} is not the Machine's" in str(failure)
    stored = node.store.pair(Purpose.SERVING)
    assert stored is not None
    assert stored.encode() == former.encode()
    with pytest.raises(Denied, match="no retry before"):
        node.certificates().serving()
    assert len(created(api)) == 1


def test_a_route_that_is_gone_for_a_moment_costs_no_address(
    api: EmbeddedAPI, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "own_addresses", lambda: ())
    node.changes["serving"] = Serving()
    kept = node.put_pair(**FRESH, purpose=Purpose.SERVING, names=sans(node, ADDRESS))
    assert node.certificates().serving().pair.encode() == kept.encode()
    assert len(asked(api)) == 0


class Default:
    """The default route, which a test takes away and restores."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(own, "own_addresses", lambda: self.addresses)
        self.addresses: tuple[IPAddress, ...] = ()

    def is_of(self, *addresses: str) -> None:
        """From now on it goes out from these."""
        self.addresses = tuple(ip_address(address) for address in addresses)


@pytest.fixture
def default(node: Node, monkeypatch: pytest.MonkeyPatch) -> Default:
    node.changes["serving"] = Serving()
    return Default(monkeypatch)


IPV6: Final = "2001:db8::10"


def test_ipv4_that_is_gone_for_a_moment_costs_no_address(api: EmbeddedAPI, node: Node, default: Default) -> None:
    """As long as IPv6 is there and IPv4 is not: at boot, or while a lease is renewed."""
    kept = node.put_pair(**FRESH, purpose=Purpose.SERVING, names=sans(node, ADDRESS))
    certificates = node.certificates()
    for address, seconds in ((ADDRESS, 500), (IPV6, 500), (IPV6, 99), (ADDRESS, 500), (IPV6, 500), (IPV6, 0)):
        default.is_of(address)
        assert certificates.serving().pair.encode() == kept.encode()
        node.time.pass_by(seconds)
    assert len(asked(api)) == 0


def test_a_node_whose_name_is_not_signed_keeps_its_address_too(api: EmbeddedAPI, node: Node, default: Default) -> None:
    node.name = f"kubernetes-{node.name}"
    node.put_pair(**FRESH)
    kept = node.put_pair(**FRESH, purpose=Purpose.SERVING, names=sans(node, ADDRESS)[1:])
    for addresses in ([], [IPV6]):
        default.is_of(*addresses)
        assert node.certificates().serving().pair.encode() == kept.encode()
    assert len(asked(api)) == 0


def test_a_node_that_moved_to_ipv6_gets_there(admin: ClusterAdmin, node: Node, default: Default) -> None:
    node.put_pair(**FRESH, purpose=Purpose.SERVING, names=sans(node, ADDRESS))
    certificates = node.certificates()
    default.is_of(IPV6)
    certificates.serving()
    node.time.pass_by(600)
    with asking(certificates.serving) as answer:
        found = admin.next()
        admin.grant(found)
        answer.result()
    assert alternative_names(certificate_request(found)) == sans(node, IPV6)
    certificates.serving()  # and nothing more is asked


def test_a_node_that_moved_gets_its_new_address_with_a_renewal(
    admin: ClusterAdmin, node: Node, default: Default
) -> None:
    """As with ``request --serving``, which is a process of its own each time."""
    node.put_pair(age=8000, left=2000, purpose=Purpose.SERVING, names=sans(node, ADDRESS))
    default.is_of(IPV6)
    with asking(node.certificates().serving) as answer:
        found = admin.next()
        admin.grant(found)
        answer.result()
    assert alternative_names(certificate_request(found)) == sans(node, IPV6)


@pytest.mark.parametrize("stored", [IPV6, "192.0.2.11"], ids=["IPv4 comes late", "another lease"])
def test_an_ipv4_address_that_is_there_counts_at_once(
    admin: ClusterAdmin, node: Node, default: Default, stored: str
) -> None:
    node.put_pair(**FRESH, purpose=Purpose.SERVING, names=sans(node, stored))
    default.is_of(ADDRESS)
    with asking(node.certificates().serving) as answer:
        found = admin.next()
        admin.grant(found)
        answer.result()
    assert alternative_names(certificate_request(found)) == sans(node, ADDRESS)


def test_corrected_names_need_not_wait_for_the_pause_of_the_refused_ones(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    with asking(node.certificates().serving) as answer:
        admin.decide(admin.next(), "Denied", "InvalidSubjectAlternativeNames")
        assert isinstance(answer.exception(), Denied)
    node.serve(addresses=["192.0.2.12"])
    with asking(node.certificates().serving) as answer, admin.granting():
        answer.result()
    assert len(created(api)) == 2


def test_a_refused_renewal_keeps_the_former_pair_in_use(api: EmbeddedAPI, admin: ClusterAdmin, node: Node) -> None:
    former = node.put_pair(age=8000, left=2000, purpose=Purpose.SERVING, names=sans(node, ADDRESS))
    with asking(node.certificates().serving) as answer:
        admin.decide(admin.next(), "Denied", "MachinePaused")
        assert answer.result().pair.encode() == former.encode()
    assert "serving certificate was not renewed" in node.reports[-1]
    # During the pause too, without asking.
    assert node.certificates().serving().until == node.time.now + 60
    assert len(created(api)) == 1


def test_a_refused_serving_certificate_is_no_reason_to_pause_the_client_certificate(
    admin: ClusterAdmin, node: Node
) -> None:
    with asking(node.certificates().serving) as answer:
        admin.decide(admin.next(), "Denied", "InvalidSubjectAlternativeNames")
        assert isinstance(answer.exception(), Denied)
    assert node.store.attempt(Purpose.CLIENT) == Attempt()
    assert node.certificates().client().pair.key


def another_use(admin: ClusterAdmin, found: Any) -> bytes:
    return admin.sign(found, usages=(Purpose.CLIENT,))


def another_key(admin: ClusterAdmin, found: Any) -> bytes:
    return admin.sign(found, public_key=load_key(new_key()).public_key())


def another_name(admin: ClusterAdmin, found: Any) -> bytes:
    return admin.sign(found, names=[x509.DNSName("other.example")])


def without_the_address(admin: ClusterAdmin, found: Any) -> bytes:
    return admin.sign(found, names=alternative_names(certificate_request(found))[:1])


@pytest.mark.parametrize(
    "make", [another_use, another_key, another_name, without_the_address], ids=lambda one: one.__name__
)
def test_a_certificate_that_was_not_asked_for_is_refused(
    admin: ClusterAdmin, node: Node, make: Callable[[ClusterAdmin, Any], bytes]
) -> None:
    with asking(node.certificates().serving) as answer:
        found = admin.next()
        admin.issue(found, make(admin, found))
        failure = answer.exception()
    assert isinstance(failure, Denied)
    assert node.store.pair(Purpose.SERVING) is None


def test_one_of_other_names_does_not_replace_the_former_and_is_not_asked_for_at_every_turn(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    former = node.put_pair(age=8000, left=2000, purpose=Purpose.SERVING, names=sans(node, ADDRESS))
    with admin.deciding(lambda found: admin.issue(found, another_name(admin, found))):
        for _ in range(3):
            assert node.certificates().serving().pair.encode() == former.encode()
    stored = node.store.pair(Purpose.SERVING)
    assert stored is not None
    assert stored.encode() == former.encode()
    assert "other names or addresses than requested" in node.reports[-1]
    assert len(created(api)) == 1


@pytest.mark.parametrize("left", [None, -1])
def test_without_a_valid_client_certificate_it_cannot_be_asked_for(
    api: EmbeddedAPI, node: Node, left: int | None
) -> None:
    if left is None:
        node.store.pair_file(Purpose.CLIENT).unlink()
    else:
        node.put_pair(age=LONG_AGO, left=left)
    with pytest.raises(NoCredential, match="requested with the client certificate"):
        node.certificates().serving()
    assert len(asked(api)) == 0


def test_the_insecure_attestor_has_none_and_says_what_to_use(api: EmbeddedAPI, node: Node) -> None:
    node.changes |= {"provider": "insecure", "settings": {}}
    with pytest.raises(InvalidConfiguration, match="serverTLSBootstrap"):
        node.certificates().serving()
    with pytest.raises(InvalidConfiguration, match="serverTLSBootstrap"):
        node.certificates().check()
    assert len(asked(api)) == 0


# Which names and addresses.


class Routes:
    """Stands in for ``socket.socket``: knows from where the default route goes out."""

    def __init__(self, **addresses: str) -> None:
        self.addresses = {getattr(socket, family): address for family, address in addresses.items()}
        self.destinations: list[tuple[str, int]] = []

    def __call__(self, family: int, kind: int) -> Routes:
        assert kind == socket.SOCK_DGRAM  # so that connect sends nothing
        if family not in self.addresses:
            raise OSError(97, "Address family not supported by protocol")
        self.family = family
        return self

    def __enter__(self) -> Routes:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to close."""

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """As in a kernel that does not know it."""
        raise OSError(92, "Protocol not available")

    def connect(self, destination: tuple[str, int]) -> None:
        """Nothing is sent."""
        self.destinations.append(destination)
        if not self.addresses[self.family]:
            raise OSError(101, "Network is unreachable")

    def getsockname(self) -> tuple[str, int]:
        """As the kernel chose it."""
        return self.addresses[self.family], 40000


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        ({"AF_INET": "192.0.2.2", "AF_INET6": "2001:db8::2"}, ("192.0.2.2",)),
        ({"AF_INET": "127.0.0.1", "AF_INET6": "2001:db8::2"}, ("2001:db8::2",)),
        ({"AF_INET": "192.0.2.2"}, ("192.0.2.2",)),
        ({"AF_INET": "", "AF_INET6": "2001:db8::2"}, ("2001:db8::2",)),
        ({"AF_INET": "127.0.0.1", "AF_INET6": "::1"}, ()),
        ({"AF_INET": "169.254.7.7", "AF_INET6": "fe80::1"}, ()),
        ({"AF_INET": "0.0.0.0", "AF_INET6": "::"}, ()),  # noqa: S104 - nobody listens there
        ({}, ()),
    ],
)
def test_the_own_address_is_that_of_the_default_route(
    monkeypatch: pytest.MonkeyPatch, routes: dict[str, str], expected: tuple[str, ...]
) -> None:
    known = Routes(**routes)
    families = {name: getattr(socket, name) for name in ("AF_INET", "AF_INET6", "IPPROTO_IPV6", "SOCK_DGRAM")}
    monkeypatch.setattr(own, "socket", SimpleNamespace(socket=known, **families))
    assert tuple(str(address) for address in own.own_addresses()) == expected
    assert {host for host, _ in known.destinations} <= {"192.0.2.1", "2001:db8::1"}


PRIVACY: Final = """
set -e
ip link add here type veth peer name there
echo 2 > /proc/sys/net/ipv6/conf/here/use_tempaddr
ip link set here up
ip link set there up
ip -6 address add 2001:db8:1::10/64 dev here mngtmpaddr nodad
ip -6 route add default via 2001:db8:1::1 dev here
for _ in $(seq 100); do
  ip -6 address show dev here | grep -q temporary && ! ip -6 address show dev here | grep -q tentative && break
  sleep 0.1
done
ip -6 address show dev here | grep -q temporary
echo made >&2
exec "$@"
"""
"""A network of IPv6 alone, cut off from all others, and with addresses that change for privacy's sake."""


@pytest.mark.slow
def test_an_address_that_changes_for_privacys_sake_is_not_the_nodes() -> None:
    """Some distributions have them everywhere. The Machine does not know them, and the controller signs none."""
    ask = "from authenticator.flow.own_addresses import own_addresses; print(*own_addresses())"
    command = ["unshare", "--net", "sh", "-c", PRIVACY, "sh", sys.executable, "-c", ask]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError as error:
        pytest.skip(f"no unshare here: {error}")
    if not asked.stderr.startswith("made"):
        pytest.skip(f"no such network can be made here: {asked.stderr.strip()}")
    assert (asked.stderr, asked.stdout) == ("made\n", "2001:db8:1::10\n")


def test_own_addresses_of_this_machine_can_be_read() -> None:
    addresses: tuple[IPAddress, ...] = own.own_addresses()
    assert not any(address.is_loopback or address.is_unspecified for address in addresses)


@pytest.mark.parametrize(
    ("serving", "node_name", "expected"),
    [
        (Serving(), "worker", (("worker",), ("192.0.2.2",))),
        (Serving(("a.example",)), "worker", (("a.example",), ("192.0.2.2",))),
        (Serving((), (IPv4Address("192.0.2.9"),)), "worker", (("worker",), ("192.0.2.9",))),
        # The controller signs no name that begins so.
        (Serving(), "kubernetes-worker", ((), ("192.0.2.2",))),
        (Serving(("kubernetes-worker",)), "kubernetes-worker", (("kubernetes-worker",), ("192.0.2.2",))),
    ],
)
def test_names_are_the_configured_ones_or_the_nodes_own(
    monkeypatch: pytest.MonkeyPatch, serving: Serving, node_name: str, expected: tuple[tuple[str, ...], ...]
) -> None:
    monkeypatch.setattr(own, "own_addresses", lambda: (IPv4Address("192.0.2.2"),))
    assert own.serving_names(serving, node_name, own.own_addresses) == expected


def test_a_node_without_any_address_asks_for_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "own_addresses", lambda: ())
    assert own.serving_names(Serving(), "kubernetes-worker", own.own_addresses) == (("kubernetes-worker",), ())


# Through the controller.


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    cluster = harness.cluster()
    addresses = [("Hostname", "worker"), ("InternalIP", ADDRESS)]
    cluster.add_machine("worker", provider_id=provider_id("worker"), addresses=addresses)
    harness.run()
    return cluster


@pytest.mark.slow
def test_the_controller_signs_the_machines_addresses_and_no_others(cluster: WorldCluster, tmp_path: Path) -> None:
    program = NodeProgram(tmp_path / "node", node_of(cluster, "worker"), extra={"serving": {"ipAddresses": [ADDRESS]}})
    program.supply_bootstrap(cluster)
    ran = program.run("request", "--serving")
    assert ran.exit_code == ExitCode.DONE, ran.log
    certificate = x509.load_pem_x509_certificate(program.serving_pair.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["worker"]
    assert names.get_values_for_type(x509.IPAddress) == [IPv4Address(ADDRESS)]
    before = program.serving_pair.read_bytes()
    ran = program.run("request", "--serving", "--serving-ip-address", "192.0.2.66")
    assert ran.exit_code == ExitCode.DENIED
    assert "InvalidSubjectAlternativeNames" in ran.log
    assert program.serving_pair.read_bytes() == before


@pytest.mark.slow
def test_the_serving_certificate_of_a_renewed_node_is_signed(cluster: WorldCluster, tmp_path: Path) -> None:
    """It comes with the newest client certificate, which the controller's journal must know."""
    node = Node(tmp_path / "node", embedded_api(cluster), "worker")
    node.changes["settings"] = node_of(cluster, "worker").settings
    node.serve(addresses=[ADDRESS])
    node.supply_bootstrap()
    first = node.certificates().client()
    node.time.pass_by(first.pair.renewal - node.time.now)
    assert node.certificates().client().pair.key != first.pair.key
    assert node.certificates().serving().pair.key
