"""A node is called otherwise after a reboot, or its settings change: said at every start, and nothing is lost."""

from __future__ import annotations

import base64
import json
import os
import subprocess

import pytest
import yaml

from attestors.wire.names import Purpose
from authenticator.model.attempt import Attempt
from authenticator.model.failures import ExitCode
from authenticator.store.store import KnownCluster
from signer.testing.api import EmbeddedAPI
from tests.integration.authenticator.fixtures import DAY, LONG_AGO, ClusterAdmin, Node, asking, created
from tests.integration.authenticator.test_agent import Service
from tests.integration.fixtures import provider_id
from tests.support.node_program import PROGRAM, exec_info
from tests.support.yaml_documents import safe_load
from tests.unit.authenticator.builders import authority

pytestmark = pytest.mark.slow

OTHER = "broken-name"


def test_the_program_says_it_at_every_start(admin: ClusterAdmin, node: Node) -> None:
    node.supply_bootstrap()
    program = node.program()
    assert program.run("prepare").exit_code == ExitCode.DONE
    with asking(program.credential) as answer:
        admin.grant(admin.next())
        joined = answer.result()
    assert joined.exit_code == ExitCode.DONE, joined.log
    program.bootstrap_kubeconfig.unlink()
    for command in ("credential", "prepare", "status"):
        ran = program.run(command, environment=exec_info())
        assert (ran.exit_code, "stored certificate is of" in ran.log) == (ExitCode.DONE, False), ran.log

    program.configure(nodeName=OTHER, providerID="test:///other")
    credential = program.credential()
    assert credential.certificate() == joined.certificate()
    prepared, status = program.run("prepare"), program.run("status", "--output", "json")
    assert (prepared.exit_code, status.exit_code) == (ExitCode.DONE, ExitCode.MISMATCH)
    for ran in (credential, prepared, status):
        assert f"the stored certificate is of nodeName {node.name}, not {OTHER}: the API server takes" in ran.log
        assert f"of providerID {provider_id(node.name)}, not test:///other: the renewal claims the latter" in ran.log
    assert [one["property"] for one in json.loads(status.output)["mismatches"]] == ["nodeName", "providerID"]


def test_request_says_why_it_sends_nothing(admin: ClusterAdmin, api: EmbeddedAPI, node: Node) -> None:
    """The store is another attestor's, as after a wrong --store."""
    node.supply_bootstrap()
    program = node.program()
    with asking(lambda: program.run("request")) as answer:
        admin.grant(admin.next())
        assert answer.result().exit_code == ExitCode.DONE
    assert program.run("request").exit_code == ExitCode.DONE, "it is there, and it is the right one"
    before = created(api)
    program.configure(provider="insecure")
    for arguments in ((), ("--now",)):
        ran = program.run("request", *arguments)
        assert ran.exit_code == ExitCode.MISMATCH, ran.log
        assert "the stored certificate is of signerName" in ran.log
        assert f"the certificate in {program.store} stays, because it is valid: give the right folder" in ran.log
        assert "the certificates are in" not in ran.log
    assert created(api) == before


def test_prepare_says_it_with_a_used_bootstrap_kubeconfig_too(node: Node) -> None:
    token = node.supply_bootstrap()
    node.put_pair(age=LONG_AGO, left=DAY, used=node.digest(token))
    program = node.program()
    assert "stored certificate" not in program.run("prepare").log
    program.configure(nodeName=OTHER)
    ran = program.run("prepare")
    assert (ran.exit_code, f"is of nodeName {node.name}, not {OTHER}" in ran.log) == (ExitCode.DONE, True)


def test_the_hosts_own_name(node: Node) -> None:
    """In a UTS namespace of its own, where the host may be called otherwise."""
    node.put_pair(age=LONG_AGO, left=DAY)
    program = node.program()
    program.configure(nodeName="")

    def run(name: str, command: str) -> subprocess.CompletedProcess[str]:
        shell = 'hostname "$0" && exec "$@"'
        return subprocess.run(
            ["unshare", "--uts", "sh", "-c", shell, name, str(PROGRAM), command, "--config", program.configuration],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, **exec_info()},
        )

    probe = subprocess.run(["unshare", "--uts", "hostname", "probe"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("this user may not rename a host in a namespace: run as root")
    assert (run(node.name, "credential").stderr, run(node.name, "status").returncode) == ("", ExitCode.DONE)
    fully_qualified = f"{node.name}.corp.example"
    done = run(fully_qualified, "credential")
    assert (done.returncode, json.loads(done.stdout)["kind"]) == (ExitCode.DONE, "ExecCredential")
    assert f"is of nodeName {node.name}, not {fully_qualified}" in done.stderr
    assert run(fully_qualified, "status").returncode == ExitCode.MISMATCH


def test_a_certificate_of_another_name_is_not_renewed(admin: ClusterAdmin, api: EmbeddedAPI, node: Node) -> None:
    """The controller would deny it for good: a node may only ask for its own."""
    pair = node.put_pair(age=9 * DAY, left=DAY)
    right, node.changes["node_name"] = node.name, OTHER
    use = node.certificates().client()
    assert (use.pair.key, created(api)) == (pair.key, [])
    assert (
        f"the certificate was not renewed: a certificate of node {right} is not renewed as {OTHER}" in node.reports[0]
    )
    # As soon as it is called as before, no pause applies.
    del node.changes["node_name"]
    with asking(lambda: node.certificates().client(timeout=20.0)) as answer:
        admin.grant(admin.next())
        assert answer.result().pair.key != pair.key


def test_what_a_certificate_is_for_is_stored_with_it(admin: ClusterAdmin, node: Node) -> None:
    node.put_pair(age=9 * DAY, left=DAY)
    assert node.store.known_cluster() == KnownCluster(node.cluster, "")
    with asking(lambda: node.certificates().client(timeout=20.0)) as answer:
        admin.grant(admin.next())
        answer.result()
    assert node.store.known_cluster() == KnownCluster(node.cluster, "", "keyed-mac", provider_id(node.name))
    assert node.store.attempt(Purpose.CLIENT) == Attempt()


def test_the_agent_says_it_once_and_to_systemd(node: Node) -> None:
    node.put_pair(age=LONG_AGO, left=DAY)
    node.changes["node_name"] = OTHER
    service = Service(node)
    for _ in range(3):
        service.turn()
    said = f"the stored certificate is of nodeName {node.name}, not {OTHER}: "
    assert [report for report in node.reports if report.startswith(said)] == node.reports[:1]
    assert service.status.startswith(f"STATUS={said}")
    assert "READY=1" in service.told


def test_the_agent_is_content_again(node: Node) -> None:
    node.put_pair(age=LONG_AGO, left=DAY)
    service = Service(node)
    service.turn()
    assert service.status.startswith("STATUS=certificates are fresh")
    assert node.reports == []


def test_a_kubeconfig_of_another_cluster(node: Node) -> None:
    """Whatever wrote it: this program itself would have set the certificate aside."""
    node.supply_bootstrap()
    program = node.program()
    assert program.run("prepare").exit_code == ExitCode.DONE
    program.bootstrap_kubeconfig.unlink()
    node.store.wipe_bootstrap()
    node.put_pair(age=LONG_AGO, left=DAY)
    assert program.run("status").exit_code == ExitCode.DONE
    program.kubeconfig.write_text(with_authority(program.kubeconfig.read_text(), authority(7)))
    status = program.run("status")
    assert status.exit_code == ExitCode.MISMATCH
    assert "the two have no CA in common" in status.log
    assert "mismatch     cluster: stored https://127.0.0.1:" in status.output


def with_authority(text: str, pem: str) -> str:
    """The kubeconfig with another CA."""
    document = safe_load(text)
    target = document["clusters"][0]["cluster"]
    target.pop("certificate-authority", None)
    target["certificate-authority-data"] = base64.b64encode(pem.encode()).decode()
    return str(yaml.safe_dump(document))
