"""The operator's configuration: every field that is wrong is refused, by name."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import pytest

from attestors.wire.ssh.key_line import key_line
from signer.cli.configuration import configuration_of
from signer.configuration import (
    MAXIMUM_DEPTH,
    AccessPermission,
    AccessSwitchedOff,
    AllowedAuthorities,
    Configuration,
    ContainersSwitchedOff,
    ContainersSwitchedOn,
    CreatorVerification,
    GatewayAddress,
    GatewayNotNamed,
    InvalidConfiguration,
    MasterSecrets,
    OperatorAttestor,
    RotationOff,
    RotationSettings,
    SSHPermission,
    SSHSwitchedOff,
    every_attestor,
    operator_settings,
    read_attestors,
    read_configuration_file,
)
from signer.model.cluster import ClusterKey
from signer.model.control_plane_names import DEFAULT_RESERVED_NAMES, ReservedNames
from signer.model.rotation_waits import Waits
from signer.model.serving_networks import NO_NETWORKS, OperatorNetworks
from signer.model.tools_image import NoToolsImage, ToolsImage
from tests.documents.generated import parser_of
from tests.support.access_objects import AUTHORITY_KEY as HOST_KEY


def read(folder: Path, text: str | bytes) -> dict[str, OperatorAttestor]:
    path = folder / "config.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return dict(read_attestors(path))


def test_whole_file(tmp_path: Path) -> None:
    attestors = read(
        tmp_path, "attestors:\n  tpm:\n    namespaces: [team-a, team-b]\n    settings: {folder: /etc/ek}\n  aws: {}\n"
    )
    assert attestors["tpm"] == OperatorAttestor(frozenset({"team-a", "team-b"}), {"folder": "/etc/ek"})
    assert attestors["aws"] == OperatorAttestor(frozenset({"*"}), {})


def test_settings_of_one_namespace(tmp_path: Path) -> None:
    attestors = read(
        tmp_path,
        "attestors:\n  tpm:\n    settings: {folder: /etc/ek, pcrs: {deep: 1, deeper: 2}}\n"
        "    settingsByNamespace:\n      lab: {allow: true, pcrs: {deep: 3}}\n      bare:\n",
    )
    everywhere = {"folder": "/etc/ek", "pcrs": {"deep": 1, "deeper": 2}}
    assert operator_settings(attestors, "tpm", "team-a") == everywhere
    assert operator_settings(attestors, "tpm", "bare") == everywhere
    assert operator_settings(attestors, "tpm", "lab") == {"folder": "/etc/ek", "allow": True, "pcrs": {"deep": 3}}
    assert operator_settings(attestors, "aws", "lab") == {}


@pytest.mark.parametrize("namespaces", ["[lab, team-a]", "['*']"])
def test_settings_of_one_namespace_that_is_allowed(tmp_path: Path, namespaces: str) -> None:
    text = f"attestors: {{tpm: {{namespaces: {namespaces}, settingsByNamespace: {{lab: {{a: b}}}}}}}}"
    assert operator_settings(read(tmp_path, text), "tpm", "lab") == {"a": "b"}


@pytest.mark.parametrize("namespaces", [["*"], ["*", "team-a"], ["7"], ["a" * 63], []])
def test_namespaces_that_there_can_be(tmp_path: Path, namespaces: list[str]) -> None:
    read_back = read(tmp_path, f"attestors: {{tpm: {{namespaces: {json.dumps(namespaces)}}}}}")
    assert read_back["tpm"].namespaces == frozenset(namespaces)


@pytest.mark.parametrize("text", ["", "attestors:\n", "attestors: {}\n"])
def test_nothing_set(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"\xff\xfe", "is not UTF-8 text"),
        ("a: [", "is not YAML at line 1, column 5"),
        ("a: \0", "is not YAML"),
        (
            "a: 2024-99-99",
            "is not YAML at line 1, column 4: there is no such value; quote text that looks like a number",
        ),
        ("attestors:\n  tpm: {settings: {a: 0b_}}", "is not YAML at line 2, column 23: there is no such value"),
        ("0x_: b", "is not YAML at line 1, column 1: there is no such value"),
        ("a: " + "9" * 5000, "is not YAML at line 1, column 4: there is no such value"),
        ("a: 1" + ":59" * 400 + ".5", "is not YAML at line 1, column 4: there is no such value"),
        ("a: !!bool x", "is not YAML at line 1, column 4: there is no such value"),
        ("a: !!timestamp x", "is not YAML at line 1, column 4: there is no such value"),
        ('a: "\\U00110000"', "is not YAML"),
        ("0x" + "f" * 5000 + ": 1", "is not YAML"),
        ("a: " + "[" * 10_000, "is nested too deeply"),
        ("a: " + "{b: " * 10_000, "is nested too deeply"),
        ("- " * 10_000, "is nested too deeply"),
        ("!!python/object/apply:os.system [id]", "is not YAML"),
        ("[]\n- a", "is not YAML"),
        ("attestors: {tpm: {}, tpm: {settings: {a: b}}}", "repeats a key"),
        ("attestors: {tpm: {settings: {deep: {a: b, a: c}}}}", "repeats a key"),
        ("attestors: {}\nattestors: {}", "repeats a key"),
        ("attestors:\n  tpm:\n    settings:\n      a: 1\n      a: 2", "repeats a key at line 5, column 7"),
        ("attestors:\n  tpm: {}\n  aws: {}\n  tpm: {}", "repeats a key at line 4, column 3"),
        ("attestors:\n\ttpm: {}", "is not YAML at line 2, column 1: there is a tab; indent with spaces"),
        (
            "attestors:\n  tpm:\n\t  namespaces: []",
            "is not YAML at line 3, column 1: there is a tab; indent with spaces",
        ),
        ("[]", "must be an object, whose top-level fields are access, attestors, certificateA"),
        (
            "false",
            "must be an object, whose top-level fields are access, attestors, certificateA",
        ),
        ("''", "must be an object, whose top-level fields are access, attestors, certificateA"),
        (
            "[attestors]",
            "must be an object, whose top-level fields are access, attestors, certificateA",
        ),
        (
            "attestors: {}\nmode: x",
            "certificateAuthorities, floors, namespaceLimits, rotation, servingAddresses and ssh, and not 'mode'",
        ),
        (
            "attestors: {}\n7: x",
            "certificateAuthorities, floors, namespaceLimits, rotation, servingAddresses and ssh, and not a field "
            "of another form",
        ),
        ("servingAddresses: []", "servingAddresses must be an object"),
        (
            "servingAddresses: {network: []}",
            "has the fields networks, networksByNamespace and reservedNames, and not 'network'",
        ),
        ("servingAddresses: {networks: 10.0.0.0/8}", "servingAddresses.networks must be a list of at most 16"),
        (
            "servingAddresses: {networks: [10.0.0.1/8]}",
            "servingAddresses.networks must hold networks such as 10.0.1.0/24",
        ),
        ("servingAddresses: {reservedNames: etcd}", "servingAddresses.reservedNames must be a list of at most 64 host"),
        ("servingAddresses: {reservedNames: [a.b]}", "servingAddresses.reservedNames must be a list of host labels"),
        ("servingAddresses: {networksByNamespace: []}", "servingAddresses.networksByNamespace must be an object"),
        ("servingAddresses: {networksByNamespace: {'*': []}}", "'*' is no namespace"),
        ("servingAddresses: {networksByNamespace: {A: []}}", "'A' is no namespace"),
        (
            "servingAddresses: {networksByNamespace: {a: [x]}}",
            "servingAddresses.networksByNamespace.a must hold networks",
        ),
        ("attestors: []", "attestors must map provider names"),
        ("attestors: [tpm]", "attestors must map provider names"),
        ("attestors: {UPPER: {}}", "attestors.UPPER"),
        ("attestors: {'': {}}", "attestors."),
        (
            "attestors: {tpm: [a]}",
            "attestors.tpm must be an object with the fields namespaces, settings, settingsByName",
        ),
        (
            "attestors: {tpm: {namespace: a}}",
            "has the fields namespaces, settings, settingsByNamespace, and not 'namespace'",
        ),
        ("attestors: {tpm: {namespaces: team-a}}", "attestors.tpm.namespaces must be a list of names"),
        ("attestors: {tpm: {namespaces: [1]}}", "attestors.tpm.namespaces must be a list of names"),
        ("attestors: {tpm: {namespaces: null}}", "attestors.tpm.namespaces must be a list of names"),
        ("attestors: {tpm: {namespaces: [a, Default]}}", "attestors.tpm.namespaces: 'Default' is no namespace"),
        ("attestors: {tpm: {namespaces: [team-*]}}", "'team-*' is no namespace: up to 63 lower-case letters"),
        ("attestors: {tpm: {namespaces: ['a,b']}}", "'a,b' is no namespace"),
        ("attestors: {tpm: {namespaces: [a-]}}", "'a-' is no namespace"),
        ("attestors: {tpm: {namespaces: ['a\n']}}", "is no namespace"),
        ("attestors: {tpm: {namespaces: ['']}}", "'' is no namespace"),
        ("attestors: {tpm: {namespaces: [" + "a" * 64 + "]}}", "is no namespace"),
        ("attestors: {tpm: {settings: []}}", "attestors.tpm.settings must be an object"),
        ("attestors: {tpm: {settings: [a]}}", "attestors.tpm.settings must be an object"),
        ("attestors: {tpm: {settingsByNamespace: [a]}}", "attestors.tpm.settingsByNamespace must be an object"),
        ("attestors: {tpm: {settingsByNamespace: {a: [b]}}}", "tpm.settingsByNamespace.a must be an object"),
        ("attestors: {tpm: {settingsByNamespace: {'*': {}}}}", "'*' is no namespace"),
        ("attestors: {tpm: {settingsByNamespace: {'*': {}}}}", "; settings of all namespaces belong in settings"),
        ("attestors: {tpm: {settingsByNamespace: {Lab: {}}}}", "tpm.settingsByNamespace: 'Lab' is no namespace"),
        ("attestors: {tpm: {settingsByNamespace: {7: {}}}}", "tpm.settingsByNamespace: '7' is no namespace"),
        ("attestors: {tpm: {namespaces: [a], settingsByNamespace: {b: {}}}}", "b is not among its namespaces: add it"),
        ("attestors: {tpm: {namespaces: [], settingsByNamespace: {b: {}}}}", "b is not among its namespaces"),
        ("attestors: {tpm: {settingsByNamespace: {a: {}, a: {}}}}", "repeats a key"),
    ],
)
def test_refused(tmp_path: Path, text: str | bytes, expected: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        read(tmp_path, text)
    assert expected in str(refused.value)
    assert str(refused.value).startswith("--config: ")


@pytest.mark.parametrize(
    "text",
    [
        "attestors: {tpm: {settings: {key: c2VjcmV0\n",
        "key: !!int c2VjcmV0",
        "attestors: {tpm: {masterKey:c2VjcmV0}}",
        "attestors: {}\nmasterKey:c2VjcmV0:",
    ],
)
def test_refusal_does_not_quote_the_file(tmp_path: Path, text: str) -> None:
    """It may hold keys."""
    with pytest.raises(InvalidConfiguration) as refused:
        read(tmp_path, text)
    assert "c2VjcmV0" not in str(refused.value)


def test_text_that_looks_like_a_date_stands_in_quotes(tmp_path: Path) -> None:
    settings = read(tmp_path, "attestors: {tpm: {settings: {a: '2024-99-99', b: \"0x_\"}}}")["tpm"].settings
    assert settings == {"a": "2024-99-99", "b": "0x_"}


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=r"/absent: No such file or directory$"):
        read_attestors(tmp_path / "absent")
    with pytest.raises(InvalidConfiguration, match=rf"{tmp_path}: Is a directory$"):
        read_attestors(tmp_path)


def authorities(folder: Path, text: str) -> AllowedAuthorities:
    path = folder / "config.yaml"
    path.write_text(text)
    return read_configuration_file(path).authorities


@pytest.mark.parametrize("text", ["", "attestors: {}", "certificateAuthorities:", "certificateAuthorities: {}"])
def test_authorities_that_are_allowed_by_default(tmp_path: Path, text: str) -> None:
    assert authorities(tmp_path, text).allowed_in("team-a") == {"ca", "cca"}


def test_allowed_authorities(tmp_path: Path) -> None:
    stated = "{suffixes: [ca], suffixesByNamespace: {team-a: [ca, client-ca], team-b: []}}"
    found = authorities(tmp_path, f"certificateAuthorities: {stated}")
    assert found.allowed_in("team-a") == {"ca", "client-ca"}
    assert found.allowed_in("team-b") == set()
    assert found.allowed_in("lab") == {"ca"}


def test_clusters_that_may_share_a_ca(tmp_path: Path) -> None:
    """Those of one group, and no others; by default none."""
    one, other, third = (ClusterKey("team-a", "one"), ClusterKey("team-b", "other"), ClusterKey("team-b", "third"))
    assert not authorities(tmp_path, "certificateAuthorities: {}").shared_by.allow(one, ClusterKey("team-a", "two"))
    groups = authorities(tmp_path, "certificateAuthorities: {sharedBy: [[team-a, team-b/other], [team-b]]}").shared_by
    assert [groups.allow(*pair) for pair in ((one, other), (other, third), (one, third))] == [True, True, False]
    assert not groups.allow_all
    every = authorities(tmp_path, "certificateAuthorities: {sharedBy: [['*']]}").shared_by
    assert every.allow(one, third)
    assert every.allow_all


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[ca]", "certificateAuthorities must be an object"),
        ("{suffix: [ca]}", "certificateAuthorities has the fields sharedBy, suffixes, suffixesByNamespace"),
        ("{sharedBy: [team-a]}", "sharedBy[0] must be a list of 1 to 256 namespaces, or Clusters as namespace/name"),
        ("{sharedBy: {}}", "sharedBy must be a list of at most 64 groups"),
        ("{sharedBy: [[]]}", "sharedBy[0] must be a list of 1 to 256"),
        ("{sharedBy: [[team-a, 1]]}", "'1' is no namespace"),
        ("{sharedBy: [[team-a/]]}", "'team-a/' names no Cluster"),
        ("{sharedBy: [[team-a/one/two]]}", "'team-a/one/two' names no Cluster"),
        ("{sharedBy: [[/one]]}", "'' is no namespace"),
        ("{sharedBy: [['team-*']]}", "'team-*' is no namespace"),
        ("{suffixes: ca}", "certificateAuthorities.suffixes must be a list of suffixes"),
        ("{suffixes: [1]}", "certificateAuthorities.suffixes must be a list of suffixes"),
        ("{suffixes: ['*']}", "certificateAuthorities.suffixes must be a list of suffixes"),
        ("{suffixes: ['ca\n']}", "certificateAuthorities.suffixes must be a list of suffixes"),
        ("{suffixesByNamespace: []}", "certificateAuthorities.suffixesByNamespace must be an object"),
        ("{suffixesByNamespace: {'*': [ca]}}", "'*' is no namespace"),
        ("{suffixesByNamespace: {team-a: null}}", "suffixesByNamespace.team-a must be a list of suffixes"),
    ],
)
def test_refused_authorities(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        authorities(tmp_path, f"certificateAuthorities: {text}")
    assert expected in str(refused.value)


def waits(folder: Path, text: str) -> Waits:
    path = folder / "config.yaml"
    path.write_text(text)
    return read_configuration_file(path).rotation_waits


@pytest.mark.parametrize("text", ["", "rotation:", "rotation: {}", "rotation: {waits: }", "rotation: {waits: {}}"])
def test_waits_by_default(tmp_path: Path, text: str) -> None:
    assert waits(tmp_path, text) == Waits(timedelta(minutes=10), timedelta(hours=24), timedelta(hours=1))


def test_waits_of_the_operator(tmp_path: Path) -> None:
    assert waits(tmp_path, "rotation: {waits: {trustAge: 0s, openWatches: 1h30m}}") == Waits(
        trust_age=timedelta(0), open_watches=timedelta(minutes=90)
    )
    assert waits(tmp_path, "rotation: {waits: {overlap: 2160h}}") == Waits(overlap=timedelta(days=90))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[waits]", "rotation must be an object"),
        ("{enabled: true}", "rotation has the fields nodeClientAuthority and waits, and not 'enabled'"),
        ("{waits: 10m}", "rotation.waits must be an object"),
        (
            "{waits: {kubelets: 10m}}",
            "rotation.waits has the fields openWatches, overlap, trustAge, and not 'kubelets'",
        ),
        ("{waits: {trustAge: 600}}", "rotation.waits.trustAge: a duration must be"),
        ("{waits: {overlap: ''}}", "rotation.waits.overlap: a duration must be"),
        ("{waits: {overlap: 1d}}", "rotation.waits.overlap: a duration must be"),
        ("{waits: {openWatches: -1h}}", "rotation.waits.openWatches: a duration must be"),
        ("{waits: {overlap: 2160h1s}}", "rotation.waits.overlap must be at most 2160h"),
    ],
)
def test_refused_waits(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        waits(tmp_path, f"rotation: {text}")
    assert expected in str(refused.value)
    assert str(refused.value).startswith("--config: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", set()),
        ("rotation: {nodeClientAuthority: }", set()),
        ("rotation: {nodeClientAuthority: {namespaces: }}", set()),
        ("rotation: {nodeClientAuthority: {namespaces: []}}", set()),
        ("rotation: {nodeClientAuthority: {namespaces: [team-a, team-b]}}", {"team-a", "team-b"}),
        ("rotation: {nodeClientAuthority: {namespaces: ['*']}}", {"*"}),
    ],
)
def test_where_a_node_client_authority_may_be_chosen(tmp_path: Path, text: str, expected: set[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    assert read_configuration_file(file).node_client_namespaces == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[team-a]", "rotation.nodeClientAuthority must be an object"),
        ("{enabled: true}", "rotation.nodeClientAuthority has the field namespaces, and not 'enabled'"),
        ("{namespaces: team-a}", "rotation.nodeClientAuthority.namespaces must be a list of names, or ['*']"),
        ("{namespaces: [1]}", "rotation.nodeClientAuthority.namespaces must be a list of names, or ['*']"),
        ("{namespaces: [Team]}", "'Team' is no namespace"),
    ],
)
def test_refused_namespaces_of_node_client_authorities(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        waits(tmp_path, f"rotation: {{nodeClientAuthority: {text}}}")
    assert expected in str(refused.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", set()),
        ("ssh: ", set()),
        ("ssh: {namespaces: }", set()),
        ("ssh: {namespaces: [team-a, team-b]}", {"team-a", "team-b"}),
        ("ssh: {namespaces: ['*']}", {"*"}),
    ],
)
def test_where_ssh_may_be_turned_on(tmp_path: Path, text: str, expected: set[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    assert read_configuration_file(file).ssh.namespaces == expected
    options = parser_of("run").parse_args(["--config", str(file), "--ssh"])
    permission = configuration_of(options).ssh
    assert permission == SSHPermission(frozenset(expected))
    assert configuration_of(parser_of("run").parse_args(["--config", str(file)])).ssh == SSHSwitchedOff()
    assert [permission.allows(one) for one in ("team-a", "other")] == [bool(expected), expected == {"*"}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[team-a]", "ssh must be an object"),
        ("{enabled: true}", "ssh has the fields masterSecrets and namespaces, and not 'enabled'"),
        ("{namespaces: team-a}", "ssh.namespaces must be a list of names, or ['*']"),
        ("{namespaces: [1]}", "ssh.namespaces must be a list of names, or ['*']"),
        ("{namespaces: [Team]}", "'Team' is no namespace"),
        ("{masterSecrets: true}", "ssh.masterSecrets must be Allowed or NotAllowed"),
        ("{masterSecrets: allowed}", "ssh.masterSecrets must be Allowed or NotAllowed"),
        ("{masterSecrets: [Allowed]}", "ssh.masterSecrets must be Allowed or NotAllowed"),
    ],
)
def test_refused_namespaces_of_ssh(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        waits(tmp_path, f"ssh: {text}")
    assert expected in str(refused.value)


@pytest.mark.parametrize(
    ("rotated", "among", "expected"),
    [
        ({"*"}, {"*"}, True),
        ({"*"}, {"team-a"}, True),
        ({"team-a"}, {"*"}, True),
        ({"*"}, set[str](), False),
        ({"*"}, {"team-b"}, False),
        ({"team-b"}, {"team-a"}, False),
    ],
)
def test_a_node_client_authority_needs_both_switches(rotated: set[str], among: set[str], expected: bool) -> None:
    settings = RotationSettings(frozenset(rotated), node_client_namespaces=frozenset(among))
    assert settings.allows_node_client_authority("team-a") is expected


def test_the_program_takes_them_from_its_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("rotation: {waits: {overlap: 2h}, nodeClientAuthority: {namespaces: [team-a]}}", encoding="utf-8")
    options = parser_of("run").parse_args(["--config", str(file), "--rotate-authorities"])
    rotation = configuration_of(options).rotation
    assert rotation == RotationSettings(
        waits=Waits(overlap=timedelta(hours=2)), node_client_namespaces=frozenset({"team-a"})
    )


def test_where_rotations_may_be_ordered() -> None:
    assert Configuration("own").rotation == RotationOff()
    assert RotationSettings().allows("team-a")
    assert RotationSettings(frozenset({"team-a"})).allows("team-a")
    assert not RotationSettings(frozenset({"team-a"})).allows("team-b")


def test_settings_are_not_shown() -> None:
    secret = {"masterKey": "c2VjcmV0"}
    attestor = OperatorAttestor(settings=secret, settings_by_namespace={"team-a": secret})
    assert "c2VjcmV0" not in repr(attestor)
    assert "c2VjcmV0" not in repr(Configuration("own", attestors={"tpm": attestor}))


@pytest.mark.parametrize(
    ("namespaces", "expected"), [({"*"}, True), ({"team-a"}, True), ({"team-b"}, False), (set[str](), False)]
)
def test_namespaces(namespaces: set[str], expected: bool) -> None:
    assert OperatorAttestor(frozenset(namespaces)).allows("team-a") is expected


def test_attestor_that_the_operator_does_not_name_is_allowed_nowhere() -> None:
    """An attestor that is installed and forgotten would otherwise be every tenant's to choose."""
    configuration = Configuration("own", attestors={"gcp": OperatorAttestor()})
    assert not configuration.attestor("tpm").allows("team-a")
    assert configuration.attestor("gcp").allows("team-a")


def test_the_flags_name_the_insecure_attestor() -> None:
    given = Configuration("own", insecure_enabled=True, insecure_namespaces=frozenset({"lab"}))
    assert given.attestor("insecure").allows("lab")
    assert not given.attestor("insecure").allows("team-a")
    assert not replace(given, insecure_enabled=False).attestor("insecure").allows("lab")


def test_every_attestor_but_the_insecure_one() -> None:
    assert every_attestor({"tpm", "insecure"}) == {"tpm": OperatorAttestor()}


@pytest.mark.parametrize(
    ("enabled", "namespaces", "expected"),
    [(True, {"lab"}, True), (False, {"lab"}, False), (True, {"team-a"}, False), (True, {"*"}, False)],
)
def test_insecure_needs_the_flag_and_the_namespace_by_name(enabled: bool, namespaces: set[str], expected: bool) -> None:
    configuration = Configuration("own", insecure_enabled=enabled, insecure_namespaces=frozenset(namespaces))
    assert configuration.insecure_allowed("lab") is expected


@pytest.mark.parametrize("more", [0, 1])
def test_nesting_has_a_bound(tmp_path: Path, more: int) -> None:
    """Around it are the document, attestors, tpm and settings."""
    path, depth = tmp_path / "config.yaml", MAXIMUM_DEPTH - 4 + more
    path.write_text(f"attestors: {{tpm: {{settings: {{a: {'[' * depth}{']' * depth}}}}}}}")
    if more:
        with pytest.raises(InvalidConfiguration, match="is nested too deeply"):
            read_attestors(path)
    else:
        assert set(read_attestors(path)) == {"tpm"}


def test_serving_addresses(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "servingAddresses:\n  networks: ['2001:db8::/48']\n"
        "  networksByNamespace:\n    team-a: [10.0.1.0/24]\n    team-b:\n",
        encoding="utf-8",
    )
    found = read_configuration_file(file)
    assert found.attestors == {}
    bounds = {"team-a": (ip_network("10.0.1.0/24"),), "team-b": ()}
    assert found.serving_networks == OperatorNetworks((ip_network("2001:db8::/48"),), bounds)
    for empty in ("", "attestors: {}", "servingAddresses:", "servingAddresses: {networks: }"):
        file.write_text(empty, encoding="utf-8")
        assert read_configuration_file(file).serving_networks == NO_NETWORKS
        assert read_configuration_file(file).reserved_names == DEFAULT_RESERVED_NAMES
    for listed in ([], ["vault", "vault-*"]):
        file.write_text(f"servingAddresses: {{reservedNames: {listed}}}", encoding="utf-8")
        assert read_configuration_file(file).reserved_names == ReservedNames(tuple(listed))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", MasterSecrets.NOT_ALLOWED), (", masterSecrets: Allowed", MasterSecrets.ALLOWED)],
)
def test_master_secrets_are_allowed_by_a_word_of_the_operator_alone(
    tmp_path: Path, text: str, expected: MasterSecrets
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"ssh: {{namespaces: [team-a]{text}}}", encoding="utf-8")
    assert read_configuration_file(file).ssh.master_secrets is expected


def access(folder: Path, text: str) -> AccessPermission:
    file = folder / "config.yaml"
    file.write_text(f"access: {text}", encoding="utf-8")
    return read_configuration_file(file).access


def test_access(tmp_path: Path) -> None:
    assert access(tmp_path, "") == access(tmp_path, "{}") == AccessPermission()
    assert not AccessPermission().allows("team-a")
    assert AccessPermission(frozenset({"*"})).allows("team-a")
    found = access(
        tmp_path,
        "{namespaces: [team-a], creatorVerification: Unverified, minimumApprovals: 1,"
        " minimumApprovalsByNamespace: {team-a: 2}, maximumLifetime: 8h, bastions: [aws],"
        " bastionsByNamespace: {team-a: [pod, local], team-b: []}}",
    )
    assert found == AccessPermission(
        frozenset({"team-a"}),
        CreatorVerification.UNVERIFIED,
        1,
        {"team-a": 2},
        timedelta(hours=8),
        frozenset({"aws"}),
        {"team-a": frozenset({"pod", "local"}), "team-b": frozenset()},
    )
    assert [found.allows(one) for one in ("team-a", "team-b")] == [True, False]
    assert [found.approvals_in(one) for one in ("team-a", "team-b")] == [2, 1]
    assert [found.bastions_in(one) for one in ("team-a", "team-b", "team-c")] == [{"pod", "local"}, set(), {"aws"}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[team-a]", "access must be an object"),
        ("{enabled: true}", "namespaces, toolsImage, and not 'enabled'"),
        ("{namespaces: team-a}", "access.namespaces must be a list of names, or ['*']"),
        ("{creatorVerification: none}", "access.creatorVerification must be Required or Unverified"),
        ("{creatorVerification: [Required]}", "access.creatorVerification must be Required or Unverified"),
        ("{minimumApprovals: 9}", "access.minimumApprovals must be a whole number from 0 to 8"),
        ("{minimumApprovals: true}", "access.minimumApprovals must be a whole number from 0 to 8"),
        ("{minimumApprovalsByNamespace: {Team: 1}}", "'Team' is no namespace"),
        ("{minimumApprovalsByNamespace: {a: -1}}", "access.minimumApprovalsByNamespace.a must be a whole number"),
        ("{maximumLifetime: 169h}", "access.maximumLifetime must be between 1m and 168h"),
        ("{maximumLifetime: 1d}", "access.maximumLifetime: a duration must be"),
        ("{gatewayNamespace: Gateways}", "access.gatewayNamespace must be a namespace"),
        ("{gatewayNamespace: [gateways]}", "access.gatewayNamespace must be a namespace"),
        ("{gatewayNamespace: ''}", "access.gatewayNamespace must be a namespace"),
        ("{gateway: gateway.example.com}", "access.gateway must be an object"),
        ("{gateway: {host: a, port: 22, hostKeys: [K], key: K}}", "access.gateway has the fields host, hostKeys, port"),
        ("{gateway: {port: 22, hostKeys: [K]}}", "access.gateway.host must be a DNS name in lower case, or an address"),
        ("{gateway: {host: '*', port: 22, hostKeys: [K]}}", "access.gateway.host must be a DNS name in lower case"),
        (
            '{gateway: {host: "a\\n  ProxyCommand x", port: 22, hostKeys: [K]}}',
            "access.gateway.host must be a DNS name",
        ),
        ("{gateway: {host: a, hostKeys: [K]}}", "access.gateway.port must be a port from 1 to 65535"),
        ("{gateway: {host: a, port: 65536, hostKeys: [K]}}", "access.gateway.port must be a port from 1 to 65535"),
        ("{gateway: {host: a, port: true, hostKeys: [K]}}", "access.gateway.port must be a port from 1 to 65535"),
        ("{gateway: {host: a, port: 22}}", "access.gateway.hostKeys must be a list of 1 to 4 public keys"),
        (
            "{gateway: {host: a, port: 22, hostKeys: []}}",
            "access.gateway.hostKeys must be a list of 1 to 4 public keys",
        ),
        ("{gateway: {host: a, port: 22, hostKeys: [K, K]}}", "access.gateway.hostKeys names a key twice"),
        ("{gateway: {host: a, port: 22, hostKeys: [K K]}}", "access.gateway.hostKeys: a comment stands behind the key"),
        ("{gateway: {host: a, port: 22, hostKeys: [1]}}", "access.gateway.hostKeys: the key line is not two words"),
        ("{toolsImage: 'a b'}", "access.toolsImage must be the name of an image, such as registry"),
        ("{toolsImage: [tools]}", "access.toolsImage must be the name of an image, such as registry"),
        ("{bastions: aws}", "access.bastions must be a list of bastion providers"),
        ("{bastions: [None]}", "access.bastions must be a list of bastion providers"),
        ("{bastionsByNamespace: {'*': [aws]}}", "'*' is no namespace"),
        ("{bastionsByNamespace: {a: [AWS]}}", "access.bastionsByNamespace.a must be a list of bastion providers"),
    ],
)
def test_refused_access(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        access(tmp_path, re.sub(r"\bK\b", HOST_KEY, text))
    assert expected in str(refused.value)


def test_the_gateway_of_access(tmp_path: Path) -> None:
    found = access(tmp_path, f"{{gateway: {{host: gateway.example.com, port: 2222, hostKeys: [{HOST_KEY}]}}}}").gateway
    assert isinstance(found, GatewayAddress)
    assert (str(found.host), found.port, list(map(key_line, found.host_keys))) == (
        "gateway.example.com",
        2222,
        [HOST_KEY],
    )
    address = access(tmp_path, f"{{gateway: {{host: 'fd00::7', port: 22, hostKeys: [{HOST_KEY}]}}}}").gateway
    assert isinstance(address, GatewayAddress)
    assert str(address.host) == "fd00::7"
    assert access(tmp_path, "{}").gateway == access(tmp_path, "{gateway: {}}").gateway == GatewayNotNamed()


def test_the_tools_image_is_off_by_default(tmp_path: Path) -> None:
    assert access(tmp_path, "{}").tools == access(tmp_path, "{toolsImage: ''}").tools == NoToolsImage()
    assert access(tmp_path, "{toolsImage: 'tools:1'}").tools == ToolsImage("tools:1")


def test_containers_need_access_and_a_namespace_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("access: {namespaces: [team-a]}", encoding="utf-8")
    run = parser_of("run")
    common = ["--config", str(file), "--ssh"]
    off = configuration_of(run.parse_args([*common, "--access"])).access
    on = configuration_of(run.parse_args([*common, "--access", "--containers"])).access
    assert off == AccessPermission(frozenset({"team-a"}))
    assert isinstance(off.containers, ContainersSwitchedOff)
    assert isinstance(on, AccessPermission)
    assert isinstance(on.containers, ContainersSwitchedOn)
    assert on.gateway_namespace == "node-access-gateway"
    with pytest.raises(InvalidConfiguration, match="--containers needs --access: give both"):
        configuration_of(run.parse_args([*common, "--containers"]))
    for namespace, more in (
        ("team-a", []),
        ("own", ["--controller-namespace", "own"]),
        ("one", ["--namespace", "one"]),
    ):
        file.write_text(f"access: {{namespaces: [team-a], gatewayNamespace: {namespace}}}", encoding="utf-8")
        with pytest.raises(InvalidConfiguration, match="a namespace of its own"):
            configuration_of(run.parse_args([*common, "--access", "--containers", *more]))


def test_access_needs_ssh(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("access: {namespaces: [team-a]}", encoding="utf-8")
    run = parser_of("run")
    both = configuration_of(run.parse_args(["--config", str(file), "--ssh", "--access"]))
    assert both.access == AccessPermission(frozenset({"team-a"}))
    assert configuration_of(run.parse_args(["--config", str(file), "--ssh"])).access == AccessSwitchedOff()
    with pytest.raises(InvalidConfiguration, match="--access needs --ssh: give both"):
        configuration_of(run.parse_args(["--config", str(file), "--access"]))
