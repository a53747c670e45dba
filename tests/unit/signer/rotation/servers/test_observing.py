"""A pass over the API servers: what each presents and accepts, behind load balancers of all kinds."""

from __future__ import annotations

import hashlib
import ssl

import pytest

from signer.authority.presented import Presented
from signer.rotation.servers import observing
from signer.rotation.servers.observation import Acceptance, Accepted, Refused
from signer.rotation.servers.observing import NoServersExpected
from signer.testing.api.authorities import Issuer
from tests.support.balancer import always_the_first
from tests.unit.signer.rotation.servers.support import (
    AUTHORITIES,
    NEW,
    OLD,
    A,
    B,
    by_machine,
    link,
    reasons,
    running,
    setting,
)


@pytest.mark.parametrize(
    ("presents", "links", "expected"),
    [
        (OLD, b"", Presented.OLD),
        (OLD, link(NEW, OLD), Presented.OLD_LINKED),
        (NEW, b"", Presented.NEW),
        (NEW, link(OLD, NEW), Presented.NEW_LINKED),
    ],
    ids=["old", "old linked", "new", "new linked"],
)
@pytest.mark.parametrize(
    ("accepts", "old", "new"),
    [
        ((OLD,), Accepted(), Refused()),
        ((OLD, NEW), Accepted(), Accepted()),
        ((NEW,), Refused(), Accepted()),
    ],
    ids=["accepts old", "accepts both", "accepts new"],
)
async def test_each_state_of_a_server(
    presents: Issuer,
    links: bytes,
    expected: Presented,
    accepts: tuple[Issuer, ...],
    old: Acceptance,
    new: Acceptance,
) -> None:
    with running(setting(A, presents, accepts, links)) as servers:
        observed = await servers.observe(A)
        (found,) = observed.observations
        assert (found.presented, found.accepts_old, found.accepts_new) == (expected, old, new)
        assert observed.unseen == ()


async def test_every_server_is_seen_behind_a_balancer_that_takes_turns() -> None:
    """The canaries do not take turns as well: each would reach one server only."""
    with running(setting(A), setting(B, NEW, (NEW,))) as servers:
        observed = await servers.observe(A, B)
        found = by_machine(observed)
        assert (found["a"].presented, found["a"].accepts_old, found["a"].accepts_new) == (
            Presented.OLD,
            Accepted(),
            Accepted(),
        )
        assert (found["b"].presented, found["b"].accepts_old, found["b"].accepts_new) == (
            Presented.NEW,
            Refused(),
            Accepted(),
        )
        assert {one.asked_at for one in found.values()} == {servers.balancer.server}
        assert servers.balancer.connections <= 8


async def test_a_server_is_named_that_lacks_the_new_authority() -> None:
    with running(setting(A), setting(B, accepts=(OLD,))) as servers:
        found = by_machine(await servers.observe(A, B))
        assert found["a"].accepts_new == Accepted()
        assert found["b"].accepts_new == Refused()


async def test_a_server_that_the_balancer_never_chooses_is_asked_at_its_address() -> None:
    with running(setting(A), setting(B, accepts=(OLD,)), choose=always_the_first) as servers:
        observed = await servers.observe(A, B)
        found = by_machine(observed)
        assert found["a"].asked_at == servers.balancer.server
        assert found["b"].asked_at == servers.apis["127.0.0.3"].server
        assert found["b"].accepts_new == Refused()
        assert servers.balancer.connections <= 3 * 8, "one round that shows A, and two that show nothing new"


async def test_the_number_of_connections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "TRIES_FOR_EACH_SERVER", 1)
    with running(setting(A), setting(B)) as servers:
        observed = await servers.observe(A, B)
        assert servers.balancer.connections == 2
        assert {one.asked_at for one in observed.observations} == {api.server for api in servers.apis.values()}


async def test_a_server_that_does_not_listen_is_unseen() -> None:
    with running(setting(A), setting(B), choose=always_the_first) as servers:
        servers.apis["127.0.0.3"].stop_listening()
        observed = await servers.observe(A, B)
        assert list(by_machine(observed)) == ["a"]
        assert "at https://127.0.0.3" in reasons(observed)["b"]
        assert "refused" in reasons(observed)["b"]


async def test_an_endpoint_that_does_not_listen_is_no_matter_where_the_addresses_answer() -> None:
    with running(setting(A), setting(B)) as servers:
        servers.balancer.backends = (("127.0.0.9", 9),)
        assert set(by_machine(await servers.observe(A, B))) == {"a", "b"}


async def test_what_is_told_of_the_certificate() -> None:
    one = setting(A)
    with running(one) as servers:
        (found,) = (await servers.observe(A)).observations
    der = ssl.PEM_cert_to_DER_cert(one.certificate[0].decode())
    assert found.certificate_digest == hashlib.sha256(der).hexdigest()
    assert found.not_after.tzinfo is not None


async def test_each_authority_issues_one_canary() -> None:
    with running(setting(A), setting(B)) as servers:
        await servers.observe(A, B)
        hashes = [one.certificate.public_key_hash for one in (AUTHORITIES.old, AUTHORITIES.new)]
        assert [authority for _, authority in servers.canaries] == hashes
        users = {request.user for api in servers.apis.values() for request in api.requests.matching()}
        assert users == {user for user, _ in servers.canaries}


async def test_no_server_is_expected() -> None:
    with running(setting(A)) as servers:
        with pytest.raises(NoServersExpected):
            await servers.observe()
        assert servers.balancer.connections == 0
