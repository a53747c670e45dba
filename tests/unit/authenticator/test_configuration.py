from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attestors.wire.names import PROVIDER_ID_OID, SSH_HOST_KEYS_OID
from authenticator.configuration import (
    SSH,
    Configuration,
    Given,
    Serving,
    Trust,
    configure,
)
from authenticator.model.failures import ExitCode, InvalidConfiguration
from tests.unit.authenticator.builders import SWIFT

HEADER = {"apiVersion": "attestation.cluster.x-k8s.io/v1alpha1", "kind": "KubeletAuthenticatorConfiguration"}
FULL = HEADER | {
    "provider": "keyed-mac",
    "settings": {"a": "of the file", "b": "of the file"},
    "nodeName": "file-node",
    "providerID": "test:///file",
    "providerIDOID": "1.2.3.4",
    "bootstrapKubeconfig": "/file/bootstrap",
    "kubeconfig": "/file/kubeconfig",
    "store": "/file/store",
    "timeoutSeconds": 20,
    "serving": {"dnsNames": ["file-node"], "ipAddresses": ["192.0.2.7", "2001:db8::7"]},
}
PREFIX = "KUBELET_AUTHENTICATOR_"
ENVIRONMENT = {
    f"{PREFIX}PROVIDER": "tpm",
    f"{PREFIX}SETTINGS": '{"b": "of the environment", "c": "of the environment"}',
    f"{PREFIX}NODE_NAME": "environment-node",
    f"{PREFIX}PROVIDER_ID": "test:///environment",
    f"{PREFIX}PROVIDER_ID_OID": "1.2.3.5",
    f"{PREFIX}BOOTSTRAP_KUBECONFIG": "/environment/bootstrap",
    f"{PREFIX}KUBECONFIG": "/environment/kubeconfig",
    f"{PREFIX}STORE": "/environment/store",
    f"{PREFIX}TIMEOUT": "30.5",
}
NOTHING = Given()
TPM = Given(provider="tpm")
FLAGS = Given(
    provider="insecure",
    setting=("c=of the flag", "d=x=y"),
    node_name="flag-node",
    provider_id="test:///flag",
    provider_id_oid="1.2.3.6",
    bootstrap_kubeconfig="/flag/bootstrap",
    kubeconfig="/flag/kubeconfig",
    store="/flag/store",
    timeout="40",
    serving=True,
    serving_dns_name=("flag-node",),
    serving_ip_address=("192.0.2.8",),
)

pytestmark = pytest.mark.usefixtures("nothing_configured")


def written(folder: Path, content: object) -> str:
    path = folder / "configuration.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return str(path)


def of(
    folder: Path, content: object, given_: Given = NOTHING, environment: Mapping[str, str] = MappingProxyType({})
) -> Configuration:
    """What a file gives, with flags and environment."""
    named = written(folder, content)
    return configure(given_, {**environment, f"{PREFIX}CONFIG": named})


def refuse(message: str, given_: Given = TPM, environment: Mapping[str, str] = MappingProxyType({})) -> None:
    with pytest.raises(InvalidConfiguration, match=message) as refused:
        configure(given_, environment)
    assert refused.value.exit_code is ExitCode.CONFIGURATION


def refuse_file(folder: Path, content: object, message: str) -> None:
    named = written(folder, content)
    with pytest.raises(InvalidConfiguration, match=message):
        configure(Given(config=named), {})


# Where what comes from


def test_the_defaults() -> None:
    found = configure(Given(provider="tpm"), {})
    assert found.node_name == socket.gethostname().lower()
    assert (found.provider_id, found.provider_id_oid) == ("", PROVIDER_ID_OID)
    assert found.settings == {}
    assert str(found.bootstrap_kubeconfig) == "/etc/kubernetes/bootstrap-kubelet.conf"
    assert str(found.kubeconfig) == "/etc/kubernetes/kubelet.conf"
    assert (found.timeout, found.serving, found.file) == (300.0, None, None)
    assert found.store.name == "pki"


def test_the_hosts_name_in_lower_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: " Worker-1.Example\n")
    assert configure(Given(provider="tpm"), {}).node_name == "worker-1.example"


def test_the_file_wins_over_the_defaults(tmp_path: Path) -> None:
    found = of(tmp_path, FULL)
    assert found == Configuration(
        provider="keyed-mac",
        settings={"a": "of the file", "b": "of the file"},
        node_name="file-node",
        provider_id="test:///file",
        provider_id_oid="1.2.3.4",
        bootstrap_kubeconfig=Path("/file/bootstrap"),
        kubeconfig=Path("/file/kubeconfig"),
        store=Path("/file/store"),
        timeout=20.0,
        serving=Serving(("file-node",), (ip_address("192.0.2.7"), ip_address("2001:db8::7"))),
        file=tmp_path / "configuration.json",
        trust=Trust(),
    )


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    found = of(tmp_path, FULL, environment=ENVIRONMENT)
    assert (found.provider, found.node_name, found.provider_id) == ("tpm", "environment-node", "test:///environment")
    assert found.provider_id_oid == "1.2.3.5"
    assert found.settings == {"a": "of the file", "b": "of the environment", "c": "of the environment"}
    assert [str(path) for path in (found.bootstrap_kubeconfig, found.kubeconfig, found.store)] == [
        "/environment/bootstrap",
        "/environment/kubeconfig",
        "/environment/store",
    ]
    assert found.timeout == 30.5


def test_a_flag_wins_over_the_environment(tmp_path: Path) -> None:
    found = of(tmp_path, FULL, FLAGS, ENVIRONMENT)
    assert (found.provider, found.node_name, found.provider_id) == ("insecure", "flag-node", "test:///flag")
    assert found.provider_id_oid == "1.2.3.6"
    assert found.settings == {
        "a": "of the file",
        "b": "of the environment",
        "c": "of the flag",
        "d": "x=y",
    }
    assert [str(path) for path in (found.bootstrap_kubeconfig, found.kubeconfig, found.store)] == [
        "/flag/bootstrap",
        "/flag/kubeconfig",
        "/flag/store",
    ]
    assert (found.timeout, found.serving) == (40.0, Serving(("flag-node",), (ip_address("192.0.2.8"),)))


def test_the_flag_names_the_file(tmp_path: Path) -> None:
    named = written(tmp_path, FULL)
    assert configure(Given(config=named), {f"{PREFIX}CONFIG": "/missing"}).node_name == "file-node"


def test_the_default_file_is_read_where_it_exists(nothing_configured: Path) -> None:
    path = nothing_configured / "kubelet-authenticator.json"
    path.write_text(json.dumps(FULL))
    assert configure(Given(), {}).file == path


def test_empty_flags_and_variables_say_nothing(tmp_path: Path) -> None:
    empty = dict.fromkeys(ENVIRONMENT, "")
    assert of(tmp_path, FULL, Given(provider="", store="", timeout=""), empty) == of(tmp_path, FULL)


def test_empty_settings_are_settings() -> None:
    assert configure(Given(provider="tpm", setting=("a=",)), {}).settings == {"a": ""}


@pytest.mark.parametrize(
    ("content", "flags", "expected"),
    [
        ({}, {}, None),
        ({"serving": None}, {}, None),
        ({}, {"serving_dns_name": ("a",)}, None),
        ({"serving": {}}, {}, Serving()),
        ({}, {"serving": True}, Serving()),
        ({"serving": {"dnsNames": ["a"]}}, {"serving": True}, Serving(("a",))),
        ({"serving": {"dnsNames": ["a"]}}, {"serving_dns_name": ("b", "c")}, Serving(("b", "c"))),
    ],
)
def test_a_serving_certificate_is_requested_only_if_configured(
    tmp_path: Path, content: dict[str, Any], flags: dict[str, Any], expected: Serving | None
) -> None:
    assert of(tmp_path, HEADER | {"provider": "tpm"} | content, Given(**flags)).serving == expected


@pytest.mark.parametrize(("text", "seconds"), [("1", 1.0), ("3600", 3600.0), ("0.1e2", 10.0)])
def test_timeouts(text: str, seconds: float) -> None:
    assert configure(Given(provider="tpm", timeout=text), {}).timeout == seconds


def test_no_timeout_in_the_file_is_the_default(tmp_path: Path) -> None:
    assert of(tmp_path, FULL | {"timeoutSeconds": None}).timeout == 300.0


# What is refused


def test_no_attestor() -> None:
    refuse("no attestor is configured: give --provider, KUBELET_AUTHENTICATOR_PROVIDER, or provider in /", Given())


def test_no_attestor_in_the_named_file(tmp_path: Path) -> None:
    refuse_file(tmp_path, HEADER, rf"provider in {tmp_path}/configuration.json")


@pytest.mark.parametrize("name", ["TPM", "t_pm", "-tpm", "tpm\n", "\u0442pm", "a" * 41])
def test_an_attestor_that_cannot_be(name: str) -> None:
    refuse("^provider: a provider name is", Given(provider=name))


@pytest.mark.parametrize("text", [" ", "test:///a ", " test:///a", "test:///a\n", "test:///\u00e4", "x" * 513])
def test_a_provider_id_that_is_none(text: str) -> None:
    refuse("^providerID: ", Given(provider="tpm", provider_id=text))


@pytest.mark.parametrize("name", ["worker_1", "-worker", "worker-", "worker 1", "w\u00f6rker", "a" * 254, "."])
def test_a_node_name_that_is_none(name: str) -> None:
    refuse("is not a valid node name; give --node-name", Given(provider="tpm", node_name=name))


def test_capitals_of_a_node_name_become_small_as_kubeadm_makes_them() -> None:
    assert configure(Given(provider="tpm", node_name=" Worker-1 "), {}).node_name == "worker-1"


def test_before_there_is_work_no_attestor_is_needed() -> None:
    assert configure(Given(), {}, needs_attestor=False).provider == ""
    refuse("^provider: a provider name is", Given(provider="TPM"))


@pytest.mark.parametrize("name", ["a", "a.b", "worker-1.example", "a" * 253])
def test_node_names(name: str) -> None:
    assert configure(Given(provider="tpm", node_name=name), {}).node_name == name


def test_a_host_without_a_usable_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "my_host")
    refuse("nodeName: 'my_host' is not a valid node name; give --node-name")


@pytest.mark.parametrize("setting", ["a", "=a", ""])
def test_a_setting_without_a_name_or_a_value(setting: str) -> None:
    refuse("^--setting must be NAME=VALUE$", Given(provider="tpm", setting=(setting,)))


@pytest.mark.parametrize("text", ["{", "not json", "[" * 100_000])
def test_settings_that_are_not_json(text: str) -> None:
    refuse("^KUBELET_AUTHENTICATOR_SETTINGS is not JSON$", environment={f"{PREFIX}SETTINGS": text})


@pytest.mark.parametrize("text", ["[]", "null", '"a"'])
def test_settings_that_are_no_object(text: str) -> None:
    refuse("^KUBELET_AUTHENTICATOR_SETTINGS: must be an object of strings$", environment={f"{PREFIX}SETTINGS": text})


@pytest.mark.parametrize("text", ['{"b": "c", "a": 1}', '{"a": null}'])
def test_a_setting_that_is_no_text(text: str) -> None:
    refuse("^KUBELET_AUTHENTICATOR_SETTINGS: a must be a string$", environment={f"{PREFIX}SETTINGS": text})


def test_settings_with_a_name_twice() -> None:
    refuse("SETTINGS: a is repeated", environment={f"{PREFIX}SETTINGS": '{"a": "1", "a": "2"}'})


@pytest.mark.parametrize("text", ["0", "0.99", "3600.1", "-1", "nan", "inf", "1 minute", "9" * 400])
def test_a_timeout_out_of_bounds(text: str) -> None:
    refuse("^--timeout must be a number of seconds from 1 to 3600$", Given(provider="tpm", timeout=text))
    variable = f"{PREFIX}TIMEOUT"
    refuse(f"^{variable} must be a number of seconds from 1 to 3600$", environment={variable: text})


@pytest.mark.parametrize("value", [0, True, [], {}, "soon", 10**400])
def test_a_timeout_in_the_file_that_is_none(tmp_path: Path, value: object) -> None:
    refuse_file(tmp_path, FULL | {"timeoutSeconds": value}, "json: timeoutSeconds must be a number of seconds")


@pytest.mark.parametrize("name", ["", "\u00e4", "a b", "a\0", "-a", "*.example", "a" * 254, "Worker"])
def test_a_serving_name_that_is_none(tmp_path: Path, name: str) -> None:
    refuse_file(tmp_path, FULL | {"serving": {"dnsNames": ["good", name]}}, "is not a valid host name")
    refuse("is not a valid host name", Given(provider="tpm", serving=True, serving_dns_name=(name,)))


@pytest.mark.parametrize("address", ["", "worker", "192.0.2.256", "192.0.2.0/24", "fe80::1%eth0"])
def test_a_serving_address_that_is_none(tmp_path: Path, address: str) -> None:
    refuse_file(tmp_path, FULL | {"serving": {"ipAddresses": [address]}}, "^serving IP address: ")
    refuse("^serving IP address: ", Given(provider="tpm", serving=True, serving_ip_address=(address,)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "not JSON", id="empty"),
        pytest.param(b"{\n\n x", "not JSON at line 3, column 2", id="syntax"),
        pytest.param(b"\xff\xfe{", "not JSON", id="binary"),
        pytest.param(b"[" * 60_000, "not JSON", id="deep"),
        pytest.param(b'{"a": ' + b"9" * 5000 + b"}", "not JSON", id="number-without-end"),
        pytest.param([], "must be an object with apiVersion", id="list"),
        pytest.param({}, "must be an object with apiVersion", id="no-header"),
        pytest.param(FULL | {"apiVersion": "v1"}, "must be an object with apiVersion", id="another-version"),
        pytest.param(FULL | {"kind": "Config"}, "must be an object with apiVersion", id="another-kind"),
        pytest.param(FULL | {"povider": "tpm"}, "unknown key povider; known are apiVersion, ", id="unknown-key"),
        pytest.param(b'{"provider": "tpm", "provider": "insecure"}', "provider is repeated", id="repeated-key"),
        pytest.param(b'{"settings": {"key": "1", "key": "2"}}', "key is repeated", id="repeated-key-within"),
        *(
            pytest.param(FULL | {key: value}, f"{key} must be a string", id=f"{key}-{type(value).__name__}")
            for key in ("provider", "nodeName", "providerID", "bootstrapKubeconfig", "kubeconfig", "store")
            for value in (7, None, ["x"])
        ),
        *(
            pytest.param(FULL | {key: "/a\0b"}, f"{key}: a path cannot contain a zero byte", id=f"{key}-zero")
            for key in ("bootstrapKubeconfig", "kubeconfig", "store")
        ),
        *(
            pytest.param(
                FULL | {key: "/a\ud800"}, f"{key}: a path cannot contain a lone surrogate,", id=f"{key}-surrogate"
            )
            for key in ("bootstrapKubeconfig", "kubeconfig", "store")
        ),
        pytest.param(FULL | {"settings": []}, "settings: must be an object of strings", id="settings-list"),
        pytest.param(FULL | {"settings": {"a": 1}}, "settings: a must be a string", id="settings-number"),
        pytest.param(FULL | {"settings": None}, "settings: must be an object of strings", id="settings-null"),
        pytest.param(FULL | {"serving": True}, "serving must be an object with dnsNames and ip", id="serving-bool"),
        pytest.param(FULL | {"serving": ["dnsNames"]}, "serving must be an object", id="serving-list"),
        pytest.param(FULL | {"serving": {"names": []}}, "serving must be an object", id="serving-unknown-key"),
        pytest.param(FULL | {"serving": {"dnsNames": "a"}}, "serving.dnsNames must be a list", id="names-text"),
        pytest.param(FULL | {"serving": {"dnsNames": [1]}}, "serving.dnsNames must be a list", id="names-number"),
        pytest.param(FULL | {"serving": {"ipAddresses": {}}}, "serving.ipAddresses must be a list", id="addresses"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, content: object, message: str) -> None:
    refuse_file(tmp_path, content, message)


def test_the_size_of_the_file_is_bounded(tmp_path: Path) -> None:
    text = json.dumps(FULL).encode()
    padding = b" " * (64 * 1024 - len(text))
    assert of(tmp_path, text + padding).node_name == "file-node"
    refuse_file(tmp_path, text + padding + b" ", "larger than 65536 bytes")


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    refuse("missing.json: there is no such file", Given(config=str(tmp_path / "missing.json")))
    refuse("missing.json: there is no such file", environment={f"{PREFIX}CONFIG": str(tmp_path / "missing.json")})
    refuse("Is a directory", Given(config=str(tmp_path)))


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EIO, ExitCode.STORE),
        (errno.EMFILE, ExitCode.STORE),
        (errno.EACCES, ExitCode.CONFIGURATION),
        (errno.ELOOP, ExitCode.CONFIGURATION),
    ],
)
def test_what_the_disk_does_not_give_is_no_wrong_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: ExitCode
) -> None:
    """Or systemd would not start the agent again."""

    def broken(path: Path, mode: str) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "open", broken)
    with pytest.raises(InvalidConfiguration, match=os.strerror(number)) as refused:
        configure(Given(config=str(tmp_path / "file.json")), {})
    assert refused.value.exit_code is code


# Secrets


def test_nothing_shows_a_setting(tmp_path: Path) -> None:
    secret = "planted-secret"
    given_ = Given(setting=(f"machine-key={secret}",))
    found = of(tmp_path, FULL, given_)
    assert found.settings["machine-key"] == secret
    assert secret not in repr(found)
    assert secret not in repr(given_)


@pytest.mark.parametrize("content", [{"settings": {"key": ["planted-secret"]}}, {"settings": ["planted-secret"]}])
def test_no_refusal_shows_a_setting(tmp_path: Path, content: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        of(tmp_path, FULL | content)
    assert "planted-secret" not in str(refused.value)


# Anything

ONE_FOLDER = settings(SWIFT, suppress_health_check=[HealthCheck.function_scoped_fixture])

texts = st.text(max_size=9)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
near_misses = st.dictionaries(
    st.sampled_from([*FULL, "more"]),
    json_values | st.dictionaries(st.sampled_from(["dnsNames", "ipAddresses"]), json_values),
)


@ONE_FOLDER
@given(
    st.binary(max_size=40)
    | json_values.map(json.dumps).map(str.encode)
    | near_misses.map(lambda found: json.dumps(FULL | found).encode())
)
def test_any_file_is_read_or_refused(tmp_path: Path, content: bytes) -> None:
    with contextlib.suppress(InvalidConfiguration):
        assert isinstance(of(tmp_path, content), Configuration)


@ONE_FOLDER
@given(
    st.dictionaries(st.sampled_from([*ENVIRONMENT]), texts | json_values.map(json.dumps)), st.lists(texts).map(tuple)
)
def test_any_environment_is_read_or_refused(environment: dict[str, str], setting: tuple[str, ...]) -> None:
    with contextlib.suppress(InvalidConfiguration):
        assert isinstance(configure(Given(setting=setting), environment), Configuration)


@pytest.mark.parametrize("oid", ["x", "2.5.29.17", "1.2.3,1.2.4"])
def test_an_oid_that_no_request_can_use(oid: str) -> None:
    refuse("^providerIDOID: ", Given(provider="tpm", provider_id_oid=oid))


def test_another_oid_is_another_asker() -> None:
    """What was refused for the former one is asked again at once; without a choice everything is as before."""
    by_oid = [
        configure(Given(provider="tpm", node_name="n", provider_id_oid=oid), {}).asker
        for oid in (None, PROVIDER_ID_OID, "1.2.3.4", "1.2.3.5")
    ]
    assert by_oid[0] == by_oid[1] == "b6e9d7462f44cf75 "
    assert len(set(by_oid)) == 3


# Trust.


def test_the_agent_changes_the_cas_by_default(tmp_path: Path) -> None:
    assert of(tmp_path, FULL).trust == Trust()
    assert Trust().authority_files_may_be_missing


def test_trust_can_be_left_to_others(tmp_path: Path) -> None:
    assert of(tmp_path, {**FULL, "trust": False}).trust is None


def test_trust_is_configured(tmp_path: Path) -> None:
    trust = {"authorityFiles": ["/a/ca.crt"], "restartCommand": ["/bin/restart", "kubelet"], "health": "[::1]:10248"}
    assert of(tmp_path, {**FULL, "trust": trust}).trust == Trust(
        (Path("/a/ca.crt"),), False, ("/bin/restart", "kubelet"), "::1", 10248
    )


@pytest.mark.parametrize(
    "trust",
    [
        True,
        None,
        [],
        {"more": 1},
        {"authorityFiles": "/a"},
        {"authorityFiles": ["a"]},
        {"authorityFiles": ["/a\0"]},
        {"authorityFiles": [1]},
        {"restartCommand": []},
        {"restartCommand": [""]},
        {"restartCommand": "reboot"},
        {"restartCommand": ["a\0"]},
        {"health": 10248},
        {"health": "127.0.0.1"},
        {"health": "192.0.2.1:10248"},
        {"health": "127.0.0.1:0"},
        {"health": "127.0.0.1:65536"},
        {"health": "127.0.0.1:\uff11"},
        {"health": "localhost:10248"},
    ],
)
def test_wrong_trust_is_refused(tmp_path: Path, trust: object) -> None:
    with pytest.raises(InvalidConfiguration, match="trust"):
        of(tmp_path, {**FULL, "trust": trust})


def test_ssh_is_off_by_default(tmp_path: Path) -> None:
    assert of(tmp_path, FULL).ssh is None


def test_ssh_is_switched_on_with_defaults(tmp_path: Path) -> None:
    ssh = of(tmp_path, {**FULL, "ssh": {}}).ssh
    assert ssh == SSH()
    assert ssh.host_keys == (Path("/etc/ssh/ssh_host_ed25519_key"),)
    assert (ssh.folder, ssh.host_keys_oid) == (Path("/etc/ssh/node-access"), SSH_HOST_KEYS_OID)


def test_ssh_is_configured(tmp_path: Path) -> None:
    keys = ["/k/ed25519", "/k/rsa", "/other/ecdsa"]
    found = of(tmp_path, {**FULL, "ssh": {"hostKeys": keys, "hostKeysOID": "1.2.3.9", "folder": "/f"}}).ssh
    assert found == SSH(tuple(map(Path, keys)), "1.2.3.9", Path("/f"))


@pytest.mark.parametrize(
    "ssh",
    [
        None,
        False,
        True,
        [],
        {"hostKey": []},
        {"hostKeys": []},
        {"hostKeys": "/k"},
        {"hostKeys": ["relative"]},
        {"hostKeys": [1]},
        {"hostKeys": ["/"]},
        {"hostKeys": ["/a/.."]},
        {"hostKeys": ["/a\0"]},
        {"hostKeys": ["/a/key", "/b/key"]},
        {"hostKeys": ["/1", "/2", "/3", "/4"]},
        {"folder": "relative"},
        {"folder": 1},
        {"folder": "/"},
        {"hostKeysOID": 1},
        {"hostKeysOID": "2.25.307174823648269845"},
        {"hostKeysOID": "2.5.29.17"},
        {"hostKeysOID": "1.2.3.4"},
    ],
)
def test_wrong_ssh_is_refused(tmp_path: Path, ssh: object) -> None:
    with pytest.raises(InvalidConfiguration, match="ssh"):
        of(tmp_path, {**FULL, "ssh": ssh})


def test_other_host_keys_are_another_request(tmp_path: Path) -> None:
    """A pending request without them is not waited for."""
    changes: list[dict[str, object]] = [{}, {"ssh": {}}, {"ssh": {"hostKeys": ["/k"]}}]
    found = [of(tmp_path, FULL | one).asker for one in changes]
    assert len(set(found)) == 3
    assert of(tmp_path, FULL | {"ssh": {"folder": "/f"}}).asker == found[1]
