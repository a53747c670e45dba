"""``node-attestation-controller``: exit codes and messages."""

from __future__ import annotations

import argparse
import json
import logging
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import pytest

from signer import cli
from signer.cli import (
    EXIT_BROKEN_PIPE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NOT_WRITTEN,
    EXIT_USAGE,
    _parser,
    audit,
    explain,
    main,
    preflight,
    status,
)
from signer.cli.configuration import configuration_of
from signer.cli.leader_election import leader_election
from signer.configuration import InvalidConfiguration, LeaderElection, NoLeaderElection, Sharding
from signer.controller import cluster_api_change
from signer.crds import ACCESS_CRD_FILES, CRD_FILES
from signer.explain.recorded_objects import RECORDING_API_VERSION, RECORDING_KIND
from signer.kube.connection import ClusterConnection
from signer.model.explain_command import ControllerDeployment, NoControllerDeployment
from signer.model.lease import ElectionTimes
from signer.testing.api import EmbeddedAPI
from tests.support.full_disk import run_on_full_disk
from tests.support.no_reader import run_without_reader
from tests.support.processes import wait_until
from tests.support.yaml_documents import safe_load, safe_load_all

DEPLOYED = Path(__file__).parents[3] / "deploy" / "crds"
DEPLOYED_ACCESS = Path(__file__).parents[3] / "deploy" / "crds-access"
REDUCED = Path(__file__).parents[3] / "signer" / "testing" / "crds"
"""Cluster API's definitions."""
REQUESTS = Path(__file__).parents[3] / "fixtures" / "requests"
RECORDED_LOG = Path(__file__).parents[3] / "fixtures" / "audit" / "v1" / "audit.log"


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    logging.captureWarnings(False)


def run(*arguments: str) -> int:
    """The exit code, also if argparse exits."""
    try:
        return main(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else -1


def test_crds_prints_the_files_of_deploy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("crds") == 0
    printed = list(safe_load_all(capsys.readouterr().out))
    assert printed == [safe_load((DEPLOYED / name).read_text()) for name in CRD_FILES]
    assert {one["kind"] for one in printed} == {"CustomResourceDefinition"}
    assert sorted(path.name for path in DEPLOYED.iterdir()) == sorted(CRD_FILES)


def test_crds_prints_those_of_access_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("crds", "--access") == 0
    printed = list(safe_load_all(capsys.readouterr().out))
    deployed = [*(DEPLOYED / name for name in CRD_FILES), *(DEPLOYED_ACCESS / name for name in ACCESS_CRD_FILES)]
    assert printed == [safe_load(path.read_text()) for path in deployed]
    assert sorted(path.name for path in DEPLOYED_ACCESS.iterdir()) == sorted(ACCESS_CRD_FILES)


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [("crds",), ("audit", "verify", str(RECORDED_LOG))], ids=lambda words: words[0])
def test_broken_pipe(arguments: tuple[str, ...], unbuffered: str) -> None:
    """The reader closes the pipe early, as ``head`` does."""
    assert run_without_reader("signer.cli", arguments, unbuffered=unbuffered) == (EXIT_BROKEN_PIPE, b"")


FULL_DISK = (
    b"node-attestation-controller: standard output cannot be written: No space left on device: fix that, or write "
    b"elsewhere\n"
)
VERIFY_LOG = ("audit", "verify", str(RECORDED_LOG))


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [("crds",), VERIFY_LOG, (*VERIFY_LOG, "--output", "json")], ids=" ".join)
def test_output_to_a_full_disk(arguments: tuple[str, ...], unbuffered: str) -> None:
    """The exit code differs from that of a faulty log, and there is no traceback."""
    assert run_on_full_disk("signer.cli", arguments, unbuffered=unbuffered) == (EXIT_NOT_WRITTEN, FULL_DISK)
    # As in a cron job that writes both into one file.
    assert run_on_full_disk("signer.cli", arguments, unbuffered=unbuffered, log_too=True) == (EXIT_NOT_WRITTEN, b"")


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_log_that_cannot_be_written_changes_no_exit_code(tmp_path: Path, unbuffered: str) -> None:
    arguments = ("audit", "verify", str(tmp_path / "missing.log"))
    assert run_on_full_disk("signer.cli", arguments, unbuffered=unbuffered, log_too=True) == (EXIT_USAGE, b"")


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help"), ("--version",)], ids=" ".join)
def test_help_that_cannot_be_written(arguments: tuple[str, ...], unbuffered: str) -> None:
    """Also unbuffered, as in the image, where argparse hides the error."""
    assert run_on_full_disk("signer.cli", arguments, unbuffered=unbuffered) == (EXIT_NOT_WRITTEN, FULL_DISK)


@pytest.mark.slow
def test_closed_standard_output() -> None:
    """The command still runs, and sets its exit code."""
    command = f'"{sys.executable}" -m signer.cli audit verify "{RECORDED_LOG}" >&-'
    ran = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_the_exit_code_of_failed_output_is_unique() -> None:
    codes = {name: code for name, code in vars(cli).items() if name.startswith("EXIT_")}
    for module in (audit, explain, preflight, status):
        codes |= {f"{module.__name__}.{name}": code for name, code in vars(module).items() if name.startswith("EXIT_")}
    assert [name for name, code in codes.items() if code == EXIT_NOT_WRITTEN == 74] == ["EXIT_NOT_WRITTEN"]


def test_an_interrupt_prints_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("signer.cli.crds.run_crds", interrupted)
    assert run("crds") == EXIT_INTERRUPTED
    assert capsys.readouterr().err == ""


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert version("capi-node-attestation") in capsys.readouterr().out


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", "--help") == 0
    printed = capsys.readouterr().out
    for flag in ("--kubeconfig", "--config", "--enable-insecure-attestor", "--insecure-attestor-namespaces"):
        assert flag in printed


WEBHOOK = ("--ssh", "--access", "--access-webhook-address=127.0.0.1:0")
BOTH_OR_NEITHER = "give --enable-insecure-attestor and --insecure-attestor-namespaces together, or neither"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "COMMAND"),
        (("walk",), "'walk' is not one of run, "),
        (("run", "--workers-per-cluster", "0"), "between 1 and 1000"),
        (("run", "--workers-per-cluster", "many"), "argument --workers-per-cluster: must be between 1 and 1000"),
        (("run", "--workers-per-cluster", "1001"), "between 1 and 1000"),
        (("run", "--workers-per-cluster", "²"), "between 1 and 1000"),
        (("run", "--audit-log-maxsize", "9" * 5000), "argument --audit-log-maxsize: must be between 0 and 1000000"),
        (("run", "--audit-log-maxbackup", "-1"), "between 0 and 1000000"),
        (("run", "--logging-format", "xml"), "'xml' is not one of"),
        (
            ("run", "--enable-insecure-attestor"),
            BOTH_OR_NEITHER,
        ),
        (
            ("run", "--insecure-attestor-namespaces", "lab"),
            BOTH_OR_NEITHER,
        ),
        (
            ("run", "--enable-insecure-attestor", "--insecure-attestor-namespaces", ","),
            "--insecure-attestor-namespaces together, or neither",
        ),
        (("run", "--leader-elect", "--leader-elect-lease-duration", "10s"), "must be more than --leader-elect-renew"),
        (("run", "--leader-elect", "--leader-elect-retry-period", "0s"), "must be more than zero"),
        (("run", "--leader-elect", "--shards", "4"), "give one of the two"),
        (("run", "--shards", "0"), "between 1 and 256"),
        (("run", "--shards", "257"), "between 1 and 256"),
        (("run", "--shards", "four"), "between 1 and 256"),
        (("run", "--shards", "²"), "between 1 and 256"),
        (("run", "--shards", "9" * 5000), "between 1 and 256"),
        (("run", "--shards", "4", "--leader-elect-retry-period", "0s"), "must be more than zero"),
        (("run", "--shards", "4", "--leader-elect-resource-name", "a" * 64), "it is also a label value"),
        (("run", "--shards", "4", "--leader-elect-resource-name", "a-"), "'a-' cannot be a Lease's name"),
        (
            ("run", "--leader-elect", "--leader-elect-resource-name", "a/b"),
            "--leader-elect-resource-name: 'a/b' cannot",
        ),
        (("run", "--leader-elect", "--leader-elect-resource-name", "Foo_Bar"), "'Foo_Bar' cannot be a Lease's name: "),
        (("run", "--leader-elect", "--leader-elect-resource-name", "a..b"), "'a..b' cannot be a Lease's name: "),
        (("run", "--leader-elect", "--leader-elect-resource-name", ""), "'' cannot be a Lease's name: "),
        (("run", "--leader-elect-renew-deadline", "10"), "a duration is a number and a unit"),
        (("run", "--leader-elect-renew-deadline", "-10s"), "expected one argument"),
        (("run", "--leader-elect-renew-deadline", "10s "), "a duration is a number and a unit"),
        (("run", "--leader-elect-renew-deadline", "999999999h" * 3000), "at most one day"),
        (("run", "--provider-id-oids", "1.2.3,2.5.29.17"), "--provider-id-oids: 2.5.29.17 is the OID of another"),
        (("run", "--provider-id-oids", ""), "--provider-id-oids: '' is no OID"),
        (("explain", "--provider-id-oids", "x", "--cluster", "c", "csr"), "--provider-id-oids: 'x' is no OID"),
        (("run", "--ssh-host-keys-oids", "1.2.3,1.2.3"), "--ssh-host-keys-oids: an OID is repeated"),
        (("explain", "--ssh-host-keys-oids", "x", "--cluster", "c", "csr"), "--ssh-host-keys-oids: 'x' is no OID"),
        (
            ("run", "--ssh-host-keys-oids", "1.2.3", "--provider-id-oids", "1.2.4,1.2.3"),
            "an extension holds one of the",
        ),
        (("run", "--watch-filter", "no label"), "--watch-filter must be a label value"),
        (("run", "--namespace", "A/../B"), "argument -n/--namespace: 'A/../B' is not a namespace"),
        (("run", "--namespace", ""), "argument -n/--namespace: '' is not a namespace"),
        (("run", "--controller-namespace", "a" * 64), "is not a namespace"),
        (("run", "--enable-insecure-attestor", "--insecure-attestor-namespaces", "a, b"), "' b' is not a namespace"),
        (("status", "--namespace", "a.b"), "argument -n/--namespace: 'a.b' is not a namespace"),
        (("preflight", ""), "'' is not a Cluster name: write NAMESPACE/NAME"),
        (("preflight", "a/b/c"), "'a/b/c' is not a Cluster name: write NAMESPACE/NAME"),
        (("preflight", "a/"), "'a/' is not a Cluster name"),
        (("preflight", "a/b%2fc"), "is not a Cluster name"),
        (("preflight", "b", "--namespace", ".."), "argument -n/--namespace: '..' is not a namespace"),
        (("explain", "csr-1", "--cluster", "a/b/c"), "'a/b/c' is not a Cluster name: write NAMESPACE/NAME"),
        (("explain", "csr-1", "--cluster", ""), "'' is not a Cluster name"),
        (("explain", "csr-1"), "give the Cluster in which the CSR was posted: --cluster NAMESPACE/NAME"),
        (
            ("run", "--rotate-authorities-namespaces", "team-a"),
            "--rotate-authorities-namespaces needs --rotate-authorities: give both",
        ),
        (
            ("run", "--rotate-authorities", "--rotate-authorities-namespaces", "*"),
            "--rotate-authorities-namespaces: '*' is not a namespace",
        ),
        (("explain", "csr-1", "--cluster", "a/b", "--rotate-authorities"), "unknown arguments"),
        (("run", "--insecure-diagnostics"), "--insecure-diagnostics needs --diagnostics-address: give both"),
        (
            ("run", "--access-webhook-client-names=a"),
            "--access-webhook-client-names needs --access-webhook-client-ca: give both",
        ),
        (
            ("run", "--access-webhook-client-ca=none"),
            "--access-webhook-client-ca needs --access-webhook-address: give both",
        ),
        (
            ("run", *WEBHOOK, "--access-webhook-client-ca=/nonexistent"),
            "--access-webhook-client-ca: cannot read the file: No such file or directory",
        ),
        (
            ("run", *WEBHOOK, "--access-webhook-client-ca=/dev/null"),
            "--access-webhook-client-ca: the file is no PEM: name the CA of the API server's client certificate",
        ),
        (("run", "--config", "/nowhere/config"), "--config: /nowhere/config: No such file or directory"),
        (("run", "--kubeconfig", "/nowhere/kubeconfig"), "kubeconfig /nowhere/kubeconfig: no such file"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == EXIT_USAGE
    error = capsys.readouterr().err
    assert expected in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--config", "--config: {path} is nested too deeply"),
        ("--kubeconfig", "kubeconfig {path}: it is nested too deeply"),
    ],
)
def test_a_deeply_nested_file(flag: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.yaml"
    path.write_text("a: " + "[" * 10_000)
    assert run("run", flag, str(path)) == EXIT_USAGE
    error = capsys.readouterr().err
    assert error.splitlines()[-1] == f"node-attestation-controller: {expected.format(path=path)}"
    assert "Traceback" not in error


NOT_INSTALLED = "--config: attestors.tmp: no attestor of that name is installed; installed are: aws, composite, gcp, "


@pytest.mark.parametrize(
    "command", [("run",), ("preflight", "a/b"), ("explain", "csr-1", "--cluster", "a/b")], ids=lambda words: words[0]
)
def test_an_attestor_that_is_not_installed(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt name would leave the intended attestor allowed nowhere."""
    config = tmp_path / "config.yaml"
    config.write_text("attestors: {tmp: {namespaces: [team-a]}}")
    assert run(*command, "--config", str(config)) == EXIT_USAGE
    assert NOT_INSTALLED in capsys.readouterr().err


def test_explaining_a_recording_needs_no_installed_attestor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The attestors of a recording may not be installed where it is explained."""
    config = tmp_path / "config.yaml"
    config.write_text("attestors: {tmp: {namespaces: [team-a]}}")
    recorded = json.loads((REQUESTS / "v1" / "client.json").read_text())
    (tmp_path / "csr.json").write_text(json.dumps(recorded["certificateSigningRequest"]))
    cluster = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "b", "namespace": "a"}}
    (tmp_path / "cluster.json").write_text(json.dumps(cluster))
    objects = ("--objects", str(tmp_path / "cluster.json"), "--config", str(config), "--output", "json")
    assert run("explain", str(tmp_path / "csr.json"), *objects) == explain.EXIT_WAITS
    assert NOT_INSTALLED in " ".join(json.loads(capsys.readouterr().out)["notes"])


@pytest.mark.parametrize("floors", [True, False])
def test_explain_offline_says_that_floors_are_not_recorded(
    floors: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The policy that was in force may have been another."""
    recorded = json.loads((REQUESTS / "v1" / "client.json").read_text())
    (tmp_path / "csr.json").write_text(json.dumps(recorded["certificateSigningRequest"]))
    header = {"apiVersion": RECORDING_API_VERSION, "kind": RECORDING_KIND, "floors": floors}
    cluster = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "b", "namespace": "a"}}
    objects = tmp_path / "objects.json"
    objects.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [header, cluster]}))
    run("explain", str(tmp_path / "csr.json"), "--objects", str(objects), "--output", "json")
    notes = " ".join(json.loads(capsys.readouterr().out)["notes"])
    assert ("The operator had floors for policies, which are not recorded: give --config" in notes) is floors


NOTHING_NAMED = "no attestor is named: the controller denies every request"


@pytest.mark.parametrize("content", [None, "", "attestors:\n", "attestors: {}\n"])
def test_run_warns_if_no_attestor_is_configured(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(content or "")
    arguments = () if content is None else ("--config", str(config))
    run("run", "--kubeconfig", "/nowhere/kubeconfig", "--logging-format", "json", *arguments)
    warnings = [json.loads(line) for line in capsys.readouterr().err.splitlines() if NOTHING_NAMED in line]
    assert [(one["level"], one["flag"]) for one in warnings] == [("warning", "--config")]
    assert {"aws", "gcp", "tpm"} <= set(warnings[0]["attestors"])
    assert "attestors of the configuration file" in warnings[0]["detail"]


def test_run_does_not_warn_if_an_attestor_is_configured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("attestors: {tpm: {namespaces: []}}")
    assert run("run", "--config", str(config), "--kubeconfig", "/nowhere/kubeconfig") == EXIT_USAGE
    error = capsys.readouterr().err
    assert "no such file" in error
    assert NOTHING_NAMED not in error


def test_wrong_pod_namespace(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "../kube-system")
    assert run("run") == EXIT_USAGE
    assert "argument --controller-namespace: '../kube-system' is not a namespace" in capsys.readouterr().err


def test_the_pod_says_which_configuration_and_deployment_are_its(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text("attestors: {keyed-mac: {}}")
    assert configuration_of(parsed("--controller-namespace", "n")).runs_in == NoControllerDeployment()
    monkeypatch.setenv("NODE_ATTESTATION_CONFIG", str(tmp_path / "config.yaml"))
    monkeypatch.setenv("NODE_ATTESTATION_DEPLOYMENT", "controller")
    configuration = configuration_of(parsed("--controller-namespace", "n"))
    assert configuration.runs_in == ControllerDeployment("n", "controller")
    assert list(configuration.attestors) == ["keyed-mac"]
    monkeypatch.setenv("NODE_ATTESTATION_DEPLOYMENT", "a; reboot")
    with pytest.raises(InvalidConfiguration, match="NODE_ATTESTATION_DEPLOYMENT: 'a; reboot' is not the name of a"):
        configuration_of(parsed())


def parsed(*arguments: str) -> argparse.Namespace:
    return _parser().parse_args(["run", *arguments])


def test_leader_election_is_off_by_default() -> None:
    assert leader_election(parsed("--leader-elect-lease-duration", "1s")) == NoLeaderElection()


@pytest.mark.parametrize("count", [1, 256])
def test_shards_replace_leader_election(count: int) -> None:
    flags = ("--shards", str(count), "--leader-elect-lease-duration", "20s", "--leader-elect-resource-name", "a.b")
    times = ElectionTimes(lease_duration=timedelta(seconds=20))
    assert leader_election(parsed(*flags)) == Sharding(count, times, "a.b")
    assert leader_election(parsed("--shards", str(count))) == Sharding(count)


def test_leader_election_defaults_are_those_of_cluster_api() -> None:
    assert leader_election(parsed("--leader-elect")) == LeaderElection(ElectionTimes(), "node-attestation-controller")


@pytest.mark.parametrize(
    ("text", "seconds"), [("15s", 15), ("1m30s", 90), ("1.5m", 90), ("1h", 3600), ("90000ms", 90), ("20000000us", 20)]
)
def test_durations_parse_as_in_go(text: str, seconds: int) -> None:
    election = leader_election(parsed("--leader-elect", "--leader-elect-lease-duration", text))
    assert isinstance(election, LeaderElection)
    assert election.times.lease_duration == timedelta(seconds=seconds)


@pytest.fixture(scope="module")
def api() -> Iterator[EmbeddedAPI]:
    with EmbeddedAPI() as server:
        yield server


@pytest.fixture
def kubeconfig(api: EmbeddedAPI, tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(api.kubeconfig())
    return path


SERVING = ((), ("--insecure-diagnostics",), ("--health-addr",))


def served_at(address: str, how: tuple[str, ...]) -> tuple[str, ...]:
    """The flags for a server at that address."""
    return (*how, address) if how == ("--health-addr",) else ("--diagnostics-address", address, *how)


@pytest.mark.parametrize("how", SERVING, ids=" ".join)
@pytest.mark.parametrize(
    "address",
    ["8080", "host:port", ":99999", "host:", "::1", "::1:8080", "[::1]", "[::1:8080", "[]:8080", "[host]:8080", ":٨٠"],
)
def test_wrong_address(
    kubeconfig: Path, address: str, how: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = served_at(address, how)
    assert run("run", "--kubeconfig", str(kubeconfig), *arguments) == EXIT_USAGE
    error = capsys.readouterr().err
    assert f"{arguments[0]} must be HOST:PORT, such as :8080, or [::1]:8080 for an IPv6 address" in error


@pytest.mark.parametrize("how", SERVING, ids=" ".join)
def test_port_in_use(kubeconfig: Path, how: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        arguments = served_at(f"127.0.0.1:{taken.getsockname()[1]}", how)
        assert run("run", "--kubeconfig", str(kubeconfig), *arguments) == EXIT_USAGE
    assert f"{arguments[0]}: cannot listen:" in capsys.readouterr().err


@pytest.mark.parametrize("how", SERVING, ids=" ".join)
def test_port_in_use_on_an_ipv6_address(
    kubeconfig: Path, how: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Shows that the server listens on this address and port."""
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        arguments = served_at(f"[::1]:{taken.getsockname()[1]}", how)
        assert run("run", "--kubeconfig", str(kubeconfig), *arguments) == EXIT_USAGE
    assert f"{arguments[0]}: cannot listen: Address already in use" in capsys.readouterr().err


@pytest.mark.slow
def test_management_cluster_without_cluster_api(kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", "--kubeconfig", str(kubeconfig)) == EXIT_FAILED
    error = capsys.readouterr().err
    assert "node-attestation-controller: the management cluster: 404 NotFound: it serves neither" in error
    assert "install Cluster API there" in error
    assert "Traceback" not in error


def test_cluster_api_changes_while_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The controller exits, so that it is restarted."""
    monkeypatch.setattr(cluster_api_change, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(cluster_api_change, "CONFIRM_SECONDS", 0.01)
    with EmbeddedAPI() as api:
        ours = [DEPLOYED / name for name in CRD_FILES]
        files = {file.name: file.read_text() for file in (*sorted(REDUCED.glob("*.yaml")), *ours)}
        pools = files.pop("cluster.x-k8s.io_machinepools.yaml")
        for text in files.values():
            api.apply_yaml(text)
        (tmp_path / "kubeconfig").write_text(api.kubeconfig())
        seen = "GET */configmaps"

        def install() -> None:
            try:
                wait_until(lambda: bool(api.requests.matching(seen)), "the controller has started")
            finally:
                api.apply_yaml(pools)

        installing = threading.Thread(target=install)
        installing.start()
        arguments = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--namespace", "default")
        assert run("run", *arguments) == EXIT_FAILED
        installing.join()
        assert api.requests.matching(seen)
    error = capsys.readouterr().err
    assert (
        "node-attestation-controller: restart required: the management cluster now serves cluster.x-k8s.io/v1beta2 "
        "instead of cluster.x-k8s.io/v1beta2 without MachinePools\n"
    ) in error
    assert "Traceback" not in error


def test_management_cluster_without_our_crds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedAPI() as api:
        for file in sorted(REDUCED.glob("*.yaml")):
            api.apply_yaml(file.read_text())
        path = tmp_path / "kubeconfig"
        path.write_text(api.kubeconfig())
        assert run("status", "--kubeconfig", str(path)) == EXIT_FAILED
    error = capsys.readouterr().err
    assert "/nodeattestationpolicies is not served there: apply what `node-attestation-controller crds` prints" in error


@pytest.mark.parametrize(
    ("connect", "message"),
    [
        (lambda api: api.token_connection("unknown"), "401 Unauthorized: .*: see --kubeconfig"),
        (
            lambda api: api.connection("tenant", ()),
            "403 Forbidden: .* cannot list .*: grant that to the user of .*for one namespace only, give --namespace$",
        ),
    ],
    ids=["unauthorized", "forbidden"],
)
def test_management_cluster_refuses_the_user(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    connect: Callable[[EmbeddedAPI], ClusterConnection],
    message: str,
) -> None:
    with EmbeddedAPI() as api:
        for file in sorted(REDUCED.glob("*.yaml")):
            api.apply_yaml(file.read_text())
        path = tmp_path / "kubeconfig"
        path.write_text(api.kubeconfig(connection=connect(api)))
        assert run("status", "--kubeconfig", str(path)) == EXIT_FAILED
    assert re.search(f"the management cluster: {message}", capsys.readouterr().err, re.MULTILINE)


@pytest.mark.slow
def test_unreachable_management_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedAPI() as gone:
        path = tmp_path / "kubeconfig"
        path.write_text(gone.kubeconfig())
    assert run("run", "--kubeconfig", str(path)) == EXIT_FAILED
    assert "the management cluster: Unreachable" in capsys.readouterr().err
