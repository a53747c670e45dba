"""``python -m tests.demo [FOLDER]``: exits with 0 only if every request had the expected outcome."""

from __future__ import annotations

import base64
import logging
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel

from attestors.gcp import GCPAttestor
from signer.configuration import Configuration, OperatorAttestor
from signer.controller.run import ControllerOptions
from signer.testing.api import EmbeddedAPI
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, Verdict, WorldCluster
from tests.demo import chips as with_chips
from tests.demo.chips import CastWithChips, Chips, chips
from tests.demo.instances import CastAtGoogle, CastOnEC2, google_attestor
from tests.demo.machines import MACHINES, Attempt, Cast, provider_id
from tests.support.attestors import RegistryWith
from tests.support.binaries import MissingPart
from tests.support.fake_aws import FakeAccount
from tests.support.fake_google import FakeGoogle

console = Console(highlight=False)


def main(folder: Path) -> int:
    """Run the demo; it writes the certificate of worker-1 to ``folder``."""
    logging.disable(logging.INFO)
    began = time.monotonic()
    console.print(
        Panel.fit(
            "All machines of a cluster hold a bootstrap token.\n"
            "With kubeadm alone, each machine could join as any node.\n"
            "With node attestation, each machine must prove which one it is.",
            title="node attestation demo",
            padding=(0, 2),
        )
    )
    console.print("\nStarting API servers, software TPMs, a fake AWS and a fake Google on this host …")
    master_key = secrets.token_bytes(32)
    operator_settings = {"masterKey": base64.b64encode(master_key).decode("ascii")}
    attestors = {"keyed-mac": OperatorAttestor(settings=operator_settings)}
    with (
        EmbeddedAPI() as management_api,
        EmbeddedAPI(seed_kubeadm=True) as workload_api,
        EmbeddedAPI(seed_kubeadm=True) as metal_api,
        EmbeddedAPI(seed_kubeadm=True) as aws_api,
        EmbeddedAPI(seed_kubeadm=True) as google_api,
        EmbeddedAPI(seed_kubeadm=True) as lab_api,
        ManagementCluster(management_api) as management,
        tempfile.TemporaryDirectory(prefix="node-attestation-demo-") as temporary,
        chips(Path(temporary)) as tpms,
        FakeAccount(Path(temporary)) as account,
        FakeGoogle() as google,
    ):
        if isinstance(tpms, Chips):
            attestors["tpm"] = tpms.attestor()
        attestors["aws"] = account.operator_attestor()
        attestors["gcp"] = google_attestor(google, Path(temporary))
        configuration = Configuration(
            namespace=CONTROLLER_NAMESPACE,
            insecure_enabled=True,
            insecure_namespaces=frozenset({"lab"}),
            attestors=attestors,
        )
        production = _cluster(management, "production", "default", workload_api, "keyed-mac", MACHINES)
        metal = _cluster(management, "metal", "metal", metal_api, "tpm", with_chips.MACHINES)
        ec2 = _cluster(management, "ec2", "ec2", aws_api, "aws", ())
        compute = _cluster(management, "compute", "compute", google_api, "gcp", ())
        lab = _cluster(management, "lab", "lab", lab_api, "insecure", MACHINES)
        token = workload_api.bootstrap_token()
        # These attestors use the fake clouds, and replace the installed attestors of the same name.
        registry = RegistryWith(account.attestor, GCPAttestor(google.pem_certificates_url))
        options = ControllerOptions(registry=registry)
        with RunningController(management_api.connection(), configuration, options):
            _print_heading("production", f"{len(MACHINES)} Machines; each holds its own key. Attestor: keyed-mac.")
            attempts = Cast(production, master_key, token).attempts()
            verdicts = [_try(production, attempt) for attempt in attempts]
            expected = [_is_expected(attempt, verdict) for attempt, verdict in zip(attempts, verdicts, strict=True)]
            expected += _try_with_chips(metal, tpms)
            expected += _try_on_ec2(ec2, CastOnEC2(ec2, account, Path(temporary)))
            expected += _try_at_google(compute, CastAtGoogle(compute, google, Path(temporary)))
            impostor = _impersonate(lab)
        _print_insecure(impostor)
        _print_certificate(folder, verdicts[0])
    succeeded = all(expected) and bool(impostor.certificate)
    colour, text = ("green", "All outcomes are as expected") if succeeded else ("red", "An outcome is NOT as expected")
    console.print(f"\n[bold {colour}]{text}[/bold {colour}], after {time.monotonic() - began:.1f} s.")
    return 0 if succeeded else 1


def _cluster(
    management: ManagementCluster, name: str, namespace: str, api: EmbeddedAPI, attestor: str, machines: Sequence[str]
) -> WorldCluster:
    cluster = management.add_cluster(name, api, namespace=namespace)
    cluster.authorize(attestor)
    for machine in machines:
        cluster.add_machine(machine, provider_id=provider_id(machine))
    return cluster


def _print_heading(cluster: str, text: str) -> None:
    console.rule(f"Cluster {cluster}", style="dim", align="left")
    console.print(f"{text}\n")


def _print_indented(text: str, columns: int = 2) -> None:
    console.print(Padding(text, (0, 0, 0, columns), expand=False))


def _try(cluster: WorldCluster, attempt: Attempt) -> Verdict:
    console.print(f"[bold]{attempt.machine}[/bold] requests a certificate for node [bold]{attempt.node}[/bold]")
    _print_indented(attempt.description)
    verdict = cluster.wait_until_decided(attempt.submit())
    sign, colour = ("✔", "green") if verdict.condition == "Approved" else ("✘", "red")
    _print_indented(f"[{colour}]{sign} {verdict.condition}: {verdict.reason}[/{colour}]")
    _print_indented(escape(verdict.message), 4)
    if not _is_expected(attempt, verdict):
        _print_indented(f"[bold red]Expected: {attempt.expected_condition}: {attempt.expected_reason}[/bold red]")
    console.print()
    return verdict


def _is_expected(attempt: Attempt, verdict: Verdict) -> bool:
    outcome = (verdict.condition, verdict.reason, bool(verdict.certificate))
    return outcome == (attempt.expected_condition, attempt.expected_reason, attempt.expected_condition == "Approved")


def _try_with_chips(metal: WorldCluster, tpms: Chips | MissingPart) -> list[bool]:
    """Whether each request of a machine with a TPM had the expected outcome; empty without software TPMs."""
    if isinstance(tpms, MissingPart):
        console.print(f"[yellow]Skipped:[/yellow] machines with a TPM. {escape(str(tpms))}\n", soft_wrap=True)
        return []
    _print_heading(
        "metal",
        f"{len(with_chips.MACHINES)} Machines with a software TPM each, of one manufacturer. "
        "An annotation of each Machine names its TPM. Attestor: tpm.",
    )
    return _try_all(metal, CastWithChips(metal, tpms).attempts())


def _try_on_ec2(cluster: WorldCluster, cast: CastOnEC2) -> list[bool]:
    """Whether each request of an EC2 instance had the expected outcome."""
    _print_heading(
        "ec2",
        "3 Machines on a fake AWS, which verifies signatures as AWS does. "
        "The operator allows one role of one account. Attestor: aws.",
    )
    return _try_all(cluster, cast.attempts())


def _try_at_google(cluster: WorldCluster, cast: CastAtGoogle) -> list[bool]:
    """Whether each request of a Compute Engine instance had the expected outcome."""
    _print_heading("compute", "1 Machine on a fake Google Cloud. The operator allows one project. Attestor: gcp.")
    return _try_all(cluster, cast.attempts())


def _try_all(cluster: WorldCluster, attempts: Sequence[Attempt]) -> list[bool]:
    return [_is_expected(attempt, _try(cluster, attempt)) for attempt in attempts]


def _impersonate(lab: WorldCluster) -> Verdict:
    """The verdict on worker-2's claim to be worker-1 in a cluster that authorizes the insecure attestor."""
    impostor = SimulatedNode(
        "worker-1", provider_id("worker-1"), lab.ca_cert_hash, "insecure", {"provider-id": provider_id("worker-1")}
    )
    lab.submit_with_token(impostor.client_request("impostor"))
    return lab.wait_until_decided("impostor")


def _print_insecure(verdict: Verdict) -> None:
    outcome = "got a certificate for" if verdict.certificate else "was denied"
    _print_heading(
        "lab",
        "This cluster authorizes the attestor insecure, which proves nothing. "
        f"Here, worker-2 {outcome} node worker-1, with only a bootstrap token and a claim.",
    )


def _print_certificate(folder: Path, verdict: Verdict) -> None:
    if not verdict.certificate:
        return
    path = folder / "worker-1.crt"
    path.write_bytes(verdict.certificate)
    certificate = x509.load_pem_x509_certificate(verdict.certificate)
    validity = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} to {certificate.not_valid_after_utc:%Y-%m-%d %H:%M}"
    console.print(f"The certificate of worker-1: [bold]{path}[/bold]", soft_wrap=True)
    console.print(f"  subject   {certificate.subject.rfc4514_string()}")
    console.print(f"  validity  {validity} UTC")
    console.print(f"  issuer    {certificate.issuer.rfc4514_string()} (the CA of cluster production)")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="node-attestation-demo-"))
    target.mkdir(parents=True, exist_ok=True)
    sys.exit(main(target))
