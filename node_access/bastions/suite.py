"""The contract as tests, which any provider runs against a fake of its cloud. It needs pytest.

A provider's own tests derive a class from :class:`BastionSuite` and give it a fake cloud::

    class TestMyProvider(BastionSuite):
        @pytest.fixture
        def cloud(self) -> Iterator[MyCloud]:
            with MyCloud() as cloud:
                yield cloud

:class:`FakeCloud` says what the fake must do. The suite calls the provider as the controller does: each time through a
new object (:meth:`FakeCloud.open`), as if the process had just started, and again until the answer is final. For each
:class:`Fault` it lets the first call fail, then the second, and so on, until the provider is through without a fault.
"""

from __future__ import annotations

import datetime as time
import enum
import ipaddress
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from attestors.wire.ssh.signatures import public_key_of
from node_access.bastions.contract import (
    LOGIN,
    SELF_DESTRUCTION_GRACE,
    Bastion,
    BastionProvider,
    BastionReference,
    BastionResources,
    Broken,
    CallFailed,
    Deadline,
    Gone,
    InvalidSettings,
    IPAddress,
    Network,
    OutOfTime,
    Pending,
    Ready,
    Scope,
    SettingsDocuments,
    Target,
)
from node_access.bastions.host_key import BastionHostKey

OWNER: Final = "suite"
SECONDS: Final = 60.0
TURNS: Final = 60
"""How often a provider may answer :class:`~node_access.bastions.contract.Pending`."""
CALLS: Final = 60
"""The most calls that one :class:`Fault` is tried after."""


class Killed(BaseException):
    """The process ends here. No provider catches it."""


class Fault(enum.Enum):
    """What happens to one call to the cloud."""

    KILLED = "the process is killed after the call"
    ANSWER_LOST = "the call takes effect, and its answer is lost"
    NOT_REACHED = "the call fails without effect"
    NOT_PERMITTED = "the cloud refuses the call for want of a permission"


class FakeCloud(Protocol):
    """A provider's cloud, and what exists in it. A fake may be a real program, as sshd is for ``local``."""

    faults: frozenset[Fault]
    """Those that this cloud knows."""
    kinds: tuple[str, ...]
    """The kinds of resources that somebody else may delete, such as ``instance``."""
    rules_can_be_widened: bool
    """Whether somebody else can open the firewall (:meth:`widen`)."""
    settings: Mapping[str, Any]
    """Valid settings of the operator."""
    families: frozenset[int]
    """4, 6: the IP versions of ingress that this cloud serves."""
    without_ipv6: Mapping[str, Any]
    """The operator's settings that serve no IPv6 ingress; the same as :attr:`settings` where no setting says so."""
    elsewhere: Sequence[Mapping[str, Any]]
    """The operator's settings, each with one change after which the provider does not find what it made before."""

    @property
    def provider(self) -> BastionProvider:
        """The provider."""
        ...

    def open(self, owner: str = OWNER) -> BastionResources:
        """The provider's bastions, from a process that has just started."""
        ...

    def now(self) -> time.datetime:
        """The cloud's time."""
        ...

    def inject(self, fault: Fault, call: int) -> None:
        """From now on, the call with that number (from 0) has that fault, once."""
        ...

    def has_failed(self) -> bool:
        """Whether the injected fault has happened."""
        ...

    def settle(self) -> None:
        """Time passes: what is being made or removed is made or removed."""
        ...

    def resources(self, uid: str) -> Sequence[str]:
        """Everything that exists for that Bastion, also what runs: one text each."""
        ...

    def complete(self) -> int:
        """How many resources a whole bastion has."""
        ...

    def open_to(self, uid: str) -> frozenset[Network]:
        """The networks from which the cloud lets connections to the bastion's port through."""
        ...

    def destinations(self, uid: str) -> frozenset[tuple[IPAddress, int]]:
        """What the cloud, or the bastion's sshd, lets the bastion reach."""
        ...

    def widen(self, uid: str) -> None:
        """Somebody else opens the bastion's firewall to another network."""
        ...

    def lose(self, uid: str, kind: str) -> None:
        """Somebody else deletes a resource, or all that the kind names."""
        ...

    def add_foreign(self, bastion: Bastion) -> Callable[[], bool]:
        """Make resources that look like this bastion's by every name, without its tags. The result says whether all
        are unchanged.
        """
        ...

    def ends_at(self, uid: str) -> time.datetime:
        """When the bastion ends although nobody calls the provider."""
        ...


Change: TypeAlias = Callable[[Bastion], Bastion]


def network(text: str) -> Network:
    """A network."""
    return ipaddress.ip_network(text)


def make_bastion(cloud: FakeCloud, *, uid: str = "", ingress: Sequence[str] = ("198.51.100.7/32",)) -> Bastion:
    """A bastion of an hour."""
    uid = uid or str(uuid.uuid4())
    grant = str(uuid.uuid5(uuid.UUID(uid), "grant"))
    authority = Ed25519PrivateKey.from_private_bytes(b"a" * 32)
    return Bastion(
        reference=BastionReference(uid, "team-a", f"grant-{uid[:8]}", "production"),
        ingress=tuple(map(network, ingress)),
        user_authorities=(public_key_of(authority),),
        principal=f"{LOGIN}@{grant}",
        targets=(Target((ipaddress.ip_address("10.0.1.5"), ipaddress.ip_address("10.0.1.6")), 22),),
        not_after=cloud.now().replace(microsecond=0) + time.timedelta(hours=1),
        host_key=BastionHostKey(uuid.UUID(uid).bytes * 2),
    )


def bring_up(cloud: FakeCloud, bastion: Bastion) -> Ready:
    """Call ``ensure`` as the controller does, through faults, until the bastion is ready."""
    answer: object = None
    for _ in range(TURNS):
        try:
            answer = cloud.open().ensure(bastion, Deadline.after(SECONDS))
        except (Killed, CallFailed, OutOfTime) as fault:
            answer = fault
            continue
        if isinstance(answer, Ready):
            return answer
        if isinstance(answer, Broken) and answer.final:
            pytest.fail(f"the provider gives up: {answer.reason}")
        cloud.settle()
    return pytest.fail(f"not ready after {TURNS} calls of ensure: {answer!r}")


def ensure_until_fault(cloud: FakeCloud, bastion: Bastion) -> object:
    """Call ``ensure`` as the controller does, until the injected fault has happened, or the bastion is ready."""
    answer: object = None
    for _ in range(TURNS):
        answer = one_round(cloud, bastion, lambda bastions: bastions.ensure(bastion, Deadline.after(SECONDS)))
        if cloud.has_failed() or isinstance(answer, Ready):
            return answer
        cloud.settle()
    return pytest.fail(f"neither a fault nor ready: {answer!r}")


def take_down(cloud: FakeCloud, bastion: Bastion) -> None:
    """Call ``delete`` as the controller does, through faults, until the bastion is gone."""
    answer: object = None
    for _ in range(TURNS):
        try:
            answer = cloud.open().delete(bastion.reference, Deadline.after(SECONDS))
        except (Killed, CallFailed, OutOfTime) as fault:
            answer = fault
            continue
        if isinstance(answer, Gone):
            return
        cloud.settle()
    pytest.fail(f"not gone after {TURNS} calls of delete: {answer!r}")


def faults_of(cloud: FakeCloud, fault: Fault, stride: int = 1) -> Iterator[int]:
    """Inject the fault into call 0, 1, and so on; ends when a round comes to no fault."""
    if fault not in cloud.faults:
        pytest.skip(f"this cloud does not know: {fault.value}")
    for number in range(0, CALLS, stride):
        cloud.inject(fault, number)
        yield number
        if not cloud.has_failed():
            assert number > 0, "the fake injects no fault"
            return
    pytest.fail(f"more than {CALLS} calls")


def one_round(cloud: FakeCloud, bastion: Bastion, action: Callable[[BastionResources], object]) -> object:
    """One call of the provider; a fault is its answer."""
    try:
        return action(cloud.open())
    except (Killed, CallFailed, OutOfTime) as fault:
        return fault


class BastionSuite:
    """The contract. Each test is one sentence of it."""

    stride: int = 1
    """A fault is injected into each call, or into every second, and so on, to save time. 1 is the whole contract."""

    @pytest.fixture
    def cloud(self) -> Iterator[FakeCloud]:
        """The provider's fake cloud. A derived class overrides this."""
        raise NotImplementedError

    # Making

    def test_a_bastion_becomes_ready_with_exactly_its_rules(self, cloud: FakeCloud) -> None:
        bastion = make_bastion(cloud)
        ready = bring_up(cloud, bastion)
        uid = bastion.reference.uid
        assert ready.host_keys == (public_key_of(bastion.host_key.private_key()),)
        assert len(cloud.resources(uid)) == cloud.complete()
        assert cloud.open_to(uid) == frozenset(bastion.ingress)
        assert cloud.destinations(uid) == frozenset(bastion.destinations)

    def test_ensuring_twice_makes_one(self, cloud: FakeCloud) -> None:
        bastion = make_bastion(cloud)
        first = bring_up(cloud, bastion)
        made = sorted(cloud.resources(bastion.reference.uid))
        assert bring_up(cloud, bastion) == first
        assert sorted(cloud.resources(bastion.reference.uid)) == made

    @pytest.mark.parametrize("fault", [Fault.KILLED, Fault.ANSWER_LOST, Fault.NOT_REACHED])
    def test_a_fault_in_any_call_of_ensure_makes_one(self, cloud: FakeCloud, fault: Fault) -> None:
        for _ in faults_of(cloud, fault, self.stride):
            bastion = make_bastion(cloud)
            bring_up(cloud, bastion)
            uid = bastion.reference.uid
            assert len(cloud.resources(uid)) == cloud.complete(), cloud.resources(uid)
            assert cloud.open_to(uid) == frozenset(bastion.ingress)
            assert cloud.destinations(uid) == frozenset(bastion.destinations)
            take_down(cloud, bastion)

    def test_a_bastion_past_its_end_is_not_made(self, cloud: FakeCloud) -> None:
        bastion = replace(make_bastion(cloud), not_after=cloud.now() - time.timedelta(seconds=1))
        assert isinstance(cloud.open().ensure(bastion, Deadline.after(SECONDS)), Broken)
        assert list(cloud.resources(bastion.reference.uid)) == []

    def test_a_passed_deadline_returns_at_once(self, cloud: FakeCloud) -> None:
        bastion = make_bastion(cloud)
        past = Deadline(0.0, lambda: 1.0)
        answer = one_round(cloud, bastion, lambda bastions: bastions.ensure(bastion, past))
        assert isinstance(answer, OutOfTime | Pending | CallFailed)
        take_down(cloud, bastion)

    # Ingress

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (["198.51.100.7/32", "203.0.113.0/24"], ["198.51.100.7/32"]),
            (["198.51.100.7/32"], ["198.51.100.7/32", "203.0.113.0/24"]),
            (["198.51.100.7/32"], ["203.0.113.9/32"]),
        ],
        ids=["removed", "added", "replaced"],
    )
    def test_ingress_converges_in_both_directions(self, cloud: FakeCloud, before: list[str], after: list[str]) -> None:
        bastion = make_bastion(cloud, ingress=before)
        first = bring_up(cloud, bastion)
        changed = replace(bastion, ingress=tuple(map(network, after)))
        assert bring_up(cloud, changed).endpoint == first.endpoint
        assert cloud.open_to(bastion.reference.uid) == frozenset(changed.ingress)

    @pytest.mark.parametrize("fault", [Fault.KILLED, Fault.ANSWER_LOST, Fault.NOT_REACHED])
    def test_a_fault_in_any_call_leaves_no_former_network_open(self, cloud: FakeCloud, fault: Fault) -> None:
        bastion = make_bastion(cloud, ingress=["198.51.100.7/32", "203.0.113.0/24"])
        bring_up(cloud, bastion)
        ingress = [["198.51.100.7/32"], ["203.0.113.0/24"]]
        for number in faults_of(cloud, fault, self.stride):
            changed = replace(bastion, ingress=tuple(map(network, ingress[number % 2])))
            bring_up(cloud, changed)
            assert cloud.open_to(bastion.reference.uid) == frozenset(changed.ingress)

    def test_a_rule_that_somebody_else_added_is_removed(self, cloud: FakeCloud) -> None:
        if not cloud.rules_can_be_widened:
            pytest.skip("nobody else changes the firewall of this cloud")
        bastion = make_bastion(cloud)
        bring_up(cloud, bastion)
        cloud.widen(bastion.reference.uid)
        bring_up(cloud, bastion)
        assert cloud.open_to(bastion.reference.uid) == frozenset(bastion.ingress)

    @pytest.mark.parametrize(
        "ingress", [["2001:db8::7/128"], ["198.51.100.7/32", "2001:db8:7::/48"]], ids=["IPv6 only", "mixed"]
    )
    def test_ingress_of_either_family(self, cloud: FakeCloud, ingress: list[str]) -> None:
        if 6 not in cloud.families:
            pytest.skip("this cloud has no IPv6")
        bastion = make_bastion(cloud, ingress=ingress)
        bring_up(cloud, bastion)
        assert cloud.open_to(bastion.reference.uid) == frozenset(bastion.ingress)

    def test_an_ingress_that_is_not_served_closes_the_former_one(self, cloud: FakeCloud) -> None:
        if cloud.without_ipv6 == cloud.settings:
            pytest.skip("no setting of this provider excludes IPv6")
        cloud.settings = cloud.without_ipv6
        bastion = make_bastion(cloud, ingress=["198.51.100.7/32", "203.0.113.0/24"])
        bring_up(cloud, bastion)
        changed = replace(bastion, ingress=(network("203.0.113.0/24"), network("2001:db8::7/128")))
        answers: list[object] = []
        while not answers or (not isinstance(answers[-1], Broken) and len(answers) < TURNS):
            answers.append(cloud.open().ensure(changed, Deadline.after(SECONDS)))
            cloud.settle()
        assert isinstance(answers[-1], Broken), answers[-1]
        assert cloud.open_to(bastion.reference.uid) <= frozenset(changed.ingress)
        take_down(cloud, bastion)

    # Targets

    def test_targets_become_others(self, cloud: FakeCloud) -> None:
        bastion = make_bastion(cloud)
        bring_up(cloud, bastion)
        changed = replace(bastion, targets=(Target((ipaddress.ip_address("10.0.1.6"),), 22),))
        bring_up(cloud, changed)
        assert cloud.destinations(bastion.reference.uid) == frozenset(changed.destinations)

    # Deleting

    def test_deleting_leaves_nothing(self, cloud: FakeCloud) -> None:
        bastion, other = make_bastion(cloud), make_bastion(cloud)
        bring_up(cloud, bastion)
        bring_up(cloud, other)
        take_down(cloud, bastion)
        assert list(cloud.resources(bastion.reference.uid)) == []
        assert len(cloud.resources(other.reference.uid)) == cloud.complete()

    def test_deleting_what_never_was(self, cloud: FakeCloud) -> None:
        bastion = make_bastion(cloud)
        assert cloud.open().delete(bastion.reference, Deadline.after(SECONDS)) == Gone()

    @pytest.mark.parametrize("fault", list(Fault))
    def test_a_fault_in_any_call_of_delete_leaves_nothing(self, cloud: FakeCloud, fault: Fault) -> None:
        bastion = make_bastion(cloud)
        bring_up(cloud, bastion)
        for _ in faults_of(cloud, fault, self.stride):
            answer = one_round(
                cloud,
                bastion,
                lambda bastions: bastions.delete(bastion.reference, Deadline.after(SECONDS)),  # noqa: B023
            )
            if isinstance(answer, Gone):
                assert list(cloud.resources(bastion.reference.uid)) == []
            if fault is Fault.NOT_PERMITTED and cloud.has_failed():
                assert isinstance(answer, Pending), answer
                assert answer.reason
            take_down(cloud, bastion)
            assert list(cloud.resources(bastion.reference.uid)) == []
            if cloud.has_failed():
                bastion = make_bastion(cloud)
                bring_up(cloud, bastion)

    @pytest.mark.parametrize("fault", [Fault.KILLED, Fault.ANSWER_LOST, Fault.NOT_REACHED])
    def test_a_half_made_bastion_is_listed_and_deleted(self, cloud: FakeCloud, fault: Fault) -> None:
        if fault not in cloud.faults:
            pytest.skip(f"this cloud does not know: {fault.value}")
        for number in range(0, CALLS, self.stride):
            bastion = make_bastion(cloud)
            uid = bastion.reference.uid
            cloud.inject(fault, number)
            if isinstance(ensure_until_fault(cloud, bastion), Ready):
                break
            listed = {one.reference.uid for one in cloud.open().list(Scope(OWNER), Deadline.after(SECONDS))}
            if cloud.resources(uid):
                assert uid in listed, cloud.resources(uid)
            take_down(cloud, bastion)
            assert list(cloud.resources(uid)) == []
            assert cloud.open().list(Scope(OWNER), Deadline.after(SECONDS)) == ()
        else:
            pytest.fail(f"more than {CALLS} calls")

    def test_deleting_what_somebody_else_deleted_in_part(self, cloud: FakeCloud) -> None:
        for kind in cloud.kinds:
            bastion = make_bastion(cloud)
            bring_up(cloud, bastion)
            cloud.lose(bastion.reference.uid, kind)
            take_down(cloud, bastion)
            assert list(cloud.resources(bastion.reference.uid)) == [], kind

    # Others

    def test_resources_of_others_stay(self, cloud: FakeCloud) -> None:
        bastion = make_bastion(cloud)
        are_unchanged = cloud.add_foreign(bastion)
        bring_up(cloud, bastion)
        assert are_unchanged()
        assert len(cloud.open().list(Scope(OWNER), Deadline.after(SECONDS))) == 1
        take_down(cloud, bastion)
        assert are_unchanged()
        assert cloud.open().list(Scope(OWNER), Deadline.after(SECONDS)) == ()

    def test_another_owner_has_its_own(self, cloud: FakeCloud) -> None:
        bastion = make_bastion(cloud)
        bring_up(cloud, bastion)
        assert cloud.open("another").list(Scope("another"), Deadline.after(SECONDS)) == ()
        assert cloud.open("another").delete(bastion.reference, Deadline.after(SECONDS)) == Gone()
        assert len(cloud.resources(bastion.reference.uid)) == cloud.complete()

    def test_listed_with_the_uid_and_age(self, cloud: FakeCloud) -> None:
        bastions = [make_bastion(cloud), make_bastion(cloud)]
        for bastion in bastions:
            bring_up(cloud, bastion)
        listed = cloud.open().list(Scope(OWNER), Deadline.after(SECONDS))
        assert {one.reference for one in listed} == {bastion.reference for bastion in bastions}
        assert all(time.timedelta() <= one.age < time.timedelta(minutes=5) for one in listed)

    # Places

    def test_settings_under_which_resources_are_not_found_are_another_place(self, cloud: FakeCloud) -> None:
        provider = cloud.provider
        own = provider.place(provider.settings(SettingsDocuments(cloud.settings)))
        assert own == provider.place(provider.settings(SettingsDocuments(dict(cloud.settings))))
        for changed in cloud.elsewhere:
            other = provider.place(provider.settings(SettingsDocuments(changed)))
            assert {name for name, _ in own.settings} == {name for name, _ in other.settings}
            assert own != other, changed

    # The end

    def test_it_ends_by_itself(self, cloud: FakeCloud) -> None:
        bastion = make_bastion(cloud)
        bring_up(cloud, bastion)
        late = cloud.ends_at(bastion.reference.uid) - (bastion.not_after + SELF_DESTRUCTION_GRACE)
        assert abs(late) <= time.timedelta(seconds=2)  # clouds count in seconds

    # Settings

    def test_an_unknown_setting_is_refused(self, cloud: FakeCloud) -> None:
        settings = dict(cloud.settings)
        cloud.provider.settings(SettingsDocuments(settings))
        with pytest.raises(InvalidSettings):
            cloud.provider.settings(SettingsDocuments({**settings, "unheard-of": True}))
        with pytest.raises(InvalidSettings):
            cloud.provider.settings(SettingsDocuments(settings, {"unheard-of": True}))
