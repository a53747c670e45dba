"""How many files of the product one serving request runs through, and how many of them before it is judged.

What counts as touched: a Python function of the file is called, or a coroutine of it goes on, on the controller's event
loop, between the moment at which the watch hands the CSR to the informer and the moment at which the certificate is
published, and

* inside the informer's call that takes the CSR, or
* in a task of the cluster's workers.

So the watch's own reading of the API server's answers does not count, nor do reconcilers that happen to run meanwhile;
what a worker does through the HTTP client does, and what the caches' listeners do when a worker has written a record.
``signer`` and ``attestors`` count, without ``signer/testing``; the attestor is the tests' own, so none of the product's
attestors is among the files. The controller runs as it does by default: without an audit log.

"Before it is judged" is all that is touched until the decider is asked: what keeps, queues and takes the request. The
decider's first act is to read it. "Before the first check" is all until the first function that ``signer.rules.checks``
lists judges: that reading and the first steps of the plan are among it, too. Both are bounded.

The files do not vary from run to run, but for one: the client's throttle is asked for a pause only when a call has
taken some CPU time.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

from attestors.wire import provider_id as provider_id_format
from signer.controller.requests.informer import RequestInformer
from signer.controller.requests.publisher import Publisher
from signer.controller.run import ControllerOptions
from signer.decision.decider import DecidedRequest, Decider
from signer.model.certificate_request import parse_certificate_request
from signer.rules import machine, node_name, plan, shape
from signer.testing.world import RunningController, WorldCluster
from tests.integration.fixtures import CONTROLLER_USER, MASTERS, Harness, keyed_mac
from tests.integration.kubelets import add_machine, attest
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parents[2]
PRODUCT: Final = tuple(f"{ROOT / folder}/" for folder in ("signer", "attestors"))
NOT_COUNTED: Final = (
    f"{ROOT / 'signer' / 'testing'}/",
    # The client asks it only when a chunk of an answer took so much CPU time as on a machine that is busy otherwise.
    f"{ROOT / 'attestors/net/rate_limiter.py'}",
)

MOST_FILES: Final = 84
MOST_FILES_BEFORE_IT_IS_JUDGED: Final = 11
MOST_FILES_BEFORE_THE_FIRST_CHECK: Final = 27


BEFORE_IT_IS_JUDGED: Final = "before it is judged"
BEFORE_THE_FIRST_CHECK: Final = "then, before the first check"
FROM_THE_FIRST_CHECK_ON: Final = "from the first check on"


@dataclass
class Touched:
    """What was touched for one CSR; a profile function of the controller's thread."""

    csr: str
    files: dict[str, str] = field(default_factory=dict)
    """Each file, and when it was touched first."""
    calls: Counter[CodeType] = field(default_factory=Counter)
    handed_over: bool = False
    taking: bool = False
    when: str = BEFORE_IT_IS_JUDGED
    published: bool = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not self.handed_over or self.published or not (self.taking or _in_a_worker()):
            return
        code = frame.f_code
        self.calls[code] += 1
        if code.co_filename.startswith(PRODUCT) and not code.co_filename.startswith(NOT_COUNTED):
            self.files.setdefault(code.co_filename.removeprefix(f"{ROOT}/"), self.when)

    def count(self, function: Any) -> int:
        """How often a function was called."""
        return self.calls[function.__code__]

    def first_touched(self, when: str) -> list[str]:
        """The files that were touched first at that time."""
        return [name for name, first in self.files.items() if first == when]

    def __str__(self) -> str:
        times = (BEFORE_IT_IS_JUDGED, BEFORE_THE_FIRST_CHECK, FROM_THE_FIRST_CHECK_ON)
        return "\n".join(
            "\n  ".join([f"{len(self.first_touched(when))} files {when}:", *self.first_touched(when)]) for when in times
        )


def _in_a_worker() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.get_name().endswith(" worker")


@pytest.fixture
def touched(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Touched:
    """One serving request of an attested node, from the watch event to the published certificate."""
    cluster = harness.cluster()
    add_machine(cluster, "m", "192.0.2.10")
    connection = harness.api.connection(CONTROLLER_USER, MASTERS)
    running = harness.start(options=ControllerOptions(), connection=connection, attestors=keyed_mac())
    harness.wait_for_condition(cluster, "Ready", "True")
    return _traced(cluster, running, monkeypatch)


def _traced(cluster: WorldCluster, running: RunningController, monkeypatch: pytest.MonkeyPatch) -> Touched:
    kubelet, found = attest(cluster, "m"), Touched("serving")
    applied, publish, run_checks = RequestInformer.applied, Publisher.approve_and_sign, plan.run_checks
    decide = Decider.decide

    def applied_traced(self: RequestInformer, item: dict[str, Any]) -> None:
        found.taking = not found.handed_over and item["metadata"]["name"] == found.csr
        found.handed_over |= found.taking
        try:
            applied(self, item)
        finally:
            found.taking = False

    async def publish_traced(self: Publisher, manifest: Any, request: Any, decision: Any) -> None:
        await publish(self, manifest, request, decision)
        found.published |= manifest["metadata"]["name"] == found.csr

    async def decide_traced(self: Decider, manifest: Any) -> DecidedRequest:
        if found.handed_over and manifest["metadata"]["name"] == found.csr:
            found.when = BEFORE_THE_FIRST_CHECK
        return await decide(self, manifest)

    def run_checks_traced(checks: Any, facts: Any, trace: Any) -> None:
        if found.when == BEFORE_THE_FIRST_CHECK:
            found.when = FROM_THE_FIRST_CHECK_ON
        run_checks(checks, facts, trace)

    monkeypatch.setattr(RequestInformer, "applied", applied_traced)
    monkeypatch.setattr(Publisher, "approve_and_sign", publish_traced)
    monkeypatch.setattr(Decider, "decide", decide_traced)
    monkeypatch.setattr(plan, "run_checks", run_checks_traced)
    running.call(sys.setprofile, found)
    try:
        kubelet.submit(kubelet.node.serving_request(found.csr, dns_names=["m"]))
        assert cluster.wait_until_decided(found.csr).reason == "Attested"
        wait_until(lambda: found.published, "the end of the publisher's call")
    finally:
        running.call(sys.setprofile, None)
    return found


def test_a_serving_request_touches_few_files(touched: Touched) -> None:
    assert touched.when == FROM_THE_FIRST_CHECK_ON
    before_it_is_judged = len(touched.first_touched(BEFORE_IT_IS_JUDGED))
    before_the_first_check = before_it_is_judged + len(touched.first_touched(BEFORE_THE_FIRST_CHECK))
    assert before_it_is_judged <= MOST_FILES_BEFORE_IT_IS_JUDGED, str(touched)
    assert before_the_first_check <= MOST_FILES_BEFORE_THE_FIRST_CHECK, str(touched)
    assert len(touched.files) <= MOST_FILES, str(touched)


def test_facts_are_computed_once(touched: Touched) -> None:
    """The Machine is matched when the attestor is told of it, and once more when it has answered: meanwhile it may have
    changed. The node name is read by the check that compares it with the requester's, and then once for all others.
    """
    decode: Any = provider_id_format.decode
    assert touched.count(decode.__wrapped__) <= 1
    assert touched.count(parse_certificate_request) == 1
    assert touched.count(machine.the_machine) == 2
    assert touched.count(shape.node_name_of) == 2
    assert touched.count(node_name.node_names) == 1
