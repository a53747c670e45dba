"""The node's program is killed at every step of its store and of its exchange, and at random: it always recovers."""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import pytest
from cryptography import x509

from attestors.wire.names import CHALLENGE_ANNOTATION, NODE_USER_PREFIX, SUPPORTED_VERSIONS_ANNOTATION
from authenticator.model.failures import ExitCode
from authenticator.model.pair import parse_pair
from signer.testing.api import Request
from signer.testing.api.identity import User
from signer.testing.fixtures import embedded_api
from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.integration.authenticator.scene import (
    ATTEMPT,
    SIGNING_REQUESTS,
    WORKERS,
    Scene,
    blocks_of,
    evidence_in,
    posted_by,
    rewind_pause,
)
from tests.integration.fixtures import CONTROLLER_USER, provider_id
from tests.integration.requests import approve_as_somebody_else
from tests.support.challenge_attestor import ANSWER_FIELD, NEW_VERSION, OLD_VERSION, PROVIDER, answer_to
from tests.support.node_certificates import node_certificate
from tests.support.node_program import NodeProgram

pytestmark = pytest.mark.slow

SEED_VARIABLE: Final = "NODE_ATTESTATION_SEED"
"""Repeats the random events; what the controller does meanwhile is not repeated."""
CHALLENGE_ATTESTATION: Final = "tests.support.challenge_attestor:load"
SPARE_STEPS: Final = 8
"""A run's number of steps differs with the events of its watch."""
ANSWERED: Final = "after HTTPConnection.getresponse"
"""The API server has the first request."""
RANDOM_NODES: Final = 8
"""Many enough for none to get more live certificates than its record has room for: it would have to wait."""
RANDOM_RUNS: Final = 240
RANDOM_STEPS: Final = (12, 80, 200)
"""About as many as printing, the beginning of an exchange, and a whole join have."""
MOST_RUNS: Final = 6
"""To recover in, whatever happened."""


# One step after the other.


def kill_at_every_step(
    scene: Scene, prepare: Callable[[str], NodeProgram], *, at_most: int = 1, thin: bool = False, behind: str = ""
) -> int:
    """Kill one run at its first step, another at its second, and so on; each recovers. Returns how many were killed.

    ``thin`` leaves out the steps before a call that come right after another call: nothing happened in between. The
    first step is the one that is called ``behind``, where that is given: what comes earlier is another test's.
    """
    whole, names_file = prepare("whole"), scene.folder / "steps"
    scene.run(whole, steps=str(names_file))
    scene.recover(whole, at_most + 1)
    names = names_file.read_text().splitlines()
    starts = {number for number, name in enumerate(names, 1) if name.startswith("before")}
    first = 1 + names.index(behind) if behind else 1
    steps = [
        step
        for step in range(first, len(names) + SPARE_STEPS)
        if not thin or step not in starts or step - 1 in starts or step == 1
    ]

    def kill(step: int) -> int:
        program = prepare(f"step-{step}")
        ran = scene.run(program, step)
        try:
            scene.recover(program, at_most)
        except AssertionError as error:
            name = names[step - 1] if step <= len(names) else "the end"
            raise AssertionError(f"killed at step {step}, {name} ({ran})") from error
        shutil.rmtree(program.folder)
        return ran.exit_code

    with ThreadPoolExecutor(WORKERS) as workers:
        codes = list(workers.map(kill, steps))
    kills = codes.count(-signal.SIGKILL)
    print(f"{kills} kills at {len(names)} steps")
    assert kills > len(steps) - 3 * SPARE_STEPS
    return kills


def test_a_first_join_is_killed_at_every_step(scene: Scene) -> None:
    assert kill_at_every_step(scene, scene.joining) > 170
    for posted in scene.check_posted().values():
        assert len(posted) <= 2, posted  # a second one where nobody can know whether the first was sent


def test_a_renewal_is_killed_at_every_step(scene: Scene) -> None:
    assert kill_at_every_step(scene, scene.renewing, thin=True) > 60
    for posted in scene.check_posted().values():
        assert len(posted) <= 2, posted


def test_a_join_that_is_denied_once_is_killed_at_every_step(scene: Scene) -> None:
    administrator = Administrator(scene)
    scene.api.on_request(administrator.first)
    assert kill_at_every_step(scene, administrator.joining, at_most=2, thin=True, behind=ANSWERED) > 30
    for posted in scene.check_posted().values():
        assert 2 <= len(posted) <= 3, posted


def test_a_challenge_and_an_older_version_are_killed_at_every_step(undecided: Scene) -> None:
    undecided.attestation = CHALLENGE_ATTESTATION
    decider = Decider(undecided.cluster)
    undecided.api.on_request(decider.decide)
    hashed = undecided.cluster.ca_cert_hash

    def joining(name: str) -> NodeProgram:
        return undecided.joining(name, SimulatedNode(name, provider_id(name), hashed, PROVIDER))

    assert kill_at_every_step(undecided, joining, thin=True, behind=ANSWERED) > 100
    for posted in undecided.check_posted().values():
        last_key = [one for one in posted if one.public_key == posted[-1].public_key]
        assert [(one.evidence_version, one.step) for one in last_key] == [
            (NEW_VERSION, "first"),
            (OLD_VERSION, "first"),
            (OLD_VERSION, "answer"),
        ]
        assert len(posted) <= 5, posted


class Administrator:
    """Denies or deletes CSRs just before the controller approves them."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._done: set[str] = set()
        self.next = ""
        """``deny``, ``delete``, or nothing."""

    def joining(self, name: str) -> NodeProgram:
        """A node that joins."""
        return self._scene.joining(name)

    def first(self, method: str, path: str, user: User) -> None:
        """Deny the first CSR of each requester."""
        if (name := self._about_to_be_approved(method, path, user)) is None:
            return
        requester = self._scene.api.get(SIGNING_REQUESTS, name)["spec"]["username"]
        if requester not in self._done:
            self._done.add(requester)
            approve_as_somebody_else(self._scene.cluster, name, "Denied")

    def as_told(self, method: str, path: str, user: User) -> None:
        """Do what ``next`` says, once."""
        if (name := self._about_to_be_approved(method, path, user)) is None or not self.next:
            return
        told, self.next = self.next, ""
        if told == "deny":
            approve_as_somebody_else(self._scene.cluster, name, "Denied")
        else:
            self._scene.api.delete(SIGNING_REQUESTS, name)

    @staticmethod
    def _about_to_be_approved(method: str, path: str, user: User) -> str | None:
        if user.name != CONTROLLER_USER or method == "GET" or not path.endswith("/approval"):
            return None
        return path.split("/")[-2]


class Decider:
    """In the controller's place: knows one evidence version, and challenges everybody. Decides when a node looks."""

    def __init__(self, cluster: WorldCluster) -> None:
        self._cluster = cluster
        self._api = embedded_api(cluster)
        self._seen = 0
        self._challenges: dict[bytes, str] = {}

    def decide(self, method: str, path: str, user: User) -> None:
        """Decide whatever was posted since the last time."""
        if method != "GET" or SIGNING_REQUESTS not in path:
            return
        new = self._api.store.collection("certificates.k8s.io", SIGNING_REQUESTS).log.since(self._seen)
        self._seen = self._api.store.revision
        for change in new:
            if change.before is None:
                self._decide(change.after.value["metadata"]["name"])

    def _decide(self, name: str) -> None:
        csr = self._api.get(SIGNING_REQUESTS, name)
        posted = posted_by(csr)
        if posted.evidence_version == NEW_VERSION:
            self._deny(name, "UnsupportedVersion", {SUPPORTED_VERSIONS_ANNOTATION: OLD_VERSION})
        elif posted.step == "first":
            self._challenges[posted.public_key] = f"the challenge of {name}"
            self._deny(name, "ChallengeIssued", {CHALLENGE_ANNOTATION: self._challenges[posted.public_key]})
        elif evidence_in(csr)[ANSWER_FIELD] == answer_to(self._challenges[posted.public_key]):
            self._issue(name)

    def _deny(self, name: str, reason: str, annotations: dict[str, str]) -> None:
        self._api.patch(SIGNING_REQUESTS, name, {"metadata": {"annotations": annotations}})
        csr = self._api.get(SIGNING_REQUESTS, name)
        csr["status"] = {"conditions": [{"type": "Denied", "status": "True", "reason": reason, "message": "no"}]}
        self._api.update(csr, "approval")

    def _issue(self, name: str) -> None:
        csr = self._api.get(SIGNING_REQUESTS, name)
        csr["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "Live", "message": "yes"}]}
        csr = self._api.update(csr, "approval")
        request = x509.load_der_x509_csr(blocks_of(csr).certificate_request)
        node_name = request.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value
        certificate = node_certificate(
            self._cluster, request.public_key(), str(node_name).removeprefix(NODE_USER_PREFIX)
        )
        csr["status"]["certificate"] = base64.b64encode(certificate.encode("ascii")).decode("ascii")
        self._api.update(csr, "status")


# At random.


@pytest.mark.parametrize("told", ["deny", "delete"])
def test_each_refusal_means_a_new_key_after_a_longer_pause(scene: Scene, told: str) -> None:
    administrator = Administrator(scene)
    scene.api.on_request(administrator.as_told)
    program = scene.joining("refused")
    seconds = []
    for number in range(1, 5):
        administrator.next = told
        assert scene.run(program).exit_code == ExitCode.DENIED
        assert scene.run(program).exit_code == ExitCode.DENIED  # at once, and nothing was posted
        assert len(scene.posted()) == number
        attempt = json.loads((program.store / ATTEMPT).read_text())
        assert "pending" not in attempt
        assert attempt["pause"]["failures"] == number
        seconds.append(attempt["pause"]["until"] - time.time())
        rewind_pause(program)
    assert all(later > 1.5 * sooner for sooner, later in pairwise(seconds)), seconds
    scene.recover(program, 1)
    assert len({one.public_key for one in scene.posted()}) == 5
    scene.check_posted()


def test_killed_at_random_while_much_goes_wrong(scene: Scene) -> None:
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(2**32))
    print(f"{SEED_VARIABLE}={seed}")
    chance = random.Random(seed)
    administrator = Administrator(scene)
    scene.api.on_request(administrator.as_told)
    programs = [scene.joining(f"node-{number}") for number in range(RANDOM_NODES)]
    codes: Counter[int] = Counter()
    events: Counter[str] = Counter()
    for _ in range(RANDOM_RUNS):
        program = chance.choice(programs)
        event = chance.choice(list(EVENTS))
        events[event] += 1
        EVENTS[event](Turn(scene, program, administrator, chance))
        step = chance.randint(1, chance.choice(RANDOM_STEPS))
        codes[scene.run(program, step).exit_code] += 1
        scene.api.faults.clear()
        administrator.next = ""
        if chance.random() < 0.8:
            rewind_pause(program)
    print(dict(codes), dict(events))
    assert codes[-signal.SIGKILL] > RANDOM_RUNS // 3
    assert set(codes) <= {-signal.SIGKILL, 0, ExitCode.DENIED, ExitCode.UNAVAILABLE}
    for program in programs:
        rewind_pause(program)
        scene.recover(program, MOST_RUNS)
    scene.check_posted()


@dataclass(frozen=True)
class Turn:
    """What an event may act on."""

    scene: Scene
    program: NodeProgram
    administrator: Administrator
    chance: random.Random

    def nothing(self) -> None:
        """Only the kill."""

    def denied(self) -> None:
        """An administrator denies the next CSR."""
        self.administrator.next = "deny"

    def deleted(self) -> None:
        """An administrator deletes the next CSR before it is approved."""
        self.administrator.next = "delete"

    def all_deleted(self) -> None:
        """All CSRs are deleted, as kube-controller-manager does with those that are old."""
        for csr in self.scene.api.objects(SIGNING_REQUESTS):
            self.scene.api.delete(SIGNING_REQUESTS, csr["metadata"]["name"])

    def fault(self) -> None:
        """The API server refuses or drops some of the node's requests."""
        times = self.chance.randint(1, 3)
        passed = self.chance.randint(0, 2)

        def strikes(request: Request) -> bool:
            nonlocal passed
            if SIGNING_REQUESTS not in request.path or not request.user.name.startswith(NODE_USERS):
                return False
            passed -= 1
            return passed < 0

        match self.chance.choice((429, 500, 503, "before", "after")):
            case int(status):
                self.scene.api.faults.inject(strikes, status=status, retry_after_seconds=0, times=times)
            case "before":
                self.scene.api.faults.inject(strikes, drop="before", times=times)
            case _:
                self.scene.api.faults.inject(strikes, drop="after", times=times)

    def new_token(self) -> None:
        """Somebody supplies a new bootstrap kubeconfig."""
        self.program.supply_bootstrap(self.scene.cluster)

    def near_the_end(self) -> None:
        """The certificate is about to run out, and a renewal is due."""
        if self.program.client_pair.exists():
            key = parse_pair(self.program.client_pair.read_text()).key
            self.scene.store_old_pair(self.program, key)

    def installed_anew(self) -> None:
        """The machine's disk is new."""
        if self.program.store.exists():
            shutil.rmtree(self.program.store)
        self.program.supply_bootstrap(self.scene.cluster)


EVENTS: Final[dict[str, Callable[[Turn], None]]] = {
    one.__name__: one
    for one in (
        Turn.nothing,
        Turn.denied,
        Turn.deleted,
        Turn.all_deleted,
        Turn.fault,
        Turn.new_token,
        Turn.near_the_end,
        Turn.installed_anew,
    )
}
NODE_USERS: Final = ("system:bootstrap:", NODE_USER_PREFIX)
