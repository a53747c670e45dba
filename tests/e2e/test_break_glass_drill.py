"""The drill of ``docs/ssh.md``: its commands, as they stand, at two nodes with the image files. There is no API server
and no controller, and ``kubelet-authenticator`` never ran.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from attestors.wire.ssh.key_line import key_line, parse_key_file
from attestors.wire.ssh.keys import host_key
from attestors.wire.ssh.principals import HostName, parse_host_principal
from attestors.wire.ssh.signatures import public_key_of
from signer.authority.ssh.derivation import derive_user_authority, parse_master_secret
from signer.model.cluster import ClusterKey
from signer.ssh.client_files import (
    ClientSettings,
    ClusterHosts,
    ReachableNode,
    known_hosts,
    plain_known_hosts,
    ssh_config,
)
from tests.documents.markdown import ROOT
from tests.support.access_node import HOST, PROGRAM, AccessNode
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.openssh import private_key

pytestmark = pytest.mark.slow

PAGE: Final = (ROOT / "docs/ssh.md").read_text(encoding="utf-8")
CLUSTER: Final = ClusterKey("default", "production")
MASTER: Final = json.dumps({"key": base64.b64encode(bytes(range(32))).decode(), "salt": ""})
AUTHORITY: Final = derive_user_authority(parse_master_secret(MASTER.encode())).public_key
COMMAND: Final = (
    "import os, sys, time; from signer.entry import main; real = time.time; "
    "time.time = lambda: real() - int(os.environ.get('AHEAD', '0')); sys.exit(main())"
)
"""With a clock that nodes, in a test of that, are ahead of."""
NAMES: Final = ("worker-1", "worker-2")


def drill() -> list[str]:
    """The commands of the page's section, in their order."""
    section = PAGE.split("### Drill\n")[1].split("\n## ")[0]
    return [line for block in section.split("```console\n")[1:] for line in block.split("```")[0].splitlines()]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AccessNode, AccessNode]]:
    folder = tmp_path_factory.mktemp("drill")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)  # sshd's principals command runs as another user
    try:
        first = AccessNode(folder / "first")
        with first, AccessNode(folder / "second") as second:
            yield first, second
    except MissingPart as missing:
        skip_or_fail(missing)


@pytest.fixture
def kit(nodes: tuple[AccessNode, AccessNode], tmp_path: Path) -> Path:
    """A home folder with the kit: what ``node-access config --plain-keys`` writes, and the master secret."""
    written = tmp_path / "kit" / f"{CLUSTER.namespace}.{CLUSTER.name}"
    written.mkdir(parents=True)
    authorities = (host_key(public_key_of(private_key("ed25519", 90))),)
    configuration = known = ""
    for name, node in zip(NAMES, nodes, strict=True):
        node.reset()
        node.file("node_name").write_text(f"{name}\n")
        for file in ("trusted_user_ca_keys", "break_glass_ca_keys"):  # as the policy's trust has them
            node.file(file).write_text(f"{key_line(AUTHORITY)}\n")
        public = parse_key_file((node.root / "etc/ssh/ssh_host_ed25519_key.pub").read_bytes())
        reachable = ReachableNode(HostName(name), parse_host_principal(HOST), (host_key(public),))
        hosts = ClusterHosts(CLUSTER, authorities, (reachable,))
        configuration += ssh_config(hosts, ClientSettings(port=node.port), str(written / "known_hosts"))
        known = known or known_hosts(hosts)
        known += plain_known_hosts(hosts)
    (written / "config").write_text(configuration)
    (written / "known_hosts").write_text(known)
    (tmp_path / "master-secret.json").write_text(MASTER)
    program = tmp_path / "programs" / "node-attestation-controller"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{COMMAND}" "$@"\n')
    program.chmod(0o755)
    return tmp_path


def run(home: Path, line: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{home / 'programs'}:{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(home), "PATH": path, **variables}
    return subprocess.run(
        ["sh", "-c", line],
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**environment, "KUBECONFIG": "/nonexistent"},
    )


@pytest.mark.parametrize("daemon", ["runs", "is stopped"])
def test_the_drill(nodes: tuple[AccessNode, AccessNode], kit: Path, daemon: str) -> None:
    for node in nodes:
        node.machine.run(f"systemctl {'stop' if daemon == 'is stopped' else 'start'} {PROGRAM}.service")
    done = {}
    for number, line in enumerate(drill()):
        found = done[number] = run(kit, line.replace("~", str(kit)))
        assert found.returncode == 0, f"{line}\n{found.stdout}\n{found.stderr}\n{nodes[0].journal()[-3000:]}"
    printed = [done[number].stdout for number in sorted(done)]
    assert printed[0] == printed[1] == f"{key_line(AUTHORITY)}\n"
    uptimes = ["load average" in output for output in printed]
    assert uptimes == [False] * 4 + [True, True] + [False] * 3 + [False, True] + [False] * 2
    assert " UTC " in printed[12], "date"
    assert "WITHOUT END" in done[12].stderr
    assert "refused\n" in printed[9]
    assert "Permission denied (publickey)" in done[9].stderr
    assert not nodes[0].file("revoked_keys_offline").exists()


@pytest.mark.parametrize(
    ("ahead", "daemon"),
    [(3600, "runs"), (-120, "runs"), (400 * 86_400, "is stopped"), (-400 * 86_400, "runs")],
)
def test_a_node_whose_clock_is_wrong(nodes: tuple[AccessNode, AccessNode], kit: Path, ahead: int, daemon: str) -> None:
    """Nobody gets in but by the certificate for any clock. Here the signer's is wrong, and not the node's."""
    node = nodes[0]
    node.machine.run(f"systemctl {'stop' if daemon == 'is stopped' else 'start'} {PROGRAM}.service")
    host = f"-F {kit}/kit/{CLUSTER.namespace}.{CLUSTER.name}/config worker-1.production 'echo in; sleep 0.5'"
    sign = "node-attestation-controller ssh-sign --master-secret master-secret.json --principal root"
    refused = run(kit, f"{sign} --validity 1h --exec {host}", AHEAD=str(ahead))
    assert (refused.returncode, refused.stdout) == (255, "")
    assert "Permission denied (publickey)" in refused.stderr
    let_in = run(kit, f"{sign} --any-clock --exec {host}", AHEAD=str(ahead))
    assert (let_in.returncode, let_in.stdout) == (0, "in\n"), let_in.stderr + node.journal()[-3000:]
    if daemon == "runs":
        assert "logged in, until 60 minutes have passed" in node.journal()
