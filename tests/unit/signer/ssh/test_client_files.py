"""What is written for a stock ``ssh``, judged by ``ssh -G`` and ``ssh-keygen``."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import HostKey, host_key
from attestors.wire.ssh.principals import HostName
from signer.model.addresses import ADDRESS_TYPES
from signer.model.cluster import MACHINE_POOL_KIND, ClusterKey, MachineAddress, MachineView
from signer.model.record import MachineKey
from signer.ssh.client_files import (
    ClientFilesRefused,
    ClientSettings,
    ClusterHosts,
    ReachableNode,
    cluster_hosts,
    host_authorities,
    known_hosts,
    ssh_config,
)
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.openssh import find_openssh, public_keys, ssh_keygen
from tests.unit.signer.builders import machine_view, record

CLUSTER: Final = ClusterKey("team-a", "production")
AUTHORITY: Final = host_key(public_keys()["ed25519"])
FILE: Final = "/home/me/known hosts"


def machine(name: str = "worker-1", *addresses: tuple[str, str], **changes: Any) -> MachineView:
    found = tuple(MachineAddress(kind, address) for kind, address in addresses)
    changed = {"cluster": CLUSTER, "name": name, "addresses": found, "provider_id": f"test:///{name}", **changes}
    return machine_view(**changed)


def hosts(*machines: MachineView, names: dict[str, str] | None = None, types: Any = ADDRESS_TYPES) -> ClusterHosts:
    """Each Machine has a record whose node name is the Machine's, or that of ``names``."""
    records = [record(one, node_name=(names or {}).get(one.name, one.name)) for one in machines]
    return cluster_hosts(CLUSTER, (AUTHORITY,), records, machines, types)


def read_by_ssh(text: str, host: str, folder: Path) -> dict[str, str]:
    """What ``ssh`` makes of the file for that host."""
    try:
        ssh = find_openssh("ssh")
    except MissingPart as missing:
        skip_or_fail(missing)
    file = folder / "config"
    file.write_text(text, encoding="ascii")
    done = subprocess.run([ssh, "-G", "-F", file, host], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return {name: value for name, _, value in (line.partition(" ") for line in done.stdout.splitlines())}


def test_ssh_reads_the_file_as_it_is_meant(tmp_path: Path) -> None:
    found = hosts(machine("worker-1", ("ExternalIP", "198.51.100.9"), ("InternalIP", "10.0.0.7")))
    settings = ClientSettings(port=2222, jump_host="me@bastion.example:22", identity_file="/home/me/id")
    text = ssh_config(found, settings, FILE)
    for alias in ("worker-1.production", "worker-1.production.team-a"):
        read = read_by_ssh(text, alias, tmp_path)
        assert (read["hostname"], read["port"], read["user"]) == ("10.0.0.7", "2222", "root")
        assert read["hostkeyalias"] == "worker-1.production.team-a"
        assert read["userknownhostsfile"] == FILE
        assert read["globalknownhostsfile"] == "none"
        assert (read["stricthostkeychecking"], read["updatehostkeys"]) == ("true", "false")
        assert (read["identitiesonly"], read["identityfile"]) == ("yes", "/home/me/id")
        assert (read["forwardagent"], read["forwardx11"]) == ("no", "no")
        assert read["proxyjump"] == "me@bastion.example:22"
        assert read["casignaturealgorithms"] == "ssh-ed25519,ecdsa-sha2-nistp384"
    other = read_by_ssh(text, "worker-1", tmp_path)
    assert (other["hostname"], other["port"]) == ("worker-1", "22")


def test_without_choices_ssh_keeps_its_own(tmp_path: Path) -> None:
    read = read_by_ssh(ssh_config(hosts(machine("a")), ClientSettings(), FILE), "a.production", tmp_path)
    assert "proxyjump" not in read
    assert (read["hostname"], read["port"]) == ("a", "22")


@pytest.mark.parametrize(
    ("addresses", "types", "expected"),
    [
        ((("ExternalIP", "198.51.100.9"), ("InternalDNS", "w.corp.example")), ADDRESS_TYPES, "w.corp.example"),
        ((("ExternalIP", "198.51.100.9"), ("InternalIP", "10.0.0.7")), ("ExternalIP",), "198.51.100.9"),
        ((("InternalIP", "2001:DB8::7"),), ADDRESS_TYPES, "2001:db8::7"),
        ((("InternalIP", "fe80::7%eth0"),), ADDRESS_TYPES, "fe80::7"),
        ((("InternalIP", "10.0.0.7\nProxyCommand touch x"),), ADDRESS_TYPES, "worker-1"),
        ((("Hostname", 'w" -oProxyCommand=x'),), ADDRESS_TYPES, "worker-1"),
        ((("InternalIP", "10.0.0.7"),), ("ExternalIP",), "worker-1"),
    ],
)
def test_the_address(addresses: tuple[tuple[str, str], ...], types: tuple[str, ...], expected: str) -> None:
    [node] = hosts(machine("worker-1", *addresses), types=types).nodes
    assert str(node.address) == expected


def shape(text: str) -> list[tuple[str, int]]:
    """The first word of each line, and how many there are."""
    return [((line.split() or [""])[0], len(line.split())) for line in text.split("\n")]


HOSTILE: Final = st.text(alphabet=st.sampled_from("a1.-_*?!%$~\"'\\\n\r\t ,#@:=/é\x00"), max_size=40)


@given(HOSTILE, HOSTILE)
def test_no_name_and_no_address_adds_a_line(name: str, address: str) -> None:
    found = hosts(machine("m", ("InternalIP", address), ("Hostname", address)), names={"m": name or "x"})
    text = ssh_config(found, ClientSettings(), FILE)
    expected = ssh_config(
        replace(found, nodes=tuple(ReachableNode(HostName("n"), HostName("n")) for _ in found.nodes)),
        ClientSettings(),
        FILE,
    )
    assert shape(text) == shape(expected)
    assert all(32 <= ord(character) < 127 or character == "\n" for character in text)
    assert not set("%$*?!'\\") & set(text)


@pytest.mark.parametrize(
    "name", ["UPPER", "a b", "a\nHost *", "*", "a,b", "-oProxyCommand=x", "10.0.0.1", "a" * 253, "a%h"]
)
def test_a_name_that_no_certificate_has_is_left_out(name: str) -> None:
    found = hosts(machine("m"), machine("worker-2"), names={"m": name})
    assert [str(node.name) for node in found.nodes] == ["worker-2"]
    assert [one.name for one in found.left_out] == [name]


@pytest.mark.parametrize(
    "settings",
    [
        {"port": 0},
        {"port": 65536},
        {"login": "-oProxyCommand=x"},
        {"login": "a b"},
        {"login": ""},
        {"jump_host": "bastion\n    ProxyCommand touch x"},
        {"jump_host": "-oProxyCommand=x"},
        {"jump_host": "a b"},
        {"jump_host": "a,,b"},
        {"jump_host": "$(x)"},
        {"jump_host": ",".join("a" * 9)},
        {"identity_file": 'a"b'},
        {"identity_file": "a%h"},
        {"identity_file": "${HOME}/a"},
        {"identity_file": "a\nProxyCommand x"},
        {"identity_file": "-a"},
    ],
)
def test_arguments_that_could_be_more_than_one_word_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ClientFilesRefused):
        ClientSettings(**settings)


def test_a_folder_that_ssh_would_expand_is_refused() -> None:
    with pytest.raises(ClientFilesRefused, match="cannot stand in ssh_config"):
        ssh_config(hosts(machine("a")), ClientSettings(), "/home/%u/known_hosts")


def test_the_authority_counts_for_this_cluster_alone(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(known_hosts(hosts()), encoding="ascii")

    def found(name: str) -> bool:
        return "CA" in ssh_keygen("-F", name, "-f", file).stdout

    assert file.read_text() == f"@cert-authority *.production.team-a {key_line(AUTHORITY)}\n"
    assert found("worker-1.production.team-a")
    for other in ("worker-1.staging.team-a", "worker-1.production.team-b", "worker-1.production", "github.com"):
        assert not found(other)


def test_without_an_authority_there_is_no_file() -> None:
    with pytest.raises(ClientFilesRefused, match="no host authority"):
        known_hosts(ClusterHosts(CLUSTER, ()))


@pytest.mark.parametrize("name", ["a_b", "-a", "x" * 250])
def test_a_cluster_whose_name_no_certificate_has(name: str) -> None:
    with pytest.raises(ClientFilesRefused):
        known_hosts(ClusterHosts(ClusterKey("team-a", name), (AUTHORITY,)))


def test_who_is_in_the_file() -> None:
    attested, waits, pool = machine("attested"), machine("waits"), ("MachinePool", "pool")
    gone = machine("gone")
    instance = replace(machine("pool"), kind=MACHINE_POOL_KIND, provider_id="test:///instance")
    elsewhere = machine("elsewhere", cluster=ClusterKey("team-a", "staging"))
    records = [record(one, node_name=one.name) for one in (attested, gone, elsewhere)]
    records.append(
        replace(record(instance, node_name="of-pool"), machine=MachineKey(CLUSTER, *pool, "test:///instance"))
    )
    found = cluster_hosts(CLUSTER, (AUTHORITY,), records, (attested, waits, elsewhere))
    assert [str(node.name) for node in found.nodes] == ["attested", "of-pool"]
    assert [(one.name, one.why.split(",")[0]) for one in found.left_out] == [
        ("gone", "its Machine does not exist"),
        ("waits", "it has not attested"),
    ]


def shown(*lines: str) -> dict[str, Any]:
    return {"status": {"ssh": {"hostAuthorities": [{"publicKey": line} for line in lines]}}}


def test_the_authorities_that_the_policy_shows() -> None:
    other: HostKey = host_key(public_keys()["nistp384"])
    assert host_authorities(shown(key_line(AUTHORITY), key_line(other))) == (AUTHORITY, other)
    assert host_authorities({}) == ()


@pytest.mark.parametrize(
    "policy",
    [
        shown(f"{key_line(AUTHORITY)}\n@cert-authority * {key_line(AUTHORITY)}"),
        shown(f"* {key_line(AUTHORITY)}"),
        shown(key_line(public_keys()["sk-ed25519"])),
        shown(*[key_line(AUTHORITY)] * 9),
        {"status": {"ssh": {"hostAuthorities": ["x"]}}},
    ],
    ids=["two lines", "a pattern", "a FIDO key", "too many", "no object"],
)
def test_an_authority_that_is_none_is_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(ClientFilesRefused, match="hostAuthorities"):
        host_authorities(policy)
