"""What an instance is told when it starts: cloud-init's ``#cloud-config``, written as JSON, which is YAML.

No shell reads any of it: files come as Base64, and commands as lists of words, all of them constants.
"""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC
from typing import Any, Final

from node_access.bastions.contract import LOGIN, Bastion
from node_access.bastions.sshd import authorized_keys, sshd_configuration

MAXIMUM_BYTES: Final = 16 * 1024
"""EC2's limit."""
PORT: Final = 22
_FOLDER: Final = "/etc/ssh/node-access"
_SERVICES: Final = ("sshd", "ssh")
_SERVICE: Final = """\
[Unit]
Description=Ends this bastion
[Service]
Type=oneshot
ExecStart=/usr/bin/systemctl --force poweroff
"""
_TIMER: Final = """\
[Unit]
Description=Ends this bastion, although nobody deletes it
[Timer]
OnCalendar={end}
OnBootSec={seconds}s
AccuracySec=1s
Persistent=true
[Install]
WantedBy=timers.target
"""
_SSHD: Final = f"""\
# After an image's own: EC2 Instance Connect names a command for keys here, which the file could not undo.
[Service]
ExecStart=
ExecStart=/usr/sbin/sshd -D -f {_FOLDER}/sshd_config
"""


def render(bastion: Bastion, seconds_left: int) -> bytes:
    """The user data; the same bytes for the same bastion and seconds.

    ``seconds_left`` is a second limit, should the instance's clock be wrong.
    """
    end = bastion.ends_by_itself_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    configuration = sshd_configuration(
        bastion,
        listen=(f"0.0.0.0:{PORT}", f"[::]:{PORT}"),
        host_key=f"{_FOLDER}/host_key",
        authorized_keys_file=f"{_FOLDER}/authorized_keys",
    )
    document: dict[str, Any] = {
        "users": [{"name": LOGIN, "shell": "/usr/sbin/nologin", "lock_passwd": True, "homedir": "/nonexistent"}],
        "disable_root": True,
        "ssh_pwauth": False,
        "ssh_deletekeys": False,
        "no_ssh_fingerprints": True,
        "write_files": [
            _file("/etc/systemd/system/node-access-end.service", _SERVICE.encode()),
            _file("/etc/systemd/system/node-access-end.timer", _TIMER.format(end=end, seconds=seconds_left).encode()),
            *(_file(f"/etc/systemd/system/{one}.service.d/zz-node-access.conf", _SSHD.encode()) for one in _SERVICES),
            _file(f"{_FOLDER}/host_key", bastion.host_key.private_file(), "0600"),
            # The ingress is the security group's: it changes, and this file does not.
            _file(f"{_FOLDER}/authorized_keys", authorized_keys(bastion).encode()),
            _file(f"{_FOLDER}/sshd_config", configuration.encode()),
        ],
        # The end comes first: whatever fails after it, the instance ends.
        "runcmd": [
            ["systemctl", "daemon-reload"],
            ["systemctl", "enable", "--now", "node-access-end.timer"],
            # cloud-init locks it with "!", and sshd without PAM lets nobody into a locked account.
            ["usermod", "--password", "*", LOGIN],
            ["install", "-m", "0644", f"{_FOLDER}/sshd_config", "/etc/ssh/sshd_config"],
            *(["systemctl", "restart", f"{one}.service"] for one in _SERVICES),
        ],
    }
    return b"#cloud-config\n" + json.dumps(document, sort_keys=True).encode("ascii") + b"\n"


def digest(bastion: Bastion) -> str:
    """Of what an instance cannot be told later: another digest needs another instance. The end is not in it."""
    stated = "\n".join(
        [authorized_keys(bastion), sshd_configuration(bastion, listen=(), host_key="", authorized_keys_file="")]
    )
    return hashlib.sha256(stated.encode() + bastion.host_key.private_file()).hexdigest()[:16]


def _file(path: str, content: bytes, mode: str = "0644") -> dict[str, str]:
    encoded = base64.b64encode(content).decode("ascii")
    return {"path": path, "owner": "root:root", "permissions": mode, "encoding": "b64", "content": encoded}
