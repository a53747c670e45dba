from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from pathlib import Path

import pytest

from authenticator import commands
from authenticator.commands import arguments
from authenticator.commands.arguments import configuration_of, credential_arguments, given
from authenticator.configuration import Given
from authenticator.model.failures import ExitCode, InvalidConfiguration
from authenticator.stored_credential import CREDENTIAL_FLAGS, print_stored

COMMANDS = ("credential", "prepare", "agent", "request", "status")
WITH_KUBECONFIG = ("prepare", "agent", "request")
WITH_SERVING = ("agent", "request")
COMMON = [
    *("--config", "/c", "--store", "/s", "--provider", "tpm", "--setting", "a=1", "--setting=b=2"),
    *("--node-name", "n", "--provider-id", "x://y", "--provider-id-oid", "1.2.3"),
    *("--bootstrap-kubeconfig", "/b", "--timeout", "9"),
]

pytestmark = pytest.mark.usefixtures("nothing_configured")


def parsed(*command_line: str) -> argparse.Namespace:
    return commands.parser().parse_args([*command_line])


def refused(capsys: pytest.CaptureFixture[str], *command_line: str) -> str:
    with pytest.raises(SystemExit) as ended:
        parsed(*command_line)
    assert ended.value.code == ExitCode.CONFIGURATION
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_the_common_options(command: str) -> None:
    assert given(parsed(command, *COMMON)) == Given(
        config="/c",
        provider="tpm",
        setting=("a=1", "b=2"),
        node_name="n",
        provider_id="x://y",
        provider_id_oid="1.2.3",
        bootstrap_kubeconfig="/b",
        store="/s",
        timeout="9",
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_without_options_nothing_is_given(command: str) -> None:
    assert given(parsed(command)) == Given()


@pytest.mark.parametrize("command", WITH_KUBECONFIG)
def test_the_kubelets_kubeconfig(command: str) -> None:
    assert given(parsed(command, "--kubeconfig", "/k")).kubeconfig == "/k"


@pytest.mark.parametrize("command", WITH_SERVING)
def test_serving_certificates(command: str) -> None:
    names = ["--serving-dns-name", "a", "--serving-dns-name", "b", "--serving-ip-address", "192.0.2.7"]
    found = given(parsed(command, "--serving", *names))
    assert (found.serving, found.serving_dns_name, found.serving_ip_address) == (True, ("a", "b"), ("192.0.2.7",))


@pytest.mark.parametrize(
    "command_line",
    [
        pytest.param([], id="no-command"),
        pytest.param(["certificate"], id="unknown-command"),
        pytest.param(["credential", "--unknown"], id="unknown-flag"),
        pytest.param(["credential", "extra"], id="extra-argument"),
        pytest.param(["credential", "--store"], id="no-value"),
        pytest.param(["credential", "--store", "--provider", "tpm"], id="flag-as-value"),
        pytest.param(["credential", "--kubeconfig", "/k"], id="not-for-credential"),
        pytest.param(["prepare", "--serving"], id="not-for-prepare"),
        pytest.param(["status", "--output", "yaml"], id="unknown-output"),
        pytest.param(["prepare", "--exec-api-version", "v1"], id="unknown-api-version"),
    ],
)
def test_a_wrong_command_line_is_wrong_configuration(
    capsys: pytest.CaptureFixture[str], command_line: list[str]
) -> None:
    error, hint = refused(capsys, *command_line).splitlines()
    assert error.startswith("kubelet-authenticator")
    assert hint.endswith("--help` for what it takes.")


def test_failures_are_one_line_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(["status"]) == ExitCode.CONFIGURATION
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"kubelet-authenticator: no attestor is configured: [^\n]+\n", printed.err)


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_options: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("authenticator.commands.status.run", interrupted)
    assert commands.run(["status"]) == 130


def test_the_configuration_of_a_command_line(tmp_path: Path) -> None:
    found = configuration_of(parsed("status", "--provider", "tpm", "--store", str(tmp_path)))
    assert (found.provider, found.store) == ("tpm", tmp_path)
    with pytest.raises(InvalidConfiguration):
        configuration_of(parsed("status"))


def test_the_help_says_what_the_exit_codes_mean(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("--help")
    text = capsys.readouterr().out
    told = {int(number) for number in re.findall(r"(?:^|  )(?: )?(\d+) [a-zA-Z]", text.partition("exit codes:")[2])}
    assert told == {*ExitCode}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit):
        parsed(command, "--help")
    text = capsys.readouterr().out
    for flag in CREDENTIAL_FLAGS:
        assert flag in text


# What the kubelet is to run


def test_the_command_line_of_the_plugin_is_the_one_that_was_given() -> None:
    assert credential_arguments(parsed("prepare", *COMMON, "--kubeconfig", "/k")) == [
        "credential",
        *("--config", "/c", "--store", "/s", "--provider", "tpm", "--setting", "a=1", "--setting", "b=2"),
        *("--node-name", "n", "--provider-id", "x://y", "--provider-id-oid", "1.2.3"),
        *("--bootstrap-kubeconfig", "/b", "--timeout", "9"),
    ]


def test_paths_are_made_absolute_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    options = parsed("agent", "--config=c", "--store=s", "--bootstrap-kubeconfig=../b", "--provider=p")
    assert credential_arguments(options) == [
        "credential",
        *("--config", f"{tmp_path}/c", "--store", f"{tmp_path}/s"),
        *("--provider", "p", "--bootstrap-kubeconfig", f"{tmp_path.parent}/b"),
    ]


def test_a_file_that_the_environment_names_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet has another environment."""
    monkeypatch.setenv("KUBELET_AUTHENTICATOR_CONFIG", "/environment/c")
    assert credential_arguments(parsed("prepare")) == ["credential", "--config", "/environment/c"]
    assert credential_arguments(parsed("prepare", "--config", "/c")) == ["credential", "--config", "/c"]


def test_without_anything_the_plugin_needs_no_more() -> None:
    assert credential_arguments(parsed("prepare")) == ["credential"]


def test_the_printing_path_knows_the_command_line_that_is_written() -> None:
    """Else every call of a kubelet would go the long way."""
    line = credential_arguments(parsed("prepare", *COMMON))
    known = [argument for argument in line if argument.startswith("--")]
    assert set(known) == set(CREDENTIAL_FLAGS)
    assert callable(print_stored)


def test_a_report_is_for_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    arguments.report("something")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "kubelet-authenticator: something\n")


@pytest.mark.parametrize("stderr", ["broken", "full"])
def test_a_report_that_cannot_be_written_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stderr: str
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open("/dev/full", "w") as full, open(writing, "w") as broken:
        monkeypatch.setattr(sys, "stderr", {"broken": broken, "full": full}[stderr])
        arguments.report("an exception")
        for file in (broken, full):
            with contextlib.suppress(OSError):
                file.close()
    assert capsys.readouterr().out == ""


# What is wrong


@pytest.mark.parametrize(
    ("command_line", "message"),
    [
        (["--settings=machine-key=SECRET"], "unknown arguments: --settings\n"),
        (["SECRET"], "unknown arguments: a word without a flag\n"),
        (["--se=machine-key=SECRET"], "--se is cut too short: it may be --setting, --serving, "),
        (["--se=x could match SECRET"], "--se is cut too short: it may be --setting, --serving, "),
        (["--serving=SECRET"], "argument --serving: it takes no value"),
    ],
    ids=["unknown", "a word", "cut short", "cut short, in argparse's words", "of a flag that takes none"],
)
def test_a_wrong_flag_is_reported_without_its_value(
    capsys: pytest.CaptureFixture[str], command_line: list[str], message: str
) -> None:
    """It may be a secret, and the log is for more to read."""
    log = refused(capsys, "request", *command_line)
    assert message in log
    assert "SECRET" not in log
