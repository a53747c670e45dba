"""``prepare`` takes in the bootstrap credential and writes the kubelet's kubeconfig, and touches nothing else."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from attestors.wire.names import Purpose
from authenticator.flow import prepare as prepare_module
from authenticator.flow.prepare import ExecStanza, Prepared, prepare
from authenticator.model.cluster import BearerToken, Cluster
from authenticator.model.failures import ExitCode, InvalidConfiguration
from authenticator.model.kubeconfig import exec_info_bytes
from authenticator.model.trust_state import Change, TrustState
from authenticator.store import files, store
from authenticator.store.lock import LockHeld
from authenticator.store.store import KnownCluster
from signer.testing.api import EmbeddedAPI
from tests.integration.authenticator.fixtures import DAY, LONG_AGO, ClusterAdmin, Node, asking
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.kubectl import find_kubectl
from tests.support.node_program import PROGRAM, V1, V1BETA1, Ran
from tests.support.yaml_documents import safe_load
from tests.unit.authenticator.builders import authority

SOMEBODY_ELSES = """\
apiVersion: v1
kind: Config
clusters: []
users: [{name: default-auth, user: {client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem}}]
"""


def written(node: Node) -> dict[str, Any]:
    """The kubelet's kubeconfig."""
    document: dict[str, Any] = safe_load(node.configuration.kubeconfig.read_text())
    return document


def stanza(node: Node) -> dict[str, Any]:
    """Its exec stanza."""
    (user,) = written(node)["users"]
    found: dict[str, Any] = user["user"]["exec"]
    return found


def run(node: Node, *arguments: str) -> Ran:
    """Run the command in a process."""
    return node.program().run("prepare", *arguments)


def prepare_here(node: Node, api_version: str = V1) -> Prepared:
    """The same in this process."""
    arguments = ["credential", "--config", "/etc/kubernetes/kubelet-authenticator.json"]
    command = ExecStanza("/usr/local/bin/kubelet-authenticator", arguments, api_version)
    return prepare(node.configuration, node.store, command, node.time.clock())


@pytest.mark.slow
def test_without_a_bootstrap_kubeconfig_nothing_is_touched(api: EmbeddedAPI, node: Node) -> None:
    ran = run(node)
    assert (ran.exit_code, ran.output) == (ExitCode.DONE, "")
    assert "nothing to do" in ran.log
    assert not node.configuration.store.exists()
    assert not node.configuration.kubeconfig.exists()
    assert len(api.requests) == 0


@pytest.mark.slow
def test_the_kubeconfig_names_server_authority_and_this_program_by_absolute_paths(api: EmbeddedAPI, node: Node) -> None:
    node.supply_bootstrap()
    ran = run(node)
    assert ran.exit_code == ExitCode.DONE, ran.log
    (cluster,) = written(node)["clusters"]
    assert cluster["cluster"]["server"] == api.server
    file = node.store.authority_file
    assert cluster["cluster"] == {"server": api.server, "certificate-authority": str(file)}
    assert file.read_bytes() == api.ca_certificate_pem
    assert file.stat().st_mode & 0o777 == 0o644
    command = stanza(node)
    assert command["command"] == str(PROGRAM)
    assert os.path.isabs(command["command"])
    assert command["args"] == ["credential", "--config", str(node.folder / "kubelet-authenticator.json")]
    assert (command["apiVersion"], command["interactiveMode"], command["provideClusterInfo"]) == (V1, "Never", True)
    assert node.configuration.kubeconfig.stat().st_mode & 0o777 == 0o600


def test_the_credential_is_copied_and_not_written_into_the_kubeconfig(api: EmbeddedAPI, node: Node) -> None:
    token = node.supply_bootstrap()
    assert prepare_here(node) is Prepared.WRITTEN
    copied = node.store.bootstrap()
    assert copied is not None
    assert copied.credential == BearerToken(token)
    assert token not in node.configuration.kubeconfig.read_text()
    assert len(api.requests) == 0


def test_a_second_run_changes_nothing(node: Node) -> None:
    node.supply_bootstrap()
    prepare_here(node)
    files = [
        node.configuration.kubeconfig,
        node.store.authority_file,
        node.store.folder / "kubelet-authenticator-bootstrap.json",
    ]
    before = [(path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes()) for path in files]
    assert prepare_here(node) is Prepared.AS_IT_WAS
    assert [(path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes()) for path in files] == before


def test_a_kubeconfig_of_its_own_follows_the_bootstrap_kubeconfig(node: Node) -> None:
    node.supply_bootstrap()
    prepare_here(node)
    path = node.configuration.bootstrap_kubeconfig
    path.write_text(path.read_text().replace("https://127.0.0.1:", "https://localhost:"))
    assert prepare_here(node) is Prepared.WRITTEN
    assert written(node)["clusters"][0]["cluster"]["server"].startswith("https://localhost:")


def test_the_authority_follows_too(node: Node) -> None:
    """As when the bootstrap kubeconfig of a machine that joins again has a CA more, or a file was lost."""
    node.supply_bootstrap()
    assert prepare_here(node) is Prepared.WRITTEN
    kubeconfig, wanted = node.configuration.kubeconfig.read_bytes(), node.store.authority_file.read_bytes()
    for lost in (None, b"", b"another"):
        if lost is None:
            node.store.authority_file.unlink()
        else:
            node.store.authority_file.write_bytes(lost)
        assert prepare_here(node) is Prepared.WRITTEN
        assert node.store.authority_file.read_bytes() == wanted
        assert node.configuration.kubeconfig.read_bytes() == kubeconfig
    assert prepare_here(node) is Prepared.AS_IT_WAS


def test_the_kubeconfig_never_names_a_file_that_is_not_there(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash after any write leaves what client-go can read, or nothing."""
    node.supply_bootstrap()
    written_files: list[str] = []

    def noted(path: Path, content: str, **options: Any) -> None:
        written_files.append(path.name)
        files.write_atomically(path, content, **options)

    for module in (prepare_module, store):
        monkeypatch.setattr(module, "write_atomically", noted)
    prepare_here(node)
    assert written_files[-2:] == ["kubelet-authenticator-ca.crt", "kubelet.conf"]


def test_an_exec_stanza_for_older_kubelets_can_be_written(node: Node) -> None:
    node.supply_bootstrap()
    assert prepare_here(node) is Prepared.WRITTEN
    assert prepare_here(node, V1BETA1) is Prepared.WRITTEN
    assert stanza(node)["apiVersion"] == V1BETA1


@pytest.mark.parametrize("content", [SOMEBODY_ELSES, "garbage", "kind: Config\nusers: []\n"])
def test_another_programs_kubeconfig_is_left_alone(node: Node, content: str) -> None:
    token = node.supply_bootstrap()
    path = node.configuration.kubeconfig
    path.write_text(content)
    before = (path.stat().st_mtime_ns, path.stat().st_ino)
    assert prepare_here(node) is Prepared.NOT_OURS
    assert (path.read_text(), (path.stat().st_mtime_ns, path.stat().st_ino)) == (content, before)
    assert not node.store.authority_file.exists()
    # The credential is taken in all the same: somebody's own kubeconfig may run this program by another way.
    copied = node.store.bootstrap()
    assert copied is not None
    assert copied.digest == node.digest(token)


@pytest.mark.slow
def test_another_programs_kubeconfig_is_no_failure(node: Node) -> None:
    node.supply_bootstrap()
    node.configuration.kubeconfig.write_text(SOMEBODY_ELSES)
    ran = run(node)
    assert ran.exit_code == ExitCode.DONE
    assert "left the kubeconfig alone" in ran.log


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"token: abcdef.0123456789abcdef",
        b"apiVersion: v1\nkind: Config\n",
        b"x" * 600_000,
        None,
    ],
    ids=["empty", "no text", "no kubeconfig", "no context", "too large", "a folder"],
)
def test_an_unusable_bootstrap_kubeconfig_is_reported(node: Node, content: bytes | None) -> None:
    path = node.configuration.bootstrap_kubeconfig
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(InvalidConfiguration, match=str(path)) as caught:
        prepare_here(node)
    assert "0123456789abcdef" not in str(caught.value)
    assert not node.configuration.kubeconfig.exists()
    assert not node.configuration.store.exists()


@pytest.mark.slow
def test_a_bootstrap_kubeconfig_that_cannot_be_used_is_exit_code_2(node: Node) -> None:
    node.configuration.bootstrap_kubeconfig.write_text("token: abcdef.0123456789abcdef")
    ran = run(node)
    assert ran.exit_code == ExitCode.CONFIGURATION
    assert "Traceback" not in ran.log
    assert "0123456789abcdef" not in ran.log


@pytest.mark.slow
def test_a_bootstrap_kubeconfig_that_cannot_be_used_keeps_no_kubelet_that_needs_none_from_starting(node: Node) -> None:
    """As the kubelet itself does not look at it while its certificate is valid."""
    node.supply_bootstrap()
    assert run(node).exit_code == ExitCode.DONE
    former = node.configuration.kubeconfig.read_text()
    node.configuration.bootstrap_kubeconfig.write_text("apiVersion: v1\nkind: Conf")
    assert run(node).exit_code == ExitCode.CONFIGURATION
    node.put_pair(age=LONG_AGO, left=DAY)
    ran = run(node)
    assert ran.exit_code == ExitCode.DONE
    assert f"; the kubelet continues with {node.configuration.kubeconfig} and the stored certificate" in ran.log
    assert node.configuration.kubeconfig.read_text() == former
    node.put_pair(age=LONG_AGO, left=-1)
    assert run(node).exit_code == ExitCode.CONFIGURATION
    node.put_pair(age=LONG_AGO, left=DAY)
    node.configuration.kubeconfig.write_text(SOMEBODY_ELSES)
    assert run(node).exit_code == ExitCode.CONFIGURATION
    node.configuration.kubeconfig.write_text(former)
    node.store.pair_file(Purpose.CLIENT).write_text("")
    assert run(node).exit_code == ExitCode.CONFIGURATION


def test_a_kubeconfig_that_cannot_be_written_is_reported(node: Node) -> None:
    node.supply_bootstrap()
    node.changes["kubeconfig"] = node.folder / "missing" / "kubelet.conf"
    with pytest.raises(InvalidConfiguration, match=r"missing/kubelet\.conf: No such file"):
        prepare_here(node)


def test_a_credential_that_was_used_is_not_taken_in_again(node: Node) -> None:
    token = node.supply_bootstrap()
    node.put_pair(age=LONG_AGO, left=-1, used=node.digest(token))
    prepare_here(node)
    assert node.store.bootstrap() is None
    assert node.configuration.kubeconfig.exists()


def test_a_credential_is_not_taken_in_while_the_certificate_is_valid(node: Node) -> None:
    node.put_pair(age=LONG_AGO, left=DAY)
    node.supply_bootstrap()
    prepare_here(node)
    assert node.store.bootstrap() is None


def test_a_credential_of_another_cluster_is_taken_in_and_the_pair_set_aside(node: Node) -> None:
    """A machine that was reset, and joins elsewhere: the printing path would else print the former cluster's pair."""
    former = node.put_pair(age=LONG_AGO, left=DAY)
    with EmbeddedAPI() as other:
        token = node.supply_bootstrap(api=other)
        prepare_here(node)
    assert node.store.pair(Purpose.CLIENT) is None
    assert (node.store.folder / "kubelet-authenticator-client.former.pem").read_text() == former.encode()
    copied = node.store.bootstrap()
    assert copied is not None
    assert copied.credential == BearerToken(token)


@pytest.mark.parametrize("state", ["in force", "under way"])
def test_a_bootstrap_kubeconfig_from_before_a_rotation_brings_no_former_ca_back(node: Node, state: str) -> None:
    """The file lies there since the join, and names the old CA alone."""
    token = node.supply_bootstrap()
    prepare_here(node)
    old = node.cluster
    pair = node.put_pair(age=LONG_AGO, left=DAY, used=node.digest(token))
    node.store.wipe_bootstrap()
    rotated = Cluster(old.server, authority(7))
    node.store.save_known_cluster(KnownCluster(rotated, node.digest(token)))
    node.store.save_authority(authority(7))
    change = Change("", 1, (), 60) if state == "under way" else None
    trusted = TrustState(sequence=0 if change else 1, lineage=old.authority_hashes, change=change)
    node.store.save_trust_state(trusted)
    assert prepare_here(node) is Prepared.AS_IT_WAS
    assert node.store.authority_file.read_text() == authority(7)
    kept = node.store.pair(Purpose.CLIENT)
    assert kept is not None
    assert kept.encode() == pair.encode()
    assert node.store.trust_state() == trusted
    node.store.save_trust_state(TrustState())
    prepare_here(node)
    assert node.store.pair(Purpose.CLIENT) is None, "without a statement, it is another cluster"


def test_it_does_not_wait_for_a_running_request(node: Node) -> None:
    """A kubelet's start must not hang on an exchange that takes minutes."""
    node.supply_bootstrap()
    node.store.open()
    with node.store.lock(Purpose.CLIENT, timeout=0):
        assert prepare_here(node) is Prepared.WRITTEN


def test_it_does_not_write_during_another_write(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_BOOTSTRAP_LOCK_SECONDS", 0.1)
    node.supply_bootstrap()
    node.store.open()
    with node.store.bootstrap_lock(), pytest.raises(LockHeld):
        prepare_here(node)
    assert not node.configuration.kubeconfig.exists()


@pytest.mark.slow
def test_relative_flags_become_absolute(node: Node) -> None:
    """A kubelet runs the program in its own working directory."""
    node.supply_bootstrap()
    program = node.program()
    flags = [
        "--config",
        program.configuration.name,
        "--store",
        "pki",
        "--bootstrap-kubeconfig",
        "bootstrap-kubelet.conf",
    ]
    done = subprocess.run(
        [str(PROGRAM), "prepare", *flags, "--kubeconfig", "kubelet.conf"],
        cwd=node.folder,
        env=program.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == ExitCode.DONE, done.stderr
    arguments = stanza(node)["args"]
    assert arguments == [
        "credential",
        "--config",
        str(program.configuration),
        "--store",
        str(node.folder / "pki"),
        "--bootstrap-kubeconfig",
        str(program.bootstrap_kubeconfig),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["prepare", "agent"])
def test_settings_do_not_go_into_a_command_line_for_all_to_read(node: Node, command: str) -> None:
    node.supply_bootstrap()
    ran = node.program().run(command, "--setting", "machine-key=a-secret")
    assert "--setting would be readable in the kubelet's kubeconfig" in ran.log
    assert "a-secret" not in ran.log
    assert not node.configuration.kubeconfig.exists()


@pytest.mark.slow
def test_a_misspelt_flag_is_named_without_its_value(node: Node) -> None:
    ran = node.program().run("credential", "--settings", "machine-key=a-secret", "--stor=elsewhere")
    assert ran.exit_code == 2
    assert "--settings" in ran.log
    assert "a-secret" not in ran.log
    assert "elsewhere" not in ran.log


@pytest.mark.slow
def test_the_configuration_of_the_environment_is_written_down(node: Node) -> None:
    """The kubelet's environment is another one."""
    node.supply_bootstrap()
    program = node.program()
    environment = program.environment({"KUBELET_AUTHENTICATOR_CONFIG": program.configuration.name})
    done = subprocess.run(
        [str(PROGRAM), "prepare"], cwd=node.folder, env=environment, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == ExitCode.DONE, done.stderr
    assert stanza(node)["args"] == ["credential", "--config", str(program.configuration)]


@pytest.mark.slow
@pytest.mark.parametrize("certificates", [1, 400], ids=["one-ca", "trust-store"])
def test_the_real_kubectl_works_with_what_was_written(
    admin: ClusterAdmin, node: Node, tmp_path: Path, certificates: int
) -> None:
    """client-go runs the program, which asks for its first certificate and prints it.

    The cluster's CA may be the first of a company's whole trust store, of which Linux passes no program 128 KiB.
    """
    try:
        kubectl = find_kubectl()
    except MissingPart as missing:
        skip_or_fail(missing)
    node.supply_bootstrap()
    path = node.configuration.bootstrap_kubeconfig
    document = safe_load(path.read_text())
    more = authority(7) * (certificates - 1)
    bundle = admin.api.ca_certificate_pem + more.encode()
    document["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(bundle).decode()
    path.write_text(yaml.safe_dump(document))
    ran = run(node)
    assert ran.exit_code == ExitCode.DONE
    size = exec_info_bytes(Cluster(admin.api.server, bundle.decode()), V1)
    told = f"would take {size} bytes in KUBERNETES_EXEC_INFO, and Linux takes 131072 in one string"
    assert (told in ran.log) is (certificates > 1)
    assert stanza(node)["provideClusterInfo"] is (certificates == 1)
    node.configuration.bootstrap_kubeconfig.unlink()

    def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        """Without a PATH in which this program could be found."""
        common = ["--kubeconfig", str(node.configuration.kubeconfig), "--cache-dir", str(tmp_path / "cache")]
        return subprocess.run(
            [str(kubectl), *common, *arguments],
            env={"HOME": str(tmp_path), "PATH": ""},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    with asking(lambda: ask("get", "csr", "-o", "json")) as answer:
        found = admin.next()
        admin.grant(found)
        done = answer.result()
    assert done.returncode == 0, done.stderr
    assert [item["metadata"]["name"] for item in json.loads(done.stdout)["items"]] == [found["metadata"]["name"]]
    # And once more, with the stored certificate.
    again = ask("get", "csr", found["metadata"]["name"], "-o", "name")
    assert again.stdout.strip().endswith(found["metadata"]["name"])
    assert again.stderr == ""
