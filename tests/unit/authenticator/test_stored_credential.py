"""The printing path: what it prints is what the other path would print, and it leaves to that whatever is unusual."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attestors.wire.names import Purpose
from authenticator import cli, commands
from authenticator.commands.renewal import Finished
from authenticator.flow.clock import Clock
from authenticator.model.failures import ExitCode
from authenticator.model.pair import CERTIFICATE_END, KEY_BEGIN, MAXIMUM_CHARACTERS, Pair
from authenticator.store.store import KnownCluster, Store
from authenticator.stored_credential import (
    CREDENTIAL_FLAGS,
    DEFAULT_CONFIGURATION_FILE,
    DEFAULT_STORE,
    MoreToDo,
    print_stored,
)
from tests.support.full_disk import FULL, run_on_full_disk
from tests.support.no_reader import run_without_reader
from tests.support.renewal_here import renew_here
from tests.unit.authenticator.builders import (
    NODE,
    NOW,
    PROVIDER_ID,
    V1,
    V1BETA1,
    authority,
    bootstrap,
    cluster,
    encoded,
    exec_info,
    key_pem,
    pair_with_left,
)

ROOT = Path(__file__).parents[3]
UNIX_NOW = int(NOW.timestamp())
OTHER_PATH = 99
HEADER = {"apiVersion": "attestation.cluster.x-k8s.io/v1alpha1", "kind": "KubeletAuthenticatorConfiguration"}
DAY = timedelta(days=1)


@dataclass
class Node:
    """A store with a certificate, and the two paths to print it."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    others: list[list[str]] = field(default_factory=list)

    @property
    def store(self) -> Store:
        return Store(self.folder / "pki")

    @property
    def flags(self) -> list[str]:
        return ["--store", str(self.store.folder)]

    def keep(self, pair: Pair) -> None:
        """Store a pair."""
        self.store.open()
        self.store.save_pair(Purpose.CLIENT, pair)

    def configure(self, content: object) -> str:
        """Write a configuration file; returns its path."""
        path = self.folder / "configuration.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def prints(self, *arguments: str) -> dict[str, Any]:
        """What ``credential`` prints at once."""
        print_stored([*arguments])
        printed: dict[str, Any] = json.loads(self.capsys.readouterr().out)
        return printed

    def other_path(self, *arguments: str) -> dict[str, Any]:
        """What is printed once everything was parsed."""
        self.monkeypatch.setattr("authenticator.commands.credential.Clock", lambda: Clock(wall=lambda: UNIX_NOW))
        self.monkeypatch.setattr("authenticator.commands.credential.renew_in_child", renew_here)
        assert commands.run(["credential", *arguments]) == 0
        printed: dict[str, Any] = json.loads(self.capsys.readouterr().out)
        return printed

    def note_the_other_path(self) -> None:
        """Nothing is parsed; what it was given is in ``others``."""

        def run(given: list[str]) -> int:
            self.others.append(given)
            return OTHER_PATH

        self.monkeypatch.setattr(commands, "run", run)

    def leaves_to_the_other_path(self, *arguments: str) -> None:
        """Nothing is printed, and ``commands`` goes on with the very same arguments."""
        self.note_the_other_path()
        assert cli.main(["credential", *arguments]) == OTHER_PATH
        assert self.others == [["credential", *arguments]]
        assert self.capsys.readouterr().out == ""


@pytest.fixture
def node(
    tmp_path: Path,
    nothing_configured: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Node:
    monkeypatch.setenv("KUBERNETES_EXEC_INFO", exec_info())
    monkeypatch.setattr("authenticator.stored_credential.time.time", lambda: UNIX_NOW + 0.9)
    made = Node(tmp_path, monkeypatch, capsys)
    made.keep(pair_with_left(NOW, 9 * DAY))
    return made


# Whose store it is


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_nothing_is_printed_of_a_store_that_others_may_write_in(node: Node, mode: int) -> None:
    """What stands there may be theirs."""
    node.store.folder.chmod(mode)
    node.leaves_to_the_other_path(*node.flags)


def test_nothing_is_printed_from_another_users_store(node: Node) -> None:
    owner = node.store.folder.stat().st_uid
    node.monkeypatch.setattr("authenticator.stored_credential.os.geteuid", lambda: owner + 1)
    node.leaves_to_the_other_path(*node.flags)


# What is printed


@pytest.mark.parametrize("api_version", [V1, V1BETA1])
def test_the_stored_certificate_is_printed_as_it_was_asked_for(node: Node, api_version: str) -> None:
    node.monkeypatch.setenv("KUBERNETES_EXEC_INFO", exec_info(api_version))
    kept = node.store.pair(Purpose.CLIENT)
    assert kept is not None
    assert node.prints(*node.flags) == {
        "apiVersion": api_version,
        "kind": "ExecCredential",
        "status": {
            "clientCertificateData": kept.certificate,
            "clientKeyData": kept.key,
            "expirationTimestamp": "2026-01-02T04:04:05Z",
        },
    }


@pytest.mark.parametrize(
    "left",
    [9 * DAY, 2 * DAY + timedelta(seconds=1), 2 * DAY + timedelta(minutes=1), 2 * DAY + timedelta(hours=1), 3 * DAY],
    ids=["fresh", "one-second", "one-minute", "one-hour", "a-day"],
)
def test_both_paths_print_the_same(node: Node, left: timedelta) -> None:
    node.keep(pair_with_left(NOW, left))
    at_once = node.prints(*node.flags)
    assert at_once == node.other_path(*node.flags, "--provider", "keyed-mac")
    due = min(NOW + left - 2 * DAY, NOW + timedelta(hours=1))
    assert at_once["status"]["expirationTimestamp"] == due.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_the_entry_point_prints_and_ends_well(node: Node) -> None:
    node.monkeypatch.setattr(sys, "argv", ["kubelet-authenticator", "credential", *node.flags])
    assert cli.main() == 0
    assert json.loads(node.capsys.readouterr().out)["kind"] == "ExecCredential"


@pytest.mark.parametrize("arguments", [[], ["status"], ["--help"], ["Credential"], ["request", "credential"]])
def test_another_command_is_left_to_the_other_path(node: Node, arguments: list[str]) -> None:
    node.note_the_other_path()
    assert cli.main(arguments) == OTHER_PATH
    assert node.others == [arguments]


# Where the store is


def test_the_store_is_named_by_the_flag_the_environment_the_file_or_the_default(node: Node, tmp_path: Path) -> None:
    stores: dict[str, Callable[[], list[str]]] = {
        "default": list,
        "of-the-file": lambda: ["--config", node.configure(HEADER | {"store": str(tmp_path / "of-the-file")})],
        "of-the-environment": lambda: _with(node, "STORE", str(tmp_path / "of-the-environment")),
        "of-the-flag": lambda: ["--store", str(tmp_path / "of-the-flag")],
    }
    arguments: list[str] = []
    for number, (name, say) in enumerate(stores.items()):
        arguments += say()
        store = Store(tmp_path / "defaults/pki" if name == "default" else tmp_path / name)
        store.open()
        store.save_pair(Purpose.CLIENT, pair_with_left(NOW, 9 * DAY, key=number))
        assert node.prints(*arguments)["status"]["clientKeyData"] == key_pem(number), name


def _with(node: Node, name: str, value: str) -> list[str]:
    node.monkeypatch.setenv(f"KUBELET_AUTHENTICATOR_{name}", value)
    return []


@pytest.mark.parametrize("content", [HEADER, HEADER | {"store": ""}, {}], ids=["no-store", "empty-store", "empty"])
def test_a_file_that_names_no_store_means_the_default(node: Node, tmp_path: Path, content: dict[str, str]) -> None:
    (tmp_path / "pki").rename(tmp_path / "defaults/pki")
    assert node.prints("--config", node.configure(content))
    _with(node, "CONFIG", node.configure(content))
    assert node.prints()


def test_the_environment_names_the_file(node: Node) -> None:
    _with(node, "CONFIG", node.configure(HEADER | {"store": str(node.store.folder)}))
    assert node.prints()
    _with(node, "CONFIG", str(node.folder / "missing.json"))
    node.leaves_to_the_other_path()


def test_the_defaults_stay() -> None:
    """Images and units rely on them."""
    assert DEFAULT_CONFIGURATION_FILE == "/etc/kubernetes/kubelet-authenticator.json"
    assert DEFAULT_STORE == "/var/lib/kubelet/pki"


def test_the_default_file_is_read(node: Node, tmp_path: Path, nothing_configured: Path) -> None:
    (nothing_configured / "kubelet-authenticator.json").write_text(json.dumps({"store": str(tmp_path / "pki")}))
    assert node.prints()


def test_values_may_stand_behind_an_equals_sign(node: Node) -> None:
    assert node.prints(f"--store={node.store.folder}", "--setting=a=b", "--setting", "a=b", "--timeout=3")


def test_every_flag_of_credential_is_known(node: Node) -> None:
    for flag in CREDENTIAL_FLAGS:
        if flag not in ("--store", "--config"):
            assert node.prints(*node.flags, flag, "x")


# What is left to the other path


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--unknown", "x"], id="unknown-flag"),
        pytest.param(["--stor=x"], id="abbreviated"),
        pytest.param(["--kubeconfig", "x"], id="flag-of-another-command"),
        pytest.param(["--help"], id="help"),
        pytest.param(["-h", "x"], id="short"),
        pytest.param(["x"], id="no-flag"),
        pytest.param(["--", "x"], id="dashes"),
        pytest.param(["--provider"], id="no-value"),
        pytest.param(["--provider="], id="empty-value"),
        pytest.param(["--provider", ""], id="empty-argument"),
        pytest.param(["--provider", "--node-name"], id="flag-as-value"),
        pytest.param(["--provider", "a", "--provider", "b"], id="repeated"),
        pytest.param(["--store", "/x"], id="repeated-store"),
        pytest.param(["--store=/x"], id="repeated-store-behind-an-equals-sign"),
        pytest.param([""], id="empty"),
    ],
)
def test_an_unusual_command_line(node: Node, arguments: list[str]) -> None:
    node.leaves_to_the_other_path(*node.flags, *arguments)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="cut-off"),
        pytest.param("[" * 60_000, id="deep"),
        pytest.param("[]", id="list"),
        pytest.param("\u00e4", id="text"),
        pytest.param('{"store": 7}', id="number-as-store"),
        pytest.param('{"store": null}', id="null-as-store"),
        pytest.param('{"store": "PKI", "store": "PKI"}', id="repeated-key"),
        pytest.param('{"store": "PKI", "settings": {"a": "", "a": ""}}', id="repeated-key-within"),
        pytest.param('{"store": "PKI"}' + " " * 65_536 + "x", id="large"),
        pytest.param('{"store": "PKI\\u0000"}', id="zero-byte"),
    ],
)
def test_an_unusual_file(node: Node, content: str) -> None:
    (node.folder / "pki").rename(node.folder / "defaults/pki")
    good = node.configure('{"store": "PKI"}'.replace("PKI", str(node.folder / "defaults/pki")))
    assert node.prints("--config", good)
    file = node.configure(content.replace("PKI", str(node.folder / "defaults/pki")))
    node.leaves_to_the_other_path("--config", file)


def test_the_size_of_the_file_is_bounded(node: Node) -> None:
    text = json.dumps({"store": str(node.store.folder)})
    longest = text + " " * (64 * 1024 - len(text))
    assert node.prints("--config", node.configure(longest))
    node.leaves_to_the_other_path("--config", node.configure(f"{longest} "))


def test_the_size_of_the_certificate_is_bounded(node: Node) -> None:
    path = node.store.pair_file(Purpose.CLIENT)
    certificate, begin, key = path.read_text().partition(KEY_BEGIN)
    room = MAXIMUM_CHARACTERS - len(path.read_text()) - len(CERTIFICATE_END)
    longest = certificate + (certificate * 200)[:room] + CERTIFICATE_END + begin + key
    path.write_text(longest)
    assert node.prints(*node.flags)
    path.write_text(f"{longest}x")
    node.leaves_to_the_other_path(*node.flags)


@pytest.mark.parametrize("named", ["missing.json", "."])
def test_a_named_file_that_is_not_there(node: Node, named: str) -> None:
    (node.folder / "pki").rename(node.folder / "defaults/pki")
    assert node.prints()
    node.leaves_to_the_other_path("--config", str(node.folder / named))


@pytest.mark.parametrize("info", ["", "{", exec_info("v1")], ids=["none", "not-json", "another-version"])
def test_what_client_go_did_not_ask(node: Node, info: str) -> None:
    node.monkeypatch.setenv("KUBERNETES_EXEC_INFO", info)
    node.leaves_to_the_other_path(*node.flags)


def test_run_by_hand(node: Node) -> None:
    node.monkeypatch.delenv("KUBERNETES_EXEC_INFO")
    node.leaves_to_the_other_path(*node.flags)


@pytest.mark.parametrize(
    "left", [2 * DAY, DAY, timedelta(0), -DAY], ids=["exactly-a-fifth", "less", "at-its-end", "run-out"]
)
def test_a_certificate_that_is_due(node: Node, left: timedelta) -> None:
    node.keep(pair_with_left(NOW, left))
    node.leaves_to_the_other_path(*node.flags)


def test_no_certificate(node: Node) -> None:
    node.store.pair_file(Purpose.CLIENT).unlink()
    node.leaves_to_the_other_path(*node.flags)


@pytest.mark.parametrize("data", [b"", b"text", b"\xff" * 9, b"cut", b"x" * (64 * 1024 + 1)])
def test_a_certificate_that_cannot_be_read(node: Node, data: bytes) -> None:
    path = node.store.pair_file(Purpose.CLIENT)
    path.write_bytes(path.read_bytes()[:-1] if data == b"cut" else data)
    node.leaves_to_the_other_path(*node.flags)


def test_a_bootstrap_credential_that_a_crash_left(node: Node) -> None:
    node.store.save_bootstrap(bootstrap())
    node.leaves_to_the_other_path(*node.flags)


def test_a_bootstrap_credential_that_is_a_link_to_nowhere(node: Node) -> None:
    (node.store.folder / "kubelet-authenticator-bootstrap.json").symlink_to("nowhere")
    node.leaves_to_the_other_path(*node.flags)


def test_what_is_left_says_nothing_of_the_key(node: Node) -> None:
    path = node.store.pair_file(Purpose.CLIENT)
    path.write_text(path.read_text() + "x")
    with pytest.raises(MoreToDo) as left:
        print_stored(node.flags)
    assert "PRIVATE" not in f"{left.value}{left.value.__cause__}"


# What the certificate is for


@dataclass
class Configured:
    """A node whose store knows what its certificate is for."""

    node: Node
    reports: list[list[str]] = field(default_factory=list)

    def compared(self, **changes: Any) -> bool:
        """Whether the certificate is printed without a full comparison after that."""
        settings = {"provider-id": PROVIDER_ID, "machine-key": ""}
        content = HEADER | {"provider": "keyed-mac", "nodeName": NODE, "settings": settings} | changes
        self.reports.clear()
        arguments = ["credential", "--config", self.node.configure(content), *self.node.flags]
        assert cli.main(arguments) == 0
        printed = self.node.capsys.readouterr()
        assert json.loads(printed.out)["kind"] == "ExecCredential"
        assert printed.err == ""
        assert self.reports in ([], [arguments])
        return not self.reports


@pytest.fixture
def configured(node: Node) -> Configured:
    made = Configured(node)
    node.store.save_known_cluster(KnownCluster(cluster(), "", "keyed-mac", PROVIDER_ID))
    node.monkeypatch.setattr(commands, "report_mismatches", made.reports.append)
    return made


def test_what_is_sure_to_fit_is_not_compared_in_full(configured: Configured) -> None:
    assert configured.compared()
    assert configured.compared(nodeName=f" {NODE.upper()} ")
    assert configured.compared(providerID=PROVIDER_ID, settings={"provider-id": "other"})
    assert configured.compared(settings={})


@pytest.mark.parametrize(
    "changes",
    [
        {"nodeName": "other"},
        {"nodeName": NODE[:-1]},
        {"nodeName": f"{NODE}1"},
        {"nodeName": "w\u00f6rker"},
        {"nodeName": "a" * 116},
        {"nodeName": ["a"]},
        {"provider": "tpm"},
        {"provider": ""},
        {"providerID": "other"},
        {"settings": {"provider-id": "other"}},
    ],
    ids=str,
)
def test_what_may_differ_is_compared_in_full(configured: Configured, changes: dict[str, Any]) -> None:
    assert not configured.compared(**changes)


def test_the_hosts_name_counts_where_none_is_configured(configured: Configured) -> None:
    for name, fits in ((NODE, True), (f"{NODE.upper()}\n", True), ("other", False)):
        configured.node.monkeypatch.setattr("os.uname", lambda name=name: SimpleNamespace(nodename=name))
        assert configured.compared(nodeName="") is fits


def test_flags_and_environment_count_first(configured: Configured) -> None:
    _with(configured.node, "NODE_NAME", "other")
    assert not configured.compared()
    _with(configured.node, "NODE_NAME", NODE)
    assert configured.compared(nodeName="other")
    _with(configured.node, "PROVIDER_ID", "other")
    assert not configured.compared()
    _with(configured.node, "PROVIDER_ID", "")
    _with(configured.node, "SETTINGS", "{}")
    assert configured.compared(settings={"provider-id": "other"})


@pytest.mark.parametrize(
    ("authorities", "fits"),
    [
        (authority(), True),
        (authority(3) + authority(), True),
        (authority(3), False),
        ("", False),
        ("no certificate", False),
    ],
)
def test_the_cluster_of_client_go_counts(configured: Configured, authorities: str, fits: bool) -> None:
    target = {"server": "https://other.example", "certificate-authority-data": encoded(authorities)}
    configured.node.monkeypatch.setenv("KUBERNETES_EXEC_INFO", exec_info(cluster=target))
    assert configured.compared() is fits


@pytest.mark.parametrize("content", ["", "[]", "{", "{}", '{"cluster": 7}', "[" * 60_000])
def test_what_the_store_knows_may_be_damaged(configured: Configured, content: str) -> None:
    target = {"server": "https://a.example", "certificate-authority-data": encoded(authority())}
    configured.node.monkeypatch.setenv("KUBERNETES_EXEC_INFO", exec_info(cluster=target))
    (configured.node.store.folder / "kubelet-authenticator-cluster.json").write_text(content)
    assert not configured.compared()


def test_without_that_file_the_name_counts(configured: Configured) -> None:
    (configured.node.store.folder / "kubelet-authenticator-cluster.json").unlink()
    assert configured.compared(provider="tpm")
    assert not configured.compared(nodeName="other")


def test_the_last_resort_is_not_compared(configured: Configured) -> None:
    assert print_stored(configured.node.flags, last_resort=True)


def test_a_comparison_that_fails_changes_nothing(configured: Configured) -> None:
    def fail(given: list[str]) -> None:
        raise RuntimeError("no library")

    configured.node.monkeypatch.setattr(commands, "report_mismatches", fail)
    assert cli.main(["credential", *configured.node.flags]) == 0
    assert json.loads(configured.node.capsys.readouterr().out)["kind"] == "ExecCredential"


def test_a_comparison_that_fails_after_a_renewal_prints_nothing_twice(node: Node) -> None:
    """client-go reads one ExecCredential, and takes two for none."""
    configuration = node.configure(HEADER | {"nodeName": NODE, "provider": "tpm", "store": str(node.store.folder)})

    def due(given: list[str], *, last_resort: bool = False) -> bool:
        if not last_resort:
            raise MoreToDo
        return print_stored(given, last_resort=True)

    def fail(*_: object) -> None:
        raise RuntimeError("no library")

    node.monkeypatch.setattr(cli, "print_stored", due)
    node.monkeypatch.setattr("authenticator.commands.credential.Clock", lambda: Clock(wall=lambda: UNIX_NOW))
    node.monkeypatch.setattr("authenticator.commands.credential.renew_in_child", renew_here)
    node.monkeypatch.setattr("authenticator.commands.credential.stored_mismatches", fail)
    assert cli.main(["credential", "--config", configuration]) == 0
    printed = node.capsys.readouterr()
    assert json.loads(printed.out)["kind"] == "ExecCredential"
    assert "could not be compared with the configuration: RuntimeError('no library')" in printed.err


def test_a_mismatch_is_said_behind_the_certificate(node: Node) -> None:
    node.store.save_known_cluster(KnownCluster(cluster(), "", "keyed-mac", PROVIDER_ID))
    content = {"nodeName": "other", "provider": "tpm", "providerID": "test:///other", "store": str(node.store.folder)}
    configuration = node.configure(HEADER | content)
    for path in (cli.main, commands.run):
        node.monkeypatch.setattr("authenticator.commands.credential.Clock", lambda: Clock(wall=lambda: UNIX_NOW))
        node.monkeypatch.setattr("authenticator.commands.credential.renew_in_child", renew_here)
        assert path(["credential", "--config", configuration]) == 0
        printed = node.capsys.readouterr()
        assert json.loads(printed.out)["kind"] == "ExecCredential"
        said = [line.partition(",")[0] for line in printed.err.splitlines()]
        assert said == [
            f"kubelet-authenticator: the stored certificate is of nodeName {NODE}",
            f"kubelet-authenticator: the stored certificate is of providerID {PROVIDER_ID}",
            "kubelet-authenticator: the stored certificate is of signerName "
            "cluster.x-k8s.io/kube-apiserver-client-kubelet-keyed-mac",
        ]


# Where nothing else works

NOT_IMPORTED = "no such library"


@pytest.fixture
def broken(node: Node) -> Node:
    """The other path fails before it can do anything."""

    def run(given: list[str]) -> int:
        raise ImportError(NOT_IMPORTED)

    node.monkeypatch.setattr(commands, "run", run)
    return node


@pytest.mark.parametrize("left", [timedelta(seconds=5), timedelta(seconds=15), DAY, 9 * DAY])
def test_a_valid_certificate_is_printed_for_a_few_seconds(broken: Node, left: timedelta) -> None:
    kept = pair_with_left(NOW, left)
    broken.keep(kept)
    broken.store.save_bootstrap(bootstrap())
    assert cli.main(["credential", *broken.flags]) == 0
    status = json.loads(broken.capsys.readouterr().out)["status"]
    assert (status["clientCertificateData"], status["clientKeyData"]) == (kept.certificate, kept.key)
    until = NOW + min(left, timedelta(seconds=15))
    assert status["expirationTimestamp"] == until.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_without_a_valid_certificate_the_failure_is_reported(broken: Node) -> None:
    broken.keep(pair_with_left(NOW, timedelta(0)))
    with pytest.raises(ImportError, match=NOT_IMPORTED):
        cli.main(["credential", *broken.flags])
    assert broken.capsys.readouterr().out == ""


def test_another_command_prints_no_certificate(broken: Node) -> None:
    with pytest.raises(ImportError, match=NOT_IMPORTED):
        cli.main(["status", *broken.flags])
    assert broken.capsys.readouterr().out == ""


@pytest.mark.slow
@pytest.mark.parametrize("log", ["there", "full", "closed"])
def test_a_library_that_cannot_be_imported(tmp_path: Path, log: str) -> None:
    """As where the system's libraries were upgraded below the program, or a file of it cannot be read."""
    store = Store(tmp_path / "pki")
    store.open()
    store.save_pair(Purpose.CLIENT, pair_with_left(datetime.now(UTC), DAY))
    library = tmp_path / "broken/cryptography"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("raise RuntimeError")
    command = [sys.executable, "-m", "authenticator.cli", "credential", "--store", str(store.folder)]
    redirection = {"there": "", "full": f"2>{FULL}", "closed": "2>&-"}[log]
    ran = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *command],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": f"{library.parent}:{ROOT}", "KUBERNETES_EXEC_INFO": exec_info()},
        check=False,
        timeout=60,
    )
    assert (ran.returncode, json.loads(ran.stdout)["kind"]) == (0, "ExecCredential")
    said = b"kubelet-authenticator: RuntimeError(); the stored certificate is still valid\n"
    assert ran.stderr == (said if log == "there" else b"")


def test_what_cannot_be_read_of_the_program_is_not_taken_for_its_output(node: Node) -> None:
    """Its version is in a file of its own."""

    def version(name: str) -> str:
        raise OSError(errno.EIO, "Input/output error", name)

    kept = pair_with_left(NOW, DAY)
    node.keep(kept)
    node.monkeypatch.setattr(commands, "version", version)
    with pytest.raises(OSError, match="Input/output error"):
        commands.run(["credential", *node.flags])
    assert cli.main(["credential", *node.flags]) == 0
    assert json.loads(node.capsys.readouterr().out)["status"]["clientCertificateData"] == kept.certificate


def test_a_pair_that_cannot_be_read_again_is_not_printed_for_longer_than_it_lives(node: Node) -> None:
    """What was just renewed has no work for an hour; what was read before it runs out."""
    node.keep(pair_with_left(NOW, timedelta(seconds=40)))

    def renewed(renew: Callable[[], int], *, seconds: float) -> Finished:
        node.store.pair_file(Purpose.CLIENT).unlink()
        return Finished(UNIX_NOW + 3600)

    node.monkeypatch.setattr("authenticator.commands.credential.Clock", lambda: Clock(wall=lambda: UNIX_NOW))
    node.monkeypatch.setattr("authenticator.commands.credential.renew_in_child", renewed)
    assert commands.run(["credential", *node.flags]) == 0
    printed = json.loads(node.capsys.readouterr().out)
    assert printed["status"]["expirationTimestamp"] == "2026-01-02T03:04:20Z"


# Where it goes


def stored(folder: Path) -> list[str]:
    """The command, where there is a certificate to print."""
    store = Store(folder / "pki")
    store.open()
    store.save_pair(Purpose.CLIENT, pair_with_left(datetime.now(UTC), 9 * DAY))
    return ["credential", "--store", str(store.folder)]


TWICE = 2
"""How often the flag is given; the printing path leaves what is given twice to the other one."""


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("times", [1, TWICE])
def test_a_credential_that_cannot_be_written(tmp_path: Path, times: int, unbuffered: str) -> None:
    command, *flags = stored(tmp_path)
    arguments = [command, *flags * times]
    informed = {"KUBERNETES_EXEC_INFO": exec_info()}
    code, log = run_on_full_disk("authenticator.cli", arguments, unbuffered=unbuffered, environment=informed)
    *others, last = log.decode().splitlines()
    assert (code, len(others)) == (ExitCode.OUTPUT, times - 1), log
    assert last.startswith("kubelet-authenticator: standard output cannot be written: No space left on device: ")
    code, _ = run_on_full_disk("authenticator.cli", arguments, unbuffered="", log_too=True, environment=informed)
    assert code == ExitCode.OUTPUT


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [("--help",), ("agent", "--help"), ("--version",)], ids=" ".join)
def test_help_that_cannot_be_written(arguments: tuple[str, ...], unbuffered: str) -> None:
    """Also without a buffer: argparse hides it then."""
    code, log = run_on_full_disk("authenticator.cli", arguments, unbuffered=unbuffered)
    assert code == ExitCode.OUTPUT
    assert log.startswith(b"kubelet-authenticator: standard output cannot be written: No space left on device: ")


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("times", [1, TWICE])
def test_a_credential_whose_reader_is_gone(
    tmp_path: Path, times: int, unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_EXEC_INFO", exec_info())
    command, *flags = stored(tmp_path)
    code, log = run_without_reader("authenticator.cli", [command, *flags * times], unbuffered=unbuffered)
    assert (code, len(log.splitlines())) == (141, times - 1), log


@pytest.mark.slow
def test_a_full_log_keeps_no_credential_back(tmp_path: Path) -> None:
    """The other path has a word to say on why it did not renew."""
    command, *flags = stored(tmp_path)
    with FULL.open("wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "authenticator.cli", command, *flags * TWICE],
            stdout=subprocess.PIPE,
            stderr=full,
            env={**os.environ, "KUBERNETES_EXEC_INFO": exec_info(), "PYTHONUNBUFFERED": ""},
            check=False,
            timeout=60,
        )
    assert (ran.returncode, json.loads(ran.stdout)["kind"]) == (0, "ExecCredential")


# What it takes

RUNNER = """
import sys
from authenticator.cli import main
code = main(sys.argv[1:])
print(*sorted(sys.modules), sep="\\n", file=sys.stderr)
sys.exit(code)
"""
FORBIDDEN = {
    *("argparse", "asyncio", "attestors", "cryptography", "dataclasses", "email", "http", "importlib.metadata"),
    *("inspect", "logging", "pathlib", "shutil", "socket", "ssl", "subprocess", "tempfile", "typing"),
    *("urllib", "yaml", "authenticator.commands", "authenticator.flow", "authenticator.store", "datetime", "calendar"),
}


def test_it_imports_little_and_only_of_the_standard_library(tmp_path: Path) -> None:
    """Without ``site`` there is nothing but the standard library and this project's own modules."""
    store = Store(tmp_path)
    tmp_path.chmod(0o700)
    store.save_pair(Purpose.CLIENT, pair_with_left(datetime.now(UTC), 9 * DAY))
    done = subprocess.run(
        [sys.executable, "-S", "-c", RUNNER, "credential", "--store", str(tmp_path), "--node-name", NODE],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT), "KUBERNETES_EXEC_INFO": exec_info(), "PATH": os.environ.get("PATH", "")},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"]["clientKeyData"] == key_pem()
    modules = set(done.stderr.split())
    assert not modules & FORBIDDEN
    roots = {name.partition(".")[0] for name in modules} - {"__main__"}
    assert roots - sys.stdlib_module_names == {"authenticator"}
    ours = {name for name in modules if name.startswith("authenticator.")}
    assert ours == {
        "authenticator.cli",
        "authenticator.stored_credential",
        "authenticator.model",
        "authenticator.model.exec_credential",
        "authenticator.model.pair",
    }
