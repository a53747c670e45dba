"""``python -m tests.demo [FOLDER]``: exits with 0 only if every request had the expected outcome."""

from __future__ import annotations

import argparse
import base64
import logging
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from rich.console import Console
from rich.markup import escape
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
from tests.demo.printing import print_heading, print_indented
from tests.support.attestors import RegistryWith
from tests.support.binaries import MissingPart
from tests.support.fake_aws import FakeAccount
from tests.support.fake_google import FakeGoogle

console = Console(highlight=False)
_INSECURE = "AssertedInsecurely"


@dataclass(frozen=True)
class Outcome:
    """An attempt and its verdict."""

    attempt: Attempt
    verdict: Verdict

    @property
    def is_expected(self) -> bool:
        """Whether the request was approved or denied as expected, for the expected reason."""
        attempt, verdict = self.attempt, self.verdict
        approved = attempt.expected_condition == "Approved"
        seen = (verdict.condition, verdict.reason, bool(verdict.certificate))
        return seen == (attempt.expected_condition, attempt.expected_reason, approved)


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
    console.print("\nStarting API servers, software TPMs, a fake AWS and a fake Google on this host …\n")
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
            _print_heading(
                "production",
                f"{len(MACHINES)} Machines; each holds its own key. Attestor: keyed-mac, an example attestor.",
            )
            outcomes = _try_all(production, Cast(production, master_key, token).attempts())
            joined = outcomes[0].verdict
            outcomes += _try_with_chips(metal, tpms)
            outcomes += _try_on_ec2(ec2, CastOnEC2(ec2, account, Path(temporary)))
            outcomes += _try_at_google(compute, CastAtGoogle(compute, google, Path(temporary)))
            outcomes += _try_without_proof(lab)
        _print_certificate(folder, joined)
    colour, text = _conclusion(outcomes)
    _print_indented(f"\n[bold {colour}]{text}[/bold {colour}] ({time.monotonic() - began:.1f} s)", 0)
    console.print("`make playground` has real API servers and software TPMs for your own commands.")
    console.print("`make demo-rotation` replaces a cluster's CA, on real API servers and under load.")
    console.print("`make demo-ssh` logs in to a node that has proved itself, until the certificate ends.")
    console.print("`make demo-access` gives two people access through bastions, until no heartbeat comes.")
    console.print("`make demo-containers` gets into a container by stock ssh, in a person's name.")
    return 0 if all(outcome.is_expected for outcome in outcomes) else 1


def _conclusion(outcomes: Sequence[Outcome]) -> tuple[str, str]:
    """Colour and text of the last line."""
    wrong = sum(not outcome.is_expected for outcome in outcomes)
    if wrong:
        return "red", f"{wrong} of {len(outcomes)} outcomes NOT as expected."
    insecure = sum(outcome.verdict.reason == _INSECURE for outcome in outcomes)
    approved = sum(outcome.verdict.condition == "Approved" for outcome in outcomes) - insecure
    denied = sum(outcome.verdict.condition == "Denied" for outcome in outcomes)
    return "green", f"{approved} approved, {denied} denied, as expected; and {insecure} approved in lab, insecurely."


def _cluster(
    management: ManagementCluster, name: str, namespace: str, api: EmbeddedAPI, attestor: str, machines: Sequence[str]
) -> WorldCluster:
    cluster = management.add_cluster(name, api, namespace=namespace)
    cluster.authorize(attestor)
    for machine in machines:
        cluster.add_machine(machine, provider_id=provider_id(machine))
    return cluster


def _print_heading(cluster: str, text: str) -> None:
    print_heading(console, f"Cluster {cluster}", text)


def _print_indented(text: str, columns: int = 2) -> None:
    print_indented(console, text, columns)


def _try(cluster: WorldCluster, attempt: Attempt) -> Outcome:
    console.print(f"[bold]{attempt.machine}[/bold] requests a certificate for node [bold]{attempt.node}[/bold]")
    _print_indented(attempt.description)
    verdict = cluster.wait_until_decided(attempt.submit())
    sign, colour = ("✔", "green") if verdict.condition == "Approved" else ("✘", "red")
    if verdict.reason == _INSECURE:
        colour = "yellow"
    _print_indented(f"[{colour}]{sign} {verdict.condition}: {verdict.reason}[/{colour}]")
    _print_indented(escape(verdict.message), 4)
    outcome = Outcome(attempt, verdict)
    if not outcome.is_expected:
        _print_indented(f"[bold red]Expected: {attempt.expected_condition}: {attempt.expected_reason}[/bold red]")
    console.print()
    return outcome


def _try_with_chips(metal: WorldCluster, tpms: Chips | MissingPart) -> list[Outcome]:
    """The outcomes of machines with a TPM; none without software TPMs."""
    if isinstance(tpms, MissingPart):
        console.print(f"[yellow]Skipped:[/yellow] machines with a TPM. {escape(str(tpms))}\n", soft_wrap=True)
        return []
    _print_heading(
        "metal",
        f"{len(with_chips.MACHINES)} Machines, each with a software TPM. One manufacturer, which the controller "
        "trusts, made both TPMs. Only an annotation of each Machine tells which TPM is its own. Attestor: tpm.",
    )
    return _try_all(metal, CastWithChips(metal, tpms).attempts())


def _try_on_ec2(cluster: WorldCluster, cast: CastOnEC2) -> list[Outcome]:
    """The outcomes of EC2 instances."""
    _print_heading(
        "ec2",
        "3 Machines on a fake AWS, which verifies signatures as AWS does. "
        "The operator allows one role of one account. Attestor: aws.",
    )
    return _try_all(cluster, cast.attempts())


def _try_at_google(cluster: WorldCluster, cast: CastAtGoogle) -> list[Outcome]:
    """The outcomes of Compute Engine instances."""
    _print_heading("compute", "1 Machine on a fake Google Cloud. The operator allows one project. Attestor: gcp.")
    return _try_all(cluster, cast.attempts())


def _try_all(cluster: WorldCluster, attempts: Sequence[Attempt]) -> list[Outcome]:
    return [_try(cluster, attempt) for attempt in attempts]


def _try_without_proof(lab: WorldCluster) -> list[Outcome]:
    """The outcome of worker-2's claim to be worker-1 in a cluster that authorizes the attestor ``insecure``."""
    claimed = provider_id("worker-1")
    impostor = SimulatedNode("worker-1", claimed, lab.ca_cert_hash, "insecure", {"provider-id": claimed})

    def submit() -> str:
        lab.submit_with_token(impostor.client_request("impostor"))
        return "impostor"

    _print_heading(
        "lab",
        "This cluster authorizes the attestor insecure, which verifies nothing. So the controller gives worker-1's "
        "name to an impostor. Attestor: insecure, for tests only.",
    )
    description = "It claims to be worker-1, with a bootstrap token and without any proof."
    return _try_all(lab, [Attempt("worker-2", "worker-1", description, submit, "Approved", _INSECURE)])


def _print_certificate(folder: Path, verdict: Verdict) -> None:
    if not verdict.certificate:
        return
    path = folder / "worker-1.crt"
    path.write_bytes(verdict.certificate)
    certificate = x509.load_pem_x509_certificate(verdict.certificate)
    validity = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} to {certificate.not_valid_after_utc:%Y-%m-%d %H:%M}"
    console.print(f"The certificate that production issued to worker-1: [bold]{path}[/bold]", soft_wrap=True)
    console.print(f"  subject   {certificate.subject.rfc4514_string()}")
    console.print(f"  validity  {validity} UTC")
    console.print(f"  issuer    {certificate.issuer.rfc4514_string()} (the CA of cluster production)")


def _folder() -> Path:
    """The folder of the command line, which exists now; a new temporary one by default."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.demo",
        description="Honest and dishonest machines request kubelet certificates. The demo shows which requests the "
        "controller approves or denies, and why. It runs on this host and needs no cluster.",
        epilog="Exit code: 0 if every outcome is as expected, otherwise 1.",
    )
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        type=Path,
        help="where the demo writes worker-1.crt, the certificate that cluster production issues to worker-1; "
        "the demo creates the folder (default: a new temporary folder)",
    )
    folder = parser.parse_args().folder
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="node-attestation-demo-"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"{folder}: {error.strerror}")
    return Path(folder)


if __name__ == "__main__":
    sys.exit(main(_folder()))
