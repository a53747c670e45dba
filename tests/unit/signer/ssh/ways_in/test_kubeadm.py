"""Users, files and commands of KubeadmConfigs: what lets keys and passwords in, and what nearly does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.ssh.ways_in.findings import Certainty
from signer.ssh.ways_in.kubeadm import SPECS, kubeadm_findings

D, P = Certainty.DECLARED, Certainty.POSSIBLE
CONFIG = "ignition.containerLinuxConfig.additionalConfig"


def found(spec: Any, kind: str = "KubeadmConfig") -> list[tuple[str, Certainty]]:
    manifest = spec
    for name in reversed(SPECS[kind]):
        manifest = {name: manifest}
    return [(one.field, one.certainty) for one in kubeadm_findings(kind, manifest)]


def ignition(text: str) -> dict[str, Any]:
    return {"ignition": {"containerLinuxConfig": {"additionalConfig": text}}}


@pytest.mark.parametrize(
    ("spec", "field", "certainty"),
    [
        ({"users": [{"name": "capi", "sshAuthorizedKeys": ["k"]}]}, "users[0].sshAuthorizedKeys", D),
        ({"users": [{}, {"sshAuthorizedKeys": "k"}]}, "users[1].sshAuthorizedKeys", D),
        ({"users": [{"passwd": "$6$", "lockPassword": False}]}, "users[0].lockPassword", D),
        ({"users": [{"passwdFrom": {"secret": {}}, "lockPassword": False}]}, "users[0].lockPassword", D),
        ({"files": [{"path": "/root/.ssh/authorized_keys"}]}, "files[0].path", D),
        ({"files": [{"path": "//root/x/../.ssh//authorized_keys2"}]}, "files[0].path", D),
        ({"files": [{"path": "/etc/ssh/authorized_keys.d/root"}]}, "files[0].path", D),
        ({"files": [{"path": "/etc/ssh/sshd_config.d/50.conf", "contentFrom": {}}]}, "files[0].path", P),
        ({"files": [{"path": "//etc/ssh/./sshd_config"}]}, "files[0].path", P),
        ({"files": [{"path": "/etc/ssh/node-access/../sshd_config"}]}, "files[0].path", P),
        ({"files": [{"path": "/run.sh", "content": "echo k >> ~/.ssh/authorized_keys"}]}, "files[0].content", P),
        ({"files": [{"path": "/etc/cloud/x.cfg", "content": "ssh_authorized_keys: [k]"}]}, "files[0].content", P),
        ({"bootCommands": ["chpasswd < /x"]}, "bootCommands[0]", P),
        ({"preKubeadmCommands": ["true", "systemctl restart SSHD"]}, "preKubeadmCommands[1]", P),
        ({"preKubeadmCommands": ["systemctl mask sshd; systemctl start sshd"]}, "preKubeadmCommands[0]", P),
        ({"preKubeadmCommands": ["systemctl unmask sshd"]}, "preKubeadmCommands[0]", P),
        ({"postKubeadmCommands": ["ssh-import-id gh:me"]}, "postKubeadmCommands[0]", P),
        ({"postKubeadmCommands": ["apt-get install dropbear"]}, "postKubeadmCommands[0]", P),
        (ignition("passwd:\n  users:\n    - name: core\n      ssh_authorized_keys:\n        - k\n"), CONFIG, D),
        (ignition("passwd:\n  users:\n    - password_hash: x\n"), CONFIG, D),
        (ignition("systemd:\n  units:\n    - name: sshd.socket\n"), CONFIG, P),
    ],
)
def test_what_lets_in(spec: dict[str, Any], field: str, certainty: Certainty) -> None:
    assert found(spec) == [(field, certainty)]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"users": [{"name": "capi", "sudo": "ALL", "sshAuthorizedKeys": []}]},
        {"users": [{"passwd": "$6$"}, {"passwd": "$6$", "lockPassword": True}, {"lockPassword": False}]},
        {"users": [{"passwd": "$6$", "lockPassword": "false"}]},
        {"files": [{"path": "/etc/ssh/node-access/trusted_user_ca_keys", "content": "ssh-ed25519 A"}]},
        {"files": [{"path": "/etc/ssh/node-access-sshd.conf", "content": "Port 2222"}]},
        {"files": [{"path": "/etc/sshx/a"}, {"path": "/root/authorized_keys.txt"}]},
        {"files": [{"path": "/etc/kubernetes/kubelet-authenticator.json", "content": "{}"}]},
        {"preKubeadmCommands": ["systemctl disable --now ssh.socket ssh.service", "systemctl mask sshd"]},
        {"preKubeadmCommands": [" sudo systemctl stop sshd.service\n", "hostnamectl set-hostname x"]},
        ignition("systemd:\n  units:\n    - name: kubelet.service\n"),
        ignition("# no_ssh_authorized_key: here\n"),
        {"users": "x", "files": [5, {"path": 5}], "preKubeadmCommands": [5, {}], "ignition": []},
    ],
)
def test_what_does_not(spec: dict[str, Any]) -> None:
    assert found(spec) == []


@pytest.mark.parametrize("kind", SPECS)
def test_where_the_spec_is(kind: str) -> None:
    assert found({"users": [{"sshAuthorizedKeys": ["k"]}]}, kind) == [("users[0].sshAuthorizedKeys", D)]
    assert list(kubeadm_findings(kind, {"users": [{"sshAuthorizedKeys": ["k"]}]})) == []


def test_no_key_and_no_password_is_shown() -> None:
    user = {"name": "u", "sshAuthorizedKeys": ["hunter2"], "passwd": "hunter2", "lockPassword": False}
    spec = {"users": [user], "preKubeadmCommands": ["echo root:hunter2 | chpasswd"]}
    findings = list(kubeadm_findings("KubeadmConfig", {"spec": {**spec, **ignition("password_hash: hunter2")}}))
    assert len(findings) == 4
    assert "hunter2" not in str(findings)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["users", "files", "path", "name", "content", "sshAuthorizedKeys", "ignition", "\n\x1b"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON, st.sampled_from(sorted(SPECS)))
def test_any_object_is_read(value: Any, kind: str) -> None:
    for one in kubeadm_findings(kind, {"spec": value}):
        assert len(one.says) < 400
        assert one.says.isprintable()
