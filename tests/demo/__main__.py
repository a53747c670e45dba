"""``python -m tests.demo [FOLDER]``: exits 0 only if every machine ended as it must."""

from __future__ import annotations

import base64
import logging
import secrets
import sys
import tempfile
import time
from pathlib import Path

from cryptography import x509
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from signer.controller.configuration import Configuration, OperatorAttestor
from signer.testing.api import EmbeddedAPI
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, Verdict, WorldCluster
from tests.demo.machines import MACHINES, Attempt, attempts, provider_id

console = Console(highlight=False)


def main(folder: Path) -> int:
    """Run the demo; certificates go into ``folder``."""
    logging.disable(logging.INFO)
    began = time.monotonic()
    console.print(
        Panel.fit(
            "[bold]Four machines hold the same bootstrap token.[/bold]\n"
            "With kubeadm alone, each of them could become any node. Here each must prove which machine it is.",
            title="node attestation",
        )
    )
    master_key = secrets.token_bytes(32)
    configuration = Configuration(
        namespace=CONTROLLER_NAMESPACE,
        insecure_enabled=True,
        insecure_namespaces=frozenset({"lab"}),
        attestors={"keyed-mac": OperatorAttestor(settings={"masterKey": base64.b64encode(master_key).decode("ascii")})},
    )
    with (
        EmbeddedAPI() as management_api,
        EmbeddedAPI(seed_kubeadm=True) as workload_api,
        EmbeddedAPI(seed_kubeadm=True) as lab_api,
        ManagementCluster(management_api) as management,
    ):
        production = _cluster(management, "production", "default", workload_api, "keyed-mac")
        lab = _cluster(management, "lab", "lab", lab_api, "insecure")
        console.print(
            f"  A management cluster, and workload cluster [bold]production[/bold] with {len(MACHINES)} Machines "
            f"(embedded API servers, {time.monotonic() - began:.1f} s)\n"
        )
        with RunningController(management_api.connection(), configuration):
            outcomes = [(attempt, _try(production, attempt)) for attempt in attempts(production, master_key)]
            under_insecure = _impersonate(lab)
        _print_outcomes(outcomes)
        as_it_must = all(_ended_as_it_must(attempt, verdict) for attempt, verdict in outcomes)
        _print_insecure(under_insecure)
        _print_certificate(folder, outcomes[0][1])
    good = as_it_must and bool(under_insecure.certificate)
    colour, word = ("green", "Everything ended as it must") if good else ("red", "Something did NOT end as it must")
    console.print(f"\n[bold {colour}]{word}[/bold {colour}] ({time.monotonic() - began:.1f} s).")
    return 0 if good else 1


def _cluster(management: ManagementCluster, name: str, namespace: str, api: EmbeddedAPI, attestor: str) -> WorldCluster:
    cluster = management.add_cluster(name, api, namespace=namespace)
    cluster.authorize(attestor)
    for machine in MACHINES:
        cluster.add_machine(machine, provider_id=provider_id(machine))
    return cluster


def _try(cluster: WorldCluster, attempt: Attempt) -> Verdict:
    name = str(attempt.manifest["metadata"]["name"])
    cluster.submit_with_token(dict(attempt.manifest))
    return cluster.wait_until_decided(name)


def _impersonate(lab: WorldCluster) -> Verdict:
    """What worker-2 gets in a cluster that trusts the insecure attestor: it simply says it is worker-1."""
    impostor = SimulatedNode(
        "worker-1", provider_id("worker-1"), lab.ca_cert_hash, "insecure", {"provider-id": provider_id("worker-1")}
    )
    lab.submit_with_token(impostor.client_request("impostor"))
    return lab.wait_until_decided("impostor")


def _ended_as_it_must(attempt: Attempt, verdict: Verdict) -> bool:
    has_certificate = bool(verdict.certificate)
    return (verdict.condition, verdict.reason, has_certificate) == (
        attempt.must_be,
        attempt.must_say,
        attempt.must_be == "Approved",
    )


def _print_outcomes(outcomes: list[tuple[Attempt, Verdict]]) -> None:
    table = Table(show_lines=True, expand=True)
    for heading, ratio in (("machine", 2), ("asks to be", 2), ("what it does", 5), ("decision", 4), ("why", 6)):
        table.add_column(heading, ratio=ratio, overflow="fold")
    for attempt, verdict in outcomes:
        colour = "green" if verdict.condition == "Approved" else "red"
        mark = "" if _ended_as_it_must(attempt, verdict) else f"\n[bold red]must be {attempt.must_say}[/bold red]"
        table.add_row(
            attempt.machine,
            attempt.asks_for,
            attempt.story,
            f"[{colour}]{verdict.condition}[/{colour}]\n{verdict.reason}{mark}",
            verdict.message,
        )
    console.print(table)


def _print_insecure(verdict: Verdict) -> None:
    outcome = "was just given a certificate for" if verdict.certificate else "was refused"
    console.print(
        f"\n[yellow]Honestly:[/yellow] in cluster lab, which authorizes [bold]insecure[/bold], the same impostor "
        f"{outcome} node worker-1, with a bootstrap token and a claim and nothing else."
    )


def _print_certificate(folder: Path, verdict: Verdict) -> None:
    if not verdict.certificate:
        return
    path = folder / "worker-1.crt"
    path.write_bytes(verdict.certificate)
    certificate = x509.load_pem_x509_certificate(verdict.certificate)
    console.print(f"\nThe certificate of worker-1 is in [bold]{path}[/bold]")
    console.print(f"  subject   {certificate.subject.rfc4514_string()}")
    console.print(f"  issuer    {certificate.issuer.rfc4514_string()}")
    console.print(
        f"  validity  {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} to "
        f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    )


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="node-attestation-demo-"))
    target.mkdir(parents=True, exist_ok=True)
    sys.exit(main(target))
