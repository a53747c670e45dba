"""The listed steps and checks are those that run: in the decision, in its replay and in ``explain``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pytest

from attestors.registry import Registry
from signer.audit.replay import replay
from signer.audit.replay_attestors import ReplayAttestors
from signer.configuration import operator_settings
from signer.decision import builtin_serving, decider
from signer.model.decision import Deferred, Refused
from signer.rules import checks
from signer.rules.checks import BUILTIN_PLAN, REQUEST_PLAN
from signer.rules.plan import Check, Note, Plan, Step, Trace
from signer.testing.world import WorldCluster
from tests.integration.explaining import Explain
from tests.integration.fixtures import Harness, keyed_mac, node_of, provider_id
from tests.integration.kubelets import add_machine, attest, builtin_serving_request
from tests.integration.requests import approve_as_somebody_else, blocks_of, manifest_of
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

Ran = tuple[str, ...]
Manifest = dict[str, Any]
APPROVE: Final = {"builtinServingRequests": "Approve"}
STOPPED: Final = " stopped"


class Ledger(Trace):
    """The names of what was run, in its order."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def passed(self, check: Check[Any], facts: object) -> None:
        self.ran.append(check.name)

    def stopped(self, check: Check[Any], facts: object, error: Refused | Deferred) -> None:
        self.ran.append(check.name + STOPPED)

    @contextmanager
    def step(self, step: Step[Any]) -> Iterator[Note]:
        try:
            yield lambda compares: None
        except Exception:
            self.ran.append(step.name + STOPPED)
            raise
        self.ran.append(step.name)


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> dict[str, Ran]:
    """What the controller ran for each CSR when it last decided it."""
    found: dict[str, Ran] = {}

    async def traced(decide: Any, supplies: Any, trace: Trace) -> Any:
        del trace
        ledger = Ledger()
        try:
            return await decide(supplies, ledger)
        finally:
            found[supplies.parsed.header.name] = tuple(ledger.ran)

    monkeypatch.setattr(decider, "decide_request", partial(traced, checks.decide_request))
    monkeypatch.setattr(builtin_serving, "decide_builtin_serving", partial(traced, checks.decide_builtin_serving))
    return found


def listed(plan: Plan[Any], *, approved: bool = False) -> list[str]:
    return [one.name for one in plan.listed() if approved or one.name != "approved_before"]


def as_it_went_last(ran: Ran, names: list[str]) -> Ran:
    """What was run again after a recheck counts once, as ``explain`` shows it."""
    kept: list[str] = []
    for name in ran:
        kept = [one for one in kept if names.index(one.removesuffix(STOPPED)) < names.index(name.removesuffix(STOPPED))]
        kept.append(name)
    return tuple(kept)


def assert_what_is_listed(
    harness: Harness, ran: Ran, csr: str, explain: Explain, plan: Plan[Any], *, approved: bool = False
) -> None:
    """All that is listed, up to where it ended, in that order; and the same in the replay and in ``explain``."""
    names = listed(plan, approved=approved)
    went = as_it_went_last(ran, names)
    *before, last = went
    assert [*before, last.removesuffix(STOPPED)] == names[: len(went)]
    assert not [name for name in before if name.endswith(STOPPED)]
    assert replayed(harness, csr) == went
    shown = [one["name"] for one in explain(csr)[1]["checks"]]
    assert shown in (names, listed(plan)), "what was approved since is explained as it was posted"


def logged(harness: Harness, csr: str) -> bool:
    ((audit, _, _),) = harness.audited
    return any(line.request.name == csr for line in audit.lines)


def replayed(harness: Harness, csr: str) -> Ran:
    """What the replay of the last decision about that CSR ran."""
    ((audit, _, _),) = harness.audited
    line = [line for line in audit.lines if line.request.name == csr][-1]
    ledger = Ledger()
    asyncio.run(replay(line, ReplayAttestors(Registry(), partial(operator_settings, keyed_mac())), ledger))
    return tuple(ledger.ran)


@pytest.fixture
def cluster(harness: Harness, decided: dict[str, Ran]) -> WorldCluster:
    """A cluster with a Machine, under a controller whose decisions are traced."""
    del decided
    cluster = harness.cluster(policy=APPROVE)
    add_machine(cluster, "m", "192.0.2.10")
    harness.run()
    harness.wait_for_condition(cluster, "Ready", "True")
    return cluster


@pytest.mark.parametrize("csr", ["join", "renewal", "serving", "builtin"])
def test_approved_requests(
    harness: Harness, cluster: WorldCluster, decided: dict[str, Ran], explain: Explain, csr: str
) -> None:
    """First join, renewal, serving certificate, and a kubelet's own serving request: each runs everything."""
    kubelet = attest(cluster, "m", "join")
    plan: Plan[Any] = BUILTIN_PLAN if csr == "builtin" else REQUEST_PLAN
    if csr != "join":
        kubelet.submit(
            {
                "renewal": lambda: kubelet.node.client_request(csr),
                "serving": lambda: kubelet.node.serving_request(csr, dns_names=["m"]),
                "builtin": lambda: builtin_serving_request(csr, "m", ["m"]),
            }[csr]()
        )
        wait_until(lambda: cluster.verdict(csr).condition == "Approved", "its approval")
    assert decided[csr][-1] == listed(plan)[-1]
    assert_what_is_listed(harness, decided[csr], csr, explain, plan)


def _others_key(cluster: WorldCluster) -> Manifest:
    return (
        node_of(cluster, "m")
        .but(settings=dict(node_of(cluster, "n").settings) | {"provider-id": provider_id("m")})
        .client_request("wrong")
    )


NOT_APPROVED: Final[dict[str, Callable[[WorldCluster], Manifest]]] = {
    "read": lambda cluster: manifest_of("wrong", blocks_of(node_of(cluster, "m"))[0]),
    "evidence_names_this_cluster": lambda cluster: (
        node_of(cluster, "m").but(ca_cert_hash="sha256:" + "00" * 32).client_request("wrong")
    ),
    "claim": lambda cluster: node_of(cluster, "unknown").client_request("wrong"),
    "attest": _others_key,
    "node_name_is_the_machines": lambda cluster: node_of(cluster, "m", "other").client_request("wrong"),
}
"""By the step or check that ends it."""


@pytest.mark.parametrize("stops", NOT_APPROVED)
def test_refused_and_deferred_requests(
    harness: Harness, cluster: WorldCluster, decided: dict[str, Ran], explain: Explain, stops: str
) -> None:
    cluster.submit_with_token(NOT_APPROVED[stops](cluster))
    wait_until(lambda: logged(harness, "wrong"), "a decision")
    assert decided["wrong"][-1] == stops + STOPPED
    assert_what_is_listed(harness, decided["wrong"], "wrong", explain, REQUEST_PLAN)


@pytest.mark.parametrize("honoured", [False, True])
def test_a_request_approved_by_another_client(
    harness: Harness, decided: dict[str, Ran], explain: Explain, honoured: bool
) -> None:
    """The one step that is there only where it applies; it may end the decision."""
    cluster = harness.cluster(policy={"approvalByOthers": "Honor" if honoured else "Refuse"})
    add_machine(cluster, "m", "192.0.2.10")
    cluster.submit_with_token(node_of(cluster, "m").client_request("theirs"))
    approve_as_somebody_else(cluster, "theirs")
    harness.run()
    assert cluster.wait_until_decided("theirs").condition == ("Approved" if honoured else "Failed")
    names = listed(REQUEST_PLAN, approved=True)
    assert decided["theirs"] == tuple(names if honoured else names[: names.index("approved_before") + 1])
    assert_what_is_listed(harness, decided["theirs"], "theirs", explain, REQUEST_PLAN, approved=True)


@pytest.mark.parametrize("answered", [False, True], ids=["left alone", "answered"])
@pytest.mark.parametrize(("node", "stops"), [("m", "credential_is_attested"), ("n", "record")])
def test_a_refused_kubelet_request(
    harness: Harness, decided: dict[str, Ran], explain: Explain, node: str, stops: str, answered: bool
) -> None:
    """The same checks where the policy leaves such requests alone; nothing is looked at in the API server then."""
    cluster = harness.cluster(policy=APPROVE if answered else {})
    add_machine(cluster, "m", "192.0.2.10")
    harness.run()
    attest(cluster, "m")
    cluster.submit_as_node(builtin_serving_request("wrong", node, [node]), node)
    wait_until(lambda: logged(harness, "wrong"), "a decision")
    assert decided["wrong"][-1] == stops + STOPPED
    assert decided["wrong"].count("record") == (stops != "record") * (1 + answered)
    assert_what_is_listed(harness, decided["wrong"], "wrong", explain, BUILTIN_PLAN)
