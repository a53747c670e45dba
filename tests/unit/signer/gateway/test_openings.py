"""What is open now: grants and connections as the watches report them."""

from __future__ import annotations

import ipaddress
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from attestors.wire.ssh.container_names import parse_container_address
from attestors.wire.ssh.key_line import parse_key_line
from signer.authority.ssh.authorities import UserAuthority
from signer.gateway.opening import Closed, ClosedReason, Opening
from signer.gateway.openings import LONGEST_OUT_OF_TOUCH, Openings, Refused, RefusedReason
from signer.kube.errors import ApiError, Cause, Unreachable
from signer.model.cluster import ClusterKey
from tests.support.access_grants import HOUR, NOW
from tests.support.access_objects import AUTHORITY_KEY, USER_KEY
from tests.support.gateway_grants import CLUSTER, UID, WORKLOAD, connection_secret, container_grant
from tests.unit.signer.authority.ssh.requests import authority_key

KEY: Final = parse_key_line(USER_KEY)
HERE: Final = ipaddress.ip_address("198.51.100.7")
OTHER: Final = UserAuthority(authority_key("ed25519", 301))


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def connection_refused(self, name: str, error: str) -> None:
        self.lines.append(f"{name}: {error}")

    def watch_failed(self, what: str, error: ApiError, retry_in_seconds: float) -> None:
        self.lines.append(f"{what}: {error}")


class World:
    """The two watches, and a clock."""

    def __init__(self, *grants: dict[str, Any], secrets: tuple[dict[str, Any], ...] | None = None) -> None:
        self.now: datetime = NOW
        self.seconds = 100.0
        self.log = Log()
        self.openings = Openings(now=lambda: self.now, monotonic=lambda: self.seconds, log=self.log)
        self.openings.connections.replaced(secrets if secrets is not None else (connection_secret(),))
        self.openings.grants.replaced(grants)
        self.openings.connections.synced()
        self.openings.grants.synced()

    def find(self, user: str = "shop_web-0_app", key: Any = KEY, source: Any = HERE) -> Opening:
        return self.openings.find(key, parse_container_address(user), source)

    def refused(self, *arguments: Any, **how: Any) -> Any:
        with pytest.raises(Refused) as caught:
            self.find(*arguments, **how)
        return caught.value.reason


def test_the_key_opens_its_container() -> None:
    world = World(container_grant())
    assert world.find().grant == "repair"
    assert world.find("shop_web-0").grant == "repair"
    assert world.openings.knows(KEY)
    assert not world.openings.knows(parse_key_line(AUTHORITY_KEY))


@pytest.mark.parametrize(
    "user", ["other_web-0_app", "shop_web-1_app", "shop_web-0_db", "shop_deploy.web_app", "shop_sts.web.0_app"]
)
def test_nothing_else_is_open(user: str) -> None:
    """Also another namespace (test 74 of the design brief)."""
    assert World(container_grant()).refused(user) is RefusedReason.NO_GRANT


def test_a_workload_opens_its_pods() -> None:
    """That a named pod belongs to it is proven when the container is looked up."""
    world = World(container_grant(WORKLOAD))
    for user in ("shop_deploy.web_app", "shop_deploy.web.3", "shop_anything-x7_app"):
        assert world.find(user).grant == "repair"
    for user in ("shop_deploy.api_app", "shop_sts.web_app", "shop_sts.web.0_app", "shop_deploy.web_db"):
        assert world.refused(user) is RefusedReason.NO_GRANT


def test_another_key_opens_nothing() -> None:
    assert World(container_grant()).refused(key=parse_key_line(AUTHORITY_KEY)) is RefusedReason.NO_GRANT


def test_a_connection_from_elsewhere_is_refused() -> None:
    world = World(container_grant(ingress=[{"ipBlock": {"cidr": "198.51.100.0/24"}}]))
    assert world.find().grant == "repair"
    assert world.find(source=ipaddress.ip_address("::ffff:198.51.100.9")).grant == "repair"
    for other in ("203.0.113.9", "2001:db8::1", "::ffff:203.0.113.9"):
        assert world.refused(source=ipaddress.ip_address(other)) is RefusedReason.SOURCE


def test_another_persons_grant_with_the_same_key_changes_nothing() -> None:
    """A key can be read in a grant, and written into another: the older grant decides who comes in."""
    copy = container_grant(name="copy", number=12, creator="mallory", created="2026-11-27T14:01:00Z")
    world = World(copy, container_grant(lifetime=timedelta(minutes=10)))
    assert world.find().creator == "alice"


def test_of_one_persons_grants_the_last_to_end_counts() -> None:
    second = container_grant(name="second", number=12, created="2026-11-27T14:01:00Z")
    world = World(container_grant(lifetime=timedelta(minutes=10)), second)
    assert world.find().grant == "second"
    assert World(second, container_grant()).openings.knows(KEY)


def test_the_same_container_of_another_cluster_is_another_one() -> None:
    staging = ClusterKey("team-a", "staging")
    other = container_grant(name="other", number=12, created="2026-11-27T14:01:00Z", clusterRef={"name": "staging"})
    world = World(container_grant(), other, secrets=(connection_secret(), connection_secret(staging)))
    assert world.find().cluster == CLUSTER


def test_a_cluster_without_a_connection_opens_nothing() -> None:
    assert World(container_grant(), secrets=()).refused() is ClosedReason.NOT_CONNECTED
    assert World(container_grant(), secrets=(connection_secret(CLUSTER, OTHER),)).refused() is (
        ClosedReason.AUTHORITY_UNKNOWN
    )


def test_a_secret_that_is_no_connection_is_said_and_takes_the_former_one_away() -> None:
    world = World(container_grant())
    broken = connection_secret()
    del broken["data"]["kubeconfig"]
    world.openings.connections.applied(broken)
    assert world.refused() is ClosedReason.NOT_CONNECTED
    assert "kubeconfig" in world.log.lines[0]


def test_out_of_touch_nobody_comes_in() -> None:
    """Of either watch; a failure alone is none."""
    for touched in ("grants", "connections"):
        world = World(container_grant())
        other = {"grants": "connections", "connections": "grants"}[touched]
        getattr(world.openings, touched).failed(Unreachable("refused", cause=Cause.REFUSED), 1.0)
        world.seconds += LONGEST_OUT_OF_TOUCH.total_seconds()
        assert world.find().grant == "repair"
        world.seconds += 1
        getattr(world.openings, other).synced()
        assert world.refused() is RefusedReason.OUT_OF_TOUCH
        assert world.log.lines
    assert Openings(now=lambda: NOW, monotonic=lambda: 0.0, log=Log()).knows(KEY) is False


def test_before_the_first_list_nobody_comes_in() -> None:
    openings = Openings(now=lambda: NOW, monotonic=lambda: 0.0, log=Log())
    with pytest.raises(Refused, match="out of touch"):
        openings.find(KEY, parse_container_address("shop_web-0_app"), HERE)


# Sessions


def listening(world: World) -> tuple[Opening, list[int], Any]:
    opening, calls = world.find(), []
    return opening, calls, world.openings.listen(opening.uid, lambda: calls.append(1))


def test_a_renewed_certificate_prolongs_a_session() -> None:
    world = World(container_grant())
    opening, calls, _ = listening(world)
    world.now += timedelta(minutes=20)
    world.openings.grants.applied(container_grant(now=world.now))
    assert len(calls) == 1
    assert world.openings.again(opening).ends == NOW + timedelta(minutes=20) + HOUR


@pytest.mark.parametrize(
    "change",
    [
        lambda world: world.openings.grants.removed(container_grant()),
        lambda world: world.openings.grants.replaced(()),
        lambda world: world.openings.grants.applied(container_grant(suspend=True)),
        lambda world: world.openings.connections.removed(connection_secret()),
        lambda world: world.openings.connections.applied(connection_secret(CLUSTER, OTHER)),
        lambda world: world.openings.grants.applied({**container_grant(), "status": {}}),
    ],
)
def test_sessions_are_told_of_what_ends_them(change: Any) -> None:
    world = World(container_grant())
    opening, calls, _ = listening(world)
    change(world)
    assert calls
    with pytest.raises(Closed):
        world.openings.again(opening)


def test_a_session_keeps_its_person_and_container() -> None:
    """The same object with a certificate for somebody else, or for another container, ends it."""
    pod = {"namespace": "shop", "pod": "db-0", "container": "app"}
    for other in (container_grant(creator="mallory"), container_grant(pod)):
        world = World(container_grant())
        opening = world.find()
        world.openings.grants.applied(other)
        with pytest.raises(Closed):
            world.openings.again(opening)


def test_a_grant_that_is_held_admits_nobody_and_keeps_its_sessions() -> None:
    """A hiccup of the controller: Ready is False, and the certificate stays."""
    world = World(container_grant())
    opening, calls, _ = listening(world)
    held = container_grant()
    held["status"]["conditions"][0]["status"] = "False"
    world.openings.grants.applied(held)
    assert calls
    assert world.openings.again(opening) == opening
    assert world.refused() is ClosedReason.NOT_READY
    with pytest.raises(Closed, match="not ready"):
        world.openings.require_admitted(opening)
    assert world.openings.knows(KEY), "the key's holder may read why"
    world.openings.grants.applied(container_grant())
    assert world.openings.require_admitted(opening) == world.find()


def test_a_grant_that_never_was_ready_is_not_known() -> None:
    """A client goes on to its next key."""
    waiting = container_grant()
    waiting["status"] = {"conditions": [{"type": "Ready", "status": "False"}]}
    assert not World(waiting).openings.knows(KEY)


def test_another_grant_under_the_same_name_is_another_one() -> None:
    world = World(container_grant())
    opening, calls, _ = listening(world)
    world.openings.grants.applied(container_grant(number=12))
    assert calls
    with pytest.raises(Closed):
        world.openings.again(opening)
    assert world.find().uid == UID.format(12)


def test_a_session_that_has_ended_is_not_told() -> None:
    world = World(container_grant())
    _, calls, end = listening(world)
    end()
    end()
    world.openings.grants.replaced(())
    assert not calls


def test_what_changes_nothing_tells_nobody() -> None:
    world = World(container_grant())
    _, calls, _ = listening(world)
    world.openings.grants.applied(container_grant())
    world.openings.grants.applied(container_grant(name="second", number=12))
    assert not calls


def test_at_its_end_a_certificate_opens_nothing() -> None:
    world = World(container_grant())
    world.now = NOW + HOUR
    assert world.refused() is ClosedReason.EXPIRED
