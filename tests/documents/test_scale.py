"""The bounds in ``docs/scale.md`` are those of the code."""

from __future__ import annotations

from signer.controller import workload_access
from signer.controller.auto_approval import reconciler as reconciler
from signer.controller.auto_approval import removal as auto_approval
from signer.controller.cluster import workload_cluster
from signer.controller.requests import pending, reachability
from signer.controller.requests import request_budget as budget
from signer.kube import answers, client, listing
from signer.kube import resource_limits as resource_limits
from signer.kube.http import dial
from tests.documents.markdown import ROOT
from tests.integration.test_hostile_together import EVERY_KIND, OF_EACH

MIB = 1024 * 1024
WORDS = {2: "two", 16: "sixteen"}


def test_figures_are_those_of_the_code() -> None:
    text = " ".join((ROOT / "docs/scale.md").read_text(encoding="utf-8").split())
    watch = workload_cluster.WATCH_SECONDS
    least, most = (round(watch * factor) for factor in (0.9, 1.1))
    noticed = most + client.WATCH_GRACE_SECONDS
    for said in (
        f"{workload_cluster.CONNECTS_AT_ONCE} connections begin at once; one that takes longer than "
        f"{workload_cluster.CONNECT_SECONDS:.0f} seconds",
        f"after {watch:.0f} seconds ({least} to {most}), and {client.WATCH_GRACE_SECONDS:.0f} later",
        f"within {noticed:.0f} seconds |",
        f"after {reachability.FAILING_SECONDS:.0f} seconds of failures, or "
        f"{reachability.FAILURES_BEFORE_RECONNECT} in a row",
        f"within {most} or {noticed + client.DEFAULT_TIMEOUT_SECONDS:.0f} seconds",
        f"one watch every {watch:.0f} seconds",
        f"| {workload_access.MAXIMUM_BODY_BYTES // MIB} MiB, {client.DEFAULT_TIMEOUT_SECONDS:.0f} seconds | "
        f"{resource_limits.LARGE_BYTES // MIB} MiB, "
        f"beyond the first {resource_limits.SMALL_BYTES // 1024} KiB of each |",
        f"| {answers.MAXIMUM_VALUES:,} |",
        f"| {client.MAXIMUM_EVENT_BYTES // MIB} MiB | the same {resource_limits.LARGE_BYTES // MIB} MiB |",
        f"| the bytes of {client.LIST_BYTES_PER_BODY} responses, {listing.LIST_SECONDS / 60:.0f} minutes, "
        f"{listing.EMPTY_PAGES} empty pages in a row, no more items in a page than requested |",
        f"| {pending.MAXIMUM_REQUESTS:,}, {pending.MAXIMUM_BYTES // MIB} MiB | {budget.SHARED_BYTES // MIB} MiB, "
        f"beyond the first {budget.OWN_BYTES // MIB} MiB of each;",
        f"| {resource_limits.BURST_SECONDS} seconds at once, then {resource_limits.OWN_SHARE:.1%}".replace(
            "%", " % of a core"
        ),
        f"| one at a time | {dial.LOOKUPS_AT_ONCE} at a time |",
        f"| addresses of its name that the controller tries | {dial.MAXIMUM_ADDRESSES} of each family |",
        f"| {workload_cluster.RECONCILE_BURST} at once, then one in "
        f"{workload_cluster.RECONCILE_REFILL_SECONDS:.0f} seconds; "
        f"{reachability.LOG_BURST}, then one in {reachability.LOG_INTERVAL_SECONDS:.0f} seconds |",
        f"| {workload_cluster.CONNECT_SECONDS:.0f} seconds of one of {workload_cluster.CONNECTS_AT_ONCE} places |",
        f"| {reconciler.CHECK_SECONDS:.0f} seconds of one of {reconciler.CHECKS_AT_ONCE} places, "
        f"{auto_approval.RECONCILE_TIMEOUT_SECONDS / 60:.0f} minutes in all |",
        f"{WORDS[OF_EACH]} servers of each of {WORDS[len(EVERY_KIND)]} kinds",
    ):
        assert said in text, said
    assert resource_limits.LOOP_SHARE == 0.5, "half a core"
