"""The image's units: systemd reads every line, programs and flags exist, and drop-ins have the right effect."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from authenticator.configuration import DEFAULT_SSH_FOLDER, DEFAULT_TIMEOUT_SECONDS, Given, configure
from authenticator.model.failures import ExitCode
from authenticator.stored_credential import DEFAULT_STORE
from tests.deploy.commands import parse_command_line
from tests.deploy.embedded import FILES, image_files
from tests.deploy.machine import KUBEADM_DROP_IN, KUBELET, KUBELET_UNIT, PROGRAM, new_machine
from tests.deploy.units import InvalidUnit, Service, parse_unit, read_service
from tests.support.binaries import MissingPart, skip_or_fail

AGENT = "kubelet-authenticator.service"
STORE = "/var/lib/kubelet/pki"
UNITS = {path: text for path, text in image_files().items() if path.endswith((".service", ".conf"))}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An image with this project's files and kubeadm's."""
    machine = new_machine(tmp_path / "root", b"")
    for path, text in image_files().items():
        machine.path(path).write_text(text, encoding="utf-8")
    return machine.root


def agent() -> Service:
    return read_service(FILES, AGENT)


def test_these_are_the_files() -> None:
    assert sorted(image_files()) == [
        "/etc/kubernetes/kubelet-authenticator.json",
        "/etc/systemd/system/kubelet-authenticator.service",
        "/etc/systemd/system/kubelet.service.d/20-kubelet-authenticator.conf",
        "/etc/systemd/system/kubelet.service.d/30-serving-certificate.conf",
    ]


@pytest.mark.parametrize("path", UNITS)
def test_every_line_is_read(path: str) -> None:
    assert parse_unit(UNITS[path])


@pytest.mark.parametrize(
    "text",
    [
        "[Service]\nExecStartPost = /bin/true\n",
        "[Service]\nExecStartPst=/bin/true\n",
        "[Service]\nWants=network-online.target\n",
        "[Unit]\nExecStart=/bin/true\n",
        "[Service]\nType=notify\nType=simple\n",
        "[Service]\nExecStart=/bin/true \\\n",
        "[Servise]\nType=notify\n",
        "Type=notify\n",
        "[Unit]\nAfter\n",
    ],
)
def test_a_wrong_line_is_noticed(text: str) -> None:
    with pytest.raises(InvalidUnit):
        parse_unit(text)


@pytest.mark.parametrize("path", image_files())
def test_cloud_init_renders_nothing_of_it(path: str) -> None:
    """User data is a jinja template, and patches of a ClusterClass are Go templates."""
    text = image_files()[path]
    assert not any(opening in text for opening in ("{{", "{%", "{#"))
    assert text.endswith("\n")
    assert text.isascii()


@pytest.mark.parametrize("path", UNITS)
def test_commands_exist(path: str) -> None:
    for entry in parse_unit(UNITS[path]):
        if entry.key.startswith("Exec"):
            program, *words = entry.value.split()
            assert program == f"/usr/local/bin/{PROGRAM}"
            parse_command_line(words)


def test_a_command_that_does_not_exist_is_noticed() -> None:
    for words in (["prepare", "--store-folder", "x"], ["join"], ["prepare", "--serving"]):
        with pytest.raises(SystemExit):
            parse_command_line(words)


def test_the_kubelet_bootstraps_nothing_by_itself(root: Path) -> None:
    kubelet = read_service(root, "kubelet.service")
    [command] = kubelet.command_lines("ExecStart", root)
    assert command == [KUBELET, "--kubeconfig=/etc/kubernetes/kubelet.conf", "--config=/var/lib/kubelet/config.yaml"]
    assert kubelet.values("ExecStartPre") == [f"/usr/local/bin/{PROGRAM} prepare"]


def test_kubeadm_alone_would_have_it_bootstrap(root: Path) -> None:
    """The assumption of the test above."""
    for path in (root / "etc/systemd/system/kubelet.service.d").glob("[23]0-*.conf"):
        path.unlink()
    [command] = read_service(root, "kubelet.service").command_lines("ExecStart", root)
    assert "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf" in command


def test_the_order_is_that_of_the_names(root: Path) -> None:
    """A drop-in that sorts before kubeadm's has no effect."""
    folder = root / "etc/systemd/system/kubelet.service.d"
    (folder / "20-kubelet-authenticator.conf").rename(folder / "05-kubelet-authenticator.conf")
    [command] = read_service(root, "kubelet.service").command_lines("ExecStart", root)
    assert any(word.startswith("--bootstrap-kubeconfig") for word in command)


def test_the_agent_has_nothing_to_do_before_the_first_join(tmp_path: Path) -> None:
    assert not agent().conditions_met(tmp_path)


def test_nor_on_a_machine_that_kubeadm_init_set_up(tmp_path: Path) -> None:
    (tmp_path / "etc/kubernetes").mkdir(parents=True)
    (tmp_path / "etc/kubernetes/kubelet.conf").touch()
    assert not agent().conditions_met(tmp_path)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/kubernetes/bootstrap-kubelet.conf",
        f"{STORE}/kubelet-authenticator-bootstrap.json",
        f"{STORE}/kubelet-authenticator-cluster.json",
    ],
    ids=["join", "not-yet-attested", "attested"],
)
def test_the_agent_runs_while_and_after_joining(path: str, tmp_path: Path) -> None:
    (tmp_path / path.lstrip("/")).parent.mkdir(parents=True)
    (tmp_path / path.lstrip("/")).touch()
    assert agent().conditions_met(tmp_path)


def test_the_agent_can_write_its_store_and_the_kubeconfig() -> None:
    assert agent().values("ProtectSystem") == ["strict"]
    assert agent().values("StateDirectory") == ["kubelet/pki"]
    assert agent().values("ReadWritePaths") == [f"/etc/kubernetes -{DEFAULT_SSH_FOLDER}"]
    assert STORE == DEFAULT_STORE


def test_the_agent_is_not_enabled() -> None:
    """A target that waited for the agent at boot would wait for kubeadm, which waits for the end of the boot."""
    assert "[Install]" not in UNITS[f"/etc/systemd/system/{AGENT}"]
    drop_in = parse_unit(UNITS["/etc/systemd/system/kubelet.service.d/20-kubelet-authenticator.conf"])
    assert [entry.value for entry in drop_in if entry.key == "Wants"] == [AGENT]
    assert not [entry for entry in drop_in if entry.key == "After"]


def test_the_kubelet_waits_for_the_agent_where_that_is_asked_for(root: Path) -> None:
    assert AGENT in read_service(root, "kubelet.service").names("After")
    (root / "etc/systemd/system/kubelet.service.d/30-serving-certificate.conf").unlink()
    assert AGENT not in read_service(root, "kubelet.service").names("After")


def test_the_agent_has_time_for_two_certificates() -> None:
    assert int(agent().values("TimeoutStartSec")[0]) > 2 * DEFAULT_TIMEOUT_SECONDS


def test_a_wrong_configuration_does_not_become_right_by_waiting() -> None:
    assert agent().values("RestartPreventExitStatus") == [str(int(ExitCode.CONFIGURATION))]
    assert agent().values("StartLimitIntervalSec") == ["0"]


def test_an_agent_that_the_kernel_ended_is_started_again() -> None:
    """systemd counts SIGALRM, which ends an agent whose attestor hangs, as a failure, like a crash."""
    assert agent().values("Restart") == ["on-failure"]
    assert agent().values("SuccessExitStatus") == agent().values("RestartForceExitStatus") == []


def test_the_configuration_is_one() -> None:
    file = FILES / "etc/kubernetes/kubelet-authenticator.json"
    configuration = configure(Given(config=str(file)), {})
    assert configuration.provider == "keyed-mac"
    assert set(configuration.settings) == {"machine-key", "provider-id"}
    assert configuration.serving is None


def test_systemd_accepts_the_units(root: Path) -> None:
    """systemd-analyze reports every line that systemd would ignore, and every missing program."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        skip_or_fail(MissingPart("systemd-analyze is not installed: apt-get install systemd"))
    for program in (KUBELET, f"/usr/local/bin/{PROGRAM}"):
        path = root / program.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o755)
    for target in ("basic", "multi-user", "network-online", "shutdown", "sysinit"):
        (root / f"etc/systemd/system/{target}.target").write_text(f"[Unit]\nDescription={target}\n", encoding="utf-8")
    (root / "etc/systemd/system/-.mount").write_text("[Mount]\nWhat=/dev/root\nWhere=/\n", encoding="utf-8")
    command = [analyze, "verify", f"--root={root}", "--man=no", "kubelet.service", AGENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_stand_in_for_kubeadms_units_is_no_unit_of_ours() -> None:
    assert parse_unit(KUBELET_UNIT.format(kubelet=KUBELET))
    assert parse_unit(KUBEADM_DROP_IN.format(kubelet=KUBELET))
