"""``request --dry-run``: what would be asked, decoded; nothing is kept or sent."""

from __future__ import annotations

import base64
import hmac
import socket
from pathlib import Path
from typing import Any, NoReturn

import pytest

from attestors.wire import binding
from attestors.wire.names import PROVIDER_ID_OID, Purpose, SignerName
from attestors.wire.ssh.signatures import public_key_of
from authenticator.flow.evidence import Attestation
from authenticator.model.attempt import PendingRequest
from authenticator.model.certificate import load_key, public_key_info
from authenticator.model.failures import ExitCode
from authenticator.model.kubeconfig import exec_kubeconfig
from authenticator.store.store import KnownCluster
from tests.support.openssh import private_key as ssh_key
from tests.support.openssh import write_private_key
from tests.unit.authenticator.builders import (
    MACHINE_KEY,
    NODE,
    PROVIDER_ID,
    TOKEN,
    V1,
    as_yaml,
    bootstrap,
    cluster,
    kubeconfig,
    secret_line,
)
from tests.unit.authenticator.commands.conftest import Node


@pytest.fixture(autouse=True)
def no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_options: Any) -> NoReturn:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[PendingRequest]:
    """Every request that was made."""
    found: list[PendingRequest] = []
    gather = Attestation.pending_request

    def noted(self: Attestation, *arguments: Any, **options: Any) -> PendingRequest:
        found.append(gather(self, *arguments, **options))
        return found[-1]

    monkeypatch.setattr(Attestation, "pending_request", noted)
    return found


def dry_run(node: Node, *arguments: str) -> list[str]:
    with node.unchanged():
        code, output, log = node.run("request", "--dry-run", *arguments)
    assert (code, log) == (ExitCode.DONE, "")
    return output.splitlines()


def test_the_request_is_shown_decoded(node: Node, made: list[PendingRequest]) -> None:
    node.bootstrap_kubeconfig.write_bytes(as_yaml(kubeconfig()))
    lines = dry_run(node)
    [pending] = made
    expected = binding.compute(
        evidence_version="v1",
        cluster=cluster().ca_cert_hash,
        signer_name=SignerName(Purpose.CLIENT, "keyed-mac"),
        subject_public_key_info=public_key_info(load_key(pending.key)),
    )
    made_at = lines[-1].removeprefix("  madeAt      ")
    digest = hmac.digest(bytes(range(32)), expected.value + made_at.encode("ascii"), "sha256")
    mac = base64.b64encode(digest).decode("ascii")
    sizes = [line.partition("(")[2] for line in lines if line.startswith("block") and "(" in line]
    assert lines == [
        "CertificateSigningRequest (not sent; a real one has another key, and so another name)",
        f"  name         {pending.name}",
        "  signer name  cluster.x-k8s.io/kube-apiserver-client-kubelet-keyed-mac",
        "  usages       digital signature, client auth",
        f"block CERTIFICATE REQUEST ({sizes[0]}",
        f"  subject      CN=system:node:{NODE},O=system:nodes",
        f"  provider ID  {PROVIDER_ID} (extension 1.3.6.1.4.1.11129.2.1.21)",
        "block KUBELET AUTHENTICATOR ATTESTATION PROVIDER",
        "  keyed-mac",
        f"block KUBELET AUTHENTICATOR ATTESTATION DATA ({sizes[1]}",
        "  version     v1",
        f"  caCertHash  {cluster().ca_cert_hash.text}",
        f"  mac         {mac}",
        f"  madeAt      {made_at}",
    ]


def test_an_extension_of_its_own(node: Node) -> None:
    node.bootstrap_kubeconfig.write_bytes(as_yaml(kubeconfig()))
    lines = dry_run(node, "--provider-id-oid", "1.3.6.1.4.1.57683.9")
    assert f"  provider ID  {PROVIDER_ID} (extension 1.3.6.1.4.1.57683.9)" in lines


def test_a_serving_request_has_names_and_addresses(node: Node) -> None:
    node.bootstrap_kubeconfig.write_bytes(as_yaml(kubeconfig()))
    names = ["--serving-dns-name", "a", "--serving-dns-name", "b", "--serving-ip-address", "192.0.2.7"]
    lines = dry_run(node, "--serving", *names)
    assert "  signer name  cluster.x-k8s.io/kubelet-serving-keyed-mac" in lines
    assert "  usages       digital signature, server auth" in lines
    assert "  DNS names    a, b" in lines
    assert "  addresses    192.0.2.7" in lines


def test_nothing_of_the_key_the_token_or_the_settings_is_shown(node: Node, made: list[PendingRequest]) -> None:
    node.bootstrap_kubeconfig.write_bytes(as_yaml(kubeconfig()))
    printed = "\n".join(dry_run(node))
    for secret in (TOKEN, MACHINE_KEY, secret_line(made[0].key), "PRIVATE"):
        assert secret not in printed


def test_every_dry_run_has_a_key_of_its_own(node: Node, made: list[PendingRequest]) -> None:
    node.bootstrap_kubeconfig.write_bytes(as_yaml(kubeconfig()))
    dry_run(node)
    dry_run(node)
    assert made[0].key != made[1].key
    assert made[0].name != made[1].name


def test_a_node_with_a_long_name(node: Node) -> None:
    node.configure(nodeName="n" * 80)
    node.bootstrap_kubeconfig.write_bytes(as_yaml(kubeconfig()))
    assert f"  subject      CN=system:node:{'n' * 80},O=system:nodes" in dry_run(node)


def test_the_cluster_is_the_one_that_would_be_asked(node: Node) -> None:
    """The bootstrap kubeconfig's, its copy's, the kubelet's, the one that was known last: in this order."""
    node.store.open()
    node.store.save_known_cluster(KnownCluster(cluster(3), ""))
    seen = [_cluster_line(node)]
    node.kubeconfig.with_name("ca.crt").write_text(cluster(2).certificate_authority)
    node.kubeconfig.write_text(
        exec_kubeconfig(
            cluster(2), authority_file="ca.crt", command="kubelet-authenticator", arguments=[], api_version=V1
        )
    )
    seen.append(_cluster_line(node))
    node.store.save_bootstrap(bootstrap(number=1))
    seen.append(_cluster_line(node))
    node.bootstrap_kubeconfig.write_bytes(as_yaml(kubeconfig()))
    seen.append(_cluster_line(node))
    assert seen == [f"  caCertHash  {cluster(number).ca_cert_hash.text}" for number in (3, 2, 1, 0)]


def _cluster_line(node: Node) -> str:
    return next(line for line in dry_run(node) if "caCertHash" in line)


def refused(node: Node, *arguments: str) -> tuple[int, str]:
    with node.unchanged():
        code, output, log = node.run("request", "--dry-run", *arguments)
    assert output == ""
    return code, log


def test_a_cluster_that_nothing_names(node: Node) -> None:
    node.kubeconfig.write_bytes(as_yaml(kubeconfig()))  # somebody else's
    code, log = refused(node)
    assert code == ExitCode.NO_CREDENTIAL
    assert "evidence names the cluster by its CA" in log


def test_a_bootstrap_kubeconfig_that_cannot_be_used(node: Node) -> None:
    node.bootstrap_kubeconfig.write_text("kind: Secret")
    code, log = refused(node)
    assert code == ExitCode.CONFIGURATION
    assert str(node.bootstrap_kubeconfig) in log


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {}}, "settings of attestor keyed-mac"),
        ({"settings": {"machine-key": "planted", "provider-id": PROVIDER_ID}}, "machine-key must be 32 bytes"),
        ({"provider": "missing"}, "missing"),
    ],
)
def test_an_attestor_that_cannot_be_loaded(node: Node, changes: dict[str, Any], message: str) -> None:
    node.configure(**changes)
    node.bootstrap_kubeconfig.write_bytes(as_yaml(kubeconfig()))
    code, log = refused(node)
    assert code == ExitCode.CONFIGURATION
    assert message in log
    assert "planted" not in log


def test_an_attestor_with_unknown_evidence_versions(node: Node) -> None:
    node.monkeypatch.setattr(Attestation, "versions", lambda _self: ())
    node.bootstrap_kubeconfig.write_bytes(as_yaml(kubeconfig()))
    code, log = refused(node)
    assert code == ExitCode.NO_EVIDENCE
    assert "writes no known evidence version:" in log


def test_names_for_a_serving_certificate_mean_one(node: Node, made: list[PendingRequest]) -> None:
    node.bootstrap_kubeconfig.write_bytes(as_yaml(kubeconfig()))
    dry_run(node, "--serving-dns-name", "other.example", "--serving-ip-address", "192.0.2.7")
    [pending] = made
    assert pending.subject.dns_names == ("other.example",)
    assert pending.subject.ip_addresses == ("192.0.2.7",)


def test_an_attestor_without_serving_certificates_says_what_to_use(node: Node) -> None:
    node.bootstrap_kubeconfig.write_bytes(as_yaml(kubeconfig()))
    node.configure(provider="insecure", settings={"provider-id": PROVIDER_ID})
    code, output, log = node.run("request", "--dry-run", "--serving")
    assert (code, output) == (ExitCode.CONFIGURATION, "")
    assert "serverTLSBootstrap" in log


def test_host_keys_are_shown(node: Node, tmp_path: Path) -> None:
    node.store.open()
    node.store.save_known_cluster(KnownCluster(cluster(), ""))
    file = write_private_key(tmp_path / "ssh_host_ed25519_key", ssh_key("ed25519"))
    node.configure(providerID=PROVIDER_ID, ssh={"hostKeys": [str(file)], "hostKeysOID": "1.2.3.9"})
    fingerprint = public_key_of(ssh_key("ed25519")).fingerprint
    shown = dry_run(node)
    assert f"  host keys    {fingerprint} (extension 1.2.3.9)" in shown
    assert f"  provider ID  {PROVIDER_ID} (extension {PROVIDER_ID_OID})" in shown
