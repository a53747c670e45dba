"""The configuration file, the secret of host keys, and the command line of the bastion controller."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from signer.bastions.configuration import read_bastion_configuration
from signer.bastions.entry import main
from signer.bastions.host_keys import HostKeySecret, read_host_key_secret
from signer.bastions.targets import PRIVATE_NETWORKS
from signer.configuration import InvalidConfiguration
from signer.controller.diagnostics.program import EXIT_USAGE

UID = "5d1c2b6a-3a0e-4f4a-a9b1-5a1b8c0d9e03"


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "bastions.yaml"
    path.write_text(text)
    return path


def test_the_file(tmp_path: Path) -> None:
    read = read_bastion_configuration(
        file(
            tmp_path,
            "owner: blue\nsweep: 10m\nproviders:\n  aws:\n    namespaces: [team-a, team-b]\n"
            "    settings: {region: eu-central-1, imageID: a}\n    settingsByNamespace:\n      team-b: {imageID: b}\n",
        )
    )
    assert (read.scope.owner, read.sweep_every) == ("blue", timedelta(minutes=10))
    aws = read.providers["aws"]
    assert aws.settings_in("team-a") == {"region": "eu-central-1", "imageID": "a"}
    assert aws.settings_in("team-b") == {"region": "eu-central-1", "imageID": "b"}
    assert len(aws.every_settings()) == 2
    assert not aws.allows("team-c")
    assert "eu-central-1" not in repr(read)


def test_targets_are_private_unless_the_operator_says_others(tmp_path: Path) -> None:
    targets = read_bastion_configuration(file(tmp_path, "owner: blue\n")).targets
    assert targets.networks_in("team-a") == PRIVATE_NETWORKS
    assert targets.ports_in("team-a") == frozenset({22})


def test_targets_by_namespace_replace_those_of_all(tmp_path: Path) -> None:
    text = (
        "owner: blue\ntargetNetworks: []\ntargetNetworksByNamespace: {team-a: [10.7.0.0/16, 'fd00:7::/32']}\n"
        "targetPorts: [22, 2222]\ntargetPortsByNamespace: {team-b: [2200]}\n"
    )
    targets = read_bastion_configuration(file(tmp_path, text)).targets
    assert targets.networks_in("team-b") == ()
    assert list(map(str, targets.networks_in("team-a"))) == ["10.7.0.0/16", "fd00:7::/32"]
    assert targets.ports_in("team-a") == frozenset({22, 2222})
    assert targets.ports_in("team-b") == frozenset({2200})


def test_a_former_namespace_keeps_its_settings_and_is_not_allowed(tmp_path: Path) -> None:
    text = (
        "owner: blue\nproviders: {aws: {namespaces: ['*'], formerNamespaces: [team-b], "
        "settingsByNamespace: {team-b: {region: b}}}}\n"
    )
    aws = read_bastion_configuration(file(tmp_path, text)).providers["aws"]
    assert (aws.allows("team-a"), aws.allows("team-b")) == (True, False)
    assert aws.settings_in("team-b") == {"region": "b"}


def test_forgotten_bastions(tmp_path: Path) -> None:
    read = read_bastion_configuration(file(tmp_path, f"owner: blue\nforget: [{UID}]\n"))
    assert read.forgotten == frozenset({UID})


def test_nothing_is_allowed_that_is_not_named(tmp_path: Path) -> None:
    read = read_bastion_configuration(file(tmp_path, "owner: blue\nproviders: {none: {}}\n"))
    assert not read.providers["none"].allows("team-a")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "providers: {}",
        "owner: Blue",
        "owner: 7",
        "owner: blue\nunheardOf: 1",
        "owner: blue\nproviders: []",
        "owner: blue\nproviders: {Aws: {}}",
        "owner: blue\nproviders: {aws: {namespaces: team-a}}",
        "owner: blue\nproviders: {aws: {namespaces: [Team]}}",
        "owner: blue\nproviders: {aws: {settings: [hunter2]}}",
        "owner: blue\nproviders: {aws: {password: hunter2}}",
        "owner: blue\nproviders: {aws: {namespaces: [a], settingsByNamespace: {b: {}}}}",
        "owner: blue\nsweep: 5",
        "owner: blue\nsweep: 24h",
        "owner: blue\nowner: green",
        "owner: blue\ntargetNetworks:",
        "owner: blue\ntargetNetworks: 10.0.0.0/8",
        "owner: blue\ntargetNetworks: [10.0.0.1/8]",
        "owner: blue\ntargetNetworks: [10.0.0.0]",
        "owner: blue\ntargetNetworks: ['FD00::/8']",
        "owner: blue\ntargetNetworks: ['fd00:0::/32']",
        "owner: blue\ntargetNetworks: ['::ffff:10.0.0.0/104']",
        "owner: blue\ntargetNetworks: [10]",
        "owner: blue\ntargetNetworksByNamespace: {Team: []}",
        "owner: blue\ntargetNetworksByNamespace: {'*': []}",
        "owner: blue\ntargetNetworksByNamespace: {team-a: null}",
        "owner: blue\ntargetPorts: []",
        "owner: blue\ntargetPorts: [0]",
        "owner: blue\ntargetPorts: [65536]",
        "owner: blue\ntargetPorts: ['22']",
        "owner: blue\ntargetPorts: [true]",
        "owner: blue\ntargetPortsByNamespace: {team-a: 22}",
        "owner: blue\nforget: all",
        "owner: blue\nforget: [repair]",
        "owner: blue\nproviders: {aws: {namespaces: [a], formerNamespaces: [a]}}",
        "owner: blue\nproviders: {aws: {namespaces: [a], formerNamespaces: ['*']}}",
    ],
)
def test_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        read_bastion_configuration(file(tmp_path, text))
    assert "hunter2" not in str(refused.value)


def test_host_keys_depend_on_the_secret_and_the_uid() -> None:
    one, other = HostKeySecret(b"1" * 32), HostKeySecret(b"2" * 32)
    assert one.key_of(UID) == HostKeySecret(b"1" * 32).key_of(UID)
    assert one.key_of(UID) != other.key_of(UID)
    assert one.key_of(UID) != one.key_of(UID.replace("5", "6"))
    assert "1111" not in repr(one)


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 4097])
def test_a_secret_of_another_size(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    with pytest.raises(InvalidConfiguration):
        read_host_key_secret(path)
    with pytest.raises(InvalidConfiguration):
        read_host_key_secret(tmp_path / "none")


def test_wrong_usage_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file(tmp_path, "owner: Blue")
    assert main(["run", f"--config={path}", f"--host-key-secret={path}"]) == EXIT_USAGE
    assert "owner" in capsys.readouterr().err
