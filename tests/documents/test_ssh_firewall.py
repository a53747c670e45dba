"""The firewall's rule of ``docs/ssh-node.md``, in a network namespace: how many connections a network may have."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.documents.markdown import ROOT
from tests.support.access_node import IMAGE
from tests.support.binaries import MissingPart, skip_or_fail

pytestmark = pytest.mark.slow

PAGE: Final = (ROOT / "docs/ssh-node.md").read_text(encoding="utf-8")
RULE: Final = PAGE.split("## The firewall\n")[1].split("```text\n")[1].split("```")[0]
SOURCES: Final = {
    "one network": [f"2001:db8:1::{number:x}" for number in range(2, 42)],
    "another": ["2001:db8:2::2"],
    "one address": ["198.51.100.2"] * 40,
    "another address": ["198.51.100.3"],
}
CLIENT: Final = """
import json, socket, sys
listener = socket.create_server(("::", 2222), family=socket.AF_INET6, dualstack_ipv6=True, backlog=512)
held, admitted = [], {}
for name, sources in json.loads(sys.argv[1]).items():
    admitted[name] = 0
    for source in sources:
        server = "2001:db8::1" if ":" in source else "198.51.100.1"
        try:
            held.append(socket.create_connection((server, 2222), 20, (source, 0)))
            admitted[name] += 1
        except ConnectionRefusedError:
            pass
print(json.dumps(admitted))
"""


def in_a_namespace(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["unshare", "--net", "sh", "-ec", script, "sh", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def admitted(rule: Path) -> dict[str, int]:
    addresses = ["2001:db8::1", "198.51.100.1", *(one for sources in SOURCES.values() for one in sources)]
    script = "ip link set lo up\n" + "".join(
        f"ip address add {one}/{'128 nodad' if ':' in one else '32'} dev lo\n" for one in dict.fromkeys(addresses)
    )
    script += 'nft -f "$1"\nexec "$2" -c "$3" "$4"'
    done = in_a_namespace(script, str(rule), sys.executable, CLIENT, json.dumps(SOURCES))
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_the_rule_counts_a_network_as_one(tmp_path: Path) -> None:
    if os.geteuid() != 0 or in_a_namespace("nft list ruleset").returncode != 0:
        skip_or_fail(MissingPart("nft and a network namespace are needed: as root, run tests/provision/provision.sh"))
    rule = tmp_path / "node-access.nft"
    rule.write_text(RULE)
    assert admitted(rule) == {"one network": 32, "another": 1, "one address": 32, "another address": 1}
    rule.write_text(RULE.replace(" and ffff:ffff:ffff:ffff::", ""))
    assert admitted(rule)["one network"] == 40, "so it is for each address without the mask"


def test_the_rule_is_for_the_socket_of_the_image() -> None:
    socket = (IMAGE / "etc/systemd/system/node-access-ssh.socket").read_text()
    [port] = re.findall(r"^ListenStream=(\d+)$", socket, re.MULTILINE)
    [of_each] = re.findall(r"^MaxConnectionsPerSource=(\d+)$", socket, re.MULTILINE)
    assert set(re.findall(r"dport (\d+)", RULE)) == {port}
    assert set(re.findall(r"over (\d+)", RULE)) == {of_each}
