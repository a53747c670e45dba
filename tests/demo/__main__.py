"""``python -m tests.demo [FOLDER]``: exits 0 only if every machine ended as it must."""

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
    """Run the demo; the certificate goes into ``folder``."""
    logging.disable(logging.INFO)
    began = time.monotonic()
    console.print(
        Panel.fit(
            "Four machines hold the same bootstrap token.\n"
            "With kubeadm alone, each of them could become any node of the cluster.\n"
            "Here, each must prove which machine it is.",
            title="node attestation",
            padding=(0, 2),
        )
    )
    console.print("\nStarting API servers, software TPMs, a fake AWS and a fake Google, all here …")
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
        chips(Path(temporary)) as made,
        FakeAccount(Path(temporary)) as account,
        FakeGoogle() as google,
    ):
        if isinstance(made, Chips):
            attestors["tpm"] = made.attestor()
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
        console.print(f"\nA management cluster, and the workload cluster [bold]production[/bold] with {len(MACHINES)}")
        console.print("Machines, on embedded API servers. The controller watches production's requests.\n")
        # The clouds are on this machine: attestors that find them here are put in the place of the installed ones.
        registry = RegistryWith(account.attestor, GCPAttestor(google.pem_certificates_url))
        options = ControllerOptions(registry=registry)
        with RunningController(management_api.connection(), configuration, options):
            attempts = Cast(production, master_key, token).attempts()
            verdicts = [_try(production, attempt) for attempt in attempts]
            ended = [_ended_as_it_must(attempt, verdict) for attempt, verdict in zip(attempts, verdicts, strict=True)]
            ended += _try_with_chips(metal, made)
            ended += _try_on_ec2(ec2, CastOnEC2(ec2, account, Path(temporary)))
            ended += _try_at_google(compute, CastAtGoogle(compute, google, Path(temporary)))
            under_insecure = _impersonate(lab)
        _print_insecure(under_insecure)
        _print_certificate(folder, verdicts[0])
    good = all(ended) and bool(under_insecure.certificate)
    colour, words = ("green", "Everything ended as it must") if good else ("red", "Something did NOT end as it must")
    console.print(f"\n[bold {colour}]{words}[/bold {colour}], in {time.monotonic() - began:.1f} s.")
    return 0 if good else 1


def _cluster(
    management: ManagementCluster, name: str, namespace: str, api: EmbeddedAPI, attestor: str, machines: Sequence[str]
) -> WorldCluster:
    cluster = management.add_cluster(name, api, namespace=namespace)
    cluster.authorize(attestor)
    for machine in machines:
        cluster.add_machine(machine, provider_id=provider_id(machine))
    return cluster


def _try(cluster: WorldCluster, attempt: Attempt) -> Verdict:
    console.print(f"[bold]{attempt.machine}[/bold] asks to be node [bold]{attempt.asks_for}[/bold]")
    console.print(Padding(attempt.story, (0, 0, 0, 2)))
    verdict = cluster.wait_until_decided(attempt.ask())
    sign, colour = ("✔", "green") if verdict.condition == "Approved" else ("✘", "red")
    console.print(
        Padding(f"[{colour}]{sign} {verdict.condition}: {verdict.reason}[/{colour}] ({verdict.message})", (0, 0, 0, 2))
    )
    if not _ended_as_it_must(attempt, verdict):
        console.print(f"  [bold red]This must be {attempt.must_be}: {attempt.must_say}[/bold red]")
    console.print()
    return verdict


def _ended_as_it_must(attempt: Attempt, verdict: Verdict) -> bool:
    outcome = (verdict.condition, verdict.reason, bool(verdict.certificate))
    return outcome == (attempt.must_be, attempt.must_say, attempt.must_be == "Approved")


def _try_with_chips(metal: WorldCluster, made: Chips | MissingPart) -> list[bool]:
    """Whether each machine with a TPM ended as it must; none where no TPM can be had."""
    if isinstance(made, MissingPart):
        console.print(f"[yellow]Not shown:[/yellow] machines with a TPM. {escape(str(made))}\n", soft_wrap=True)
        return []
    console.print(
        f"The workload cluster [bold]metal[/bold] has {len(with_chips.MACHINES)} Machines with a software TPM"
    )
    console.print("each, of one maker. An annotation of each Machine says which chip is in it.\n")
    return _try_all(metal, CastWithChips(metal, made).attempts())


def _try_on_ec2(cluster: WorldCluster, cast: CastOnEC2) -> list[bool]:
    """Whether each instance of EC2 ended as it must."""
    console.print("The workload cluster [bold]ec2[/bold] has three Machines at a fake AWS, which verifies")
    console.print("signatures as AWS does. The operator lets one role of one account in.\n")
    return _try_all(cluster, cast.attempts())


def _try_at_google(cluster: WorldCluster, cast: CastAtGoogle) -> list[bool]:
    """Whether each instance of Compute Engine ended as it must."""
    console.print("The workload cluster [bold]compute[/bold] has one Machine at a fake Google Cloud. The")
    console.print("operator lets one project in.\n")
    return _try_all(cluster, cast.attempts())


def _try_all(cluster: WorldCluster, attempts: Sequence[Attempt]) -> list[bool]:
    return [_ended_as_it_must(attempt, _try(cluster, attempt)) for attempt in attempts]


def _impersonate(lab: WorldCluster) -> Verdict:
    """What worker-2 gets in a cluster that trusts the insecure attestor: it simply says it is worker-1."""
    impostor = SimulatedNode(
        "worker-1", provider_id("worker-1"), lab.ca_cert_hash, "insecure", {"provider-id": provider_id("worker-1")}
    )
    lab.submit_with_token(impostor.client_request("impostor"))
    return lab.wait_until_decided("impostor")


def _print_insecure(verdict: Verdict) -> None:
    outcome = "was just given a certificate for" if verdict.certificate else "was refused"
    console.print(
        "[yellow]Honestly:[/yellow] in cluster lab, which authorizes the attestor [bold]insecure[/bold], "
        f"worker-2 {outcome} node worker-1, with a token and a claim and nothing else.\n"
    )


def _print_certificate(folder: Path, verdict: Verdict) -> None:
    if not verdict.certificate:
        return
    path = folder / "worker-1.crt"
    path.write_bytes(verdict.certificate)
    certificate = x509.load_pem_x509_certificate(verdict.certificate)
    validity = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} to {certificate.not_valid_after_utc:%Y-%m-%d %H:%M}"
    console.print(f"The certificate of worker-1 is in [bold]{path}[/bold]", soft_wrap=True)
    console.print(f"  subject   {certificate.subject.rfc4514_string()}")
    console.print(f"  validity  {validity} UTC")
    console.print(f"  issuer    {certificate.issuer.rfc4514_string()} (production's own CA)")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="node-attestation-demo-"))
    target.mkdir(parents=True, exist_ok=True)
    sys.exit(main(target))
