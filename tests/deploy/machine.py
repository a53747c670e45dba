"""A machine in a scratch root. It applies its user data like cloud-init or Ignition, and runs the commands in it.

The root has the host's programs, units of the kubelet and of kubeadm, stand-ins for kubeadm and systemctl, and the real
kubelet-authenticator, as a link into the virtual environment.
Commands run in their own mount namespace with that root: absolute paths cannot lead out of it.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.deploy.embedded import ROOT
from tests.deploy.units import UNIT_FOLDER
from tests.support.binaries import MissingPart
from tests.support.yaml_documents import safe_load

ENVIRONMENT: Final = {
    "PATH": "/usr/local/bin:/opt/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "PYTHONDONTWRITEBYTECODE": "1",
}
HOSTNAME: Final = "node-1.example"
KUBELET: Final = "/usr/bin/kubelet"
PROGRAM: Final = "kubelet-authenticator"

KUBELET_UNIT: Final = "[Service]\nExecStart={kubelet}\nRestart=always\nRestartSec=10\n"
KUBEADM_DROP_IN: Final = """[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
--kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/sysconfig/kubelet
ExecStart=
ExecStart={kubelet} $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""
"""The assignments of 10-kubeadm.conf in kubeadm's packages."""

_JINJA: Final = re.compile(r"\{\{(.*?)\}\}|\{%|\{#")
STAND_INS: Final = {"kubeadm": "kubeadm", "systemctl": "systemctl"}
"""The modules of tests.deploy.stand_ins that replace programs."""


class UnusableUserData(ValueError):
    """cloud-init or Ignition would refuse the user data, or render an unintended template."""


@dataclass(frozen=True, slots=True)
class Landed:
    """A file as the user data specifies it."""

    content: bytes
    mode: int
    owner: str


@dataclass(frozen=True, slots=True)
class Machine:
    """A scratch root."""

    root: Path

    def boot_with_cloud_config(self, user_data: str) -> dict[str, Landed]:
        """Write the files and run the commands of a cloud-config; returns the files."""
        header, _, text = user_data.partition("#cloud-config\n")
        if header != "## template: jinja\n":
            raise UnusableUserData("not a cloud-config with a jinja header")
        document = safe_load(render_jinja(text))
        files = {file["path"]: _landed(file) for file in document["write_files"]}
        self._write(files)
        self.run("#!/bin/sh\n" + "\n".join(document["runcmd"]) + "\n")
        return files

    def boot_with_ignition(self, configuration: str) -> dict[str, Landed]:
        """Write the files of a Container Linux Config, and start kubeadm.service; returns the files."""
        document = safe_load(configuration)
        files = {file["path"]: _landed_by_ignition(file) for file in document["storage"]["files"]}
        self._write(files)
        [unit] = document["systemd"]["units"]
        if "ConditionPathExists=/etc/kubeadm.yml\n" not in unit["contents"] or not unit["enabled"]:
            raise UnusableUserData("kubeadm.service does not run exactly once")
        self.run("exec /etc/kubeadm.sh\n")
        return files

    def run(self, script: str) -> None:
        """Run a shell script with this root.

        Raises:
            MissingPart: the host does not allow another root.
        """
        inside = self.root / "run/script"
        inside.write_text(script, encoding="utf-8")
        enter = f"exec chroot {shlex.quote(str(self.root))} /bin/sh /run/script"
        done = subprocess.run(
            [*unshare(), "/bin/sh", "-ec", "\n".join([*mounts(self.root), enter]), "sh"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=ENVIRONMENT,
        )
        (self.root / "run/output").write_text(done.stdout + done.stderr, encoding="utf-8")

    def output(self) -> str:
        """What the last script printed."""
        return (self.root / "run/output").read_text(encoding="utf-8")

    def events(self) -> list[dict[str, Any]]:
        """The events that the stand-ins recorded."""
        path = self.root / "run/events.jsonl"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def path(self, absolute: str) -> Path:
        """A file of the root."""
        return self.root / absolute.lstrip("/")

    def joined(self) -> bool:
        """Whether kubeadm succeeded, according to Cluster API's sentinel file."""
        return self.path("/run/cluster-api/bootstrap-success.complete").exists()

    def command_lines(self, unit: str) -> list[list[str]]:
        """The command line of each start of a unit."""
        return [
            event["command"]
            for event in self.events()
            if event.get("unit") == unit and event.get("result") == "started"
        ]

    def _write(self, files: dict[str, Landed]) -> None:
        for name, file in files.items():
            path = self.path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)
            path.chmod(file.mode)
            if os.geteuid() == 0:
                user, _, group = file.owner.partition(":")
                os.chown(path, pwd.getpwnam(user).pw_uid, pwd.getpwnam(group).pw_gid)


def mounts(root: Path) -> Iterable[str]:
    """Commands that mount the host's programs into the root."""
    for folder in _host_folders():
        yield bind(Path(folder), root)
    quoted = shlex.quote(str(root))
    yield f"mount --bind {quoted}/programs {quoted}/usr/local/bin"


def bind(folder: Path, root: Path, at: str = "") -> str:
    """A command that mounts a folder of the host into the root, by default at the same path."""
    source, target = shlex.quote(str(folder)), shlex.quote(f"{root}{at or folder}")
    return f"mkdir -p {target} && mount --rbind {source} {target}"


def new_machine(root: Path, cluster_ca: bytes, *, programs: str = "/usr/local/bin") -> Machine:
    """A machine from an image: kubelet, kubeadm and (in ``programs``) kubelet-authenticator. It has never joined."""
    make_image(root, programs=programs)
    (root / "run/cluster-ca.crt").write_bytes(cluster_ca)
    return Machine(root)


def make_image(
    root: Path,
    *,
    programs: str = "/usr/local/bin",
    kubelet: str = KUBELET,
    stand_ins: Mapping[str, str] = STAND_INS,
) -> None:
    """Fill the scratch root of a machine."""
    units = root / UNIT_FOLDER
    (units / "kubelet.service.d").mkdir(parents=True)
    (units / "kubelet.service").write_text(KUBELET_UNIT.format(kubelet=kubelet), encoding="utf-8")
    drop_in = KUBEADM_DROP_IN.format(kubelet=kubelet)
    (units / "kubelet.service.d/10-kubeadm.conf").write_text(drop_in, encoding="utf-8")
    for folder in ("etc/kubernetes", "run", "tmp", "programs", "opt/bin", "var/lib"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        if Path(f"/{name}").is_symlink():
            (root / name).symlink_to(os.readlink(f"/{name}"))
    for name, module in stand_ins.items():
        _install(root / "programs" / name, f"-m tests.deploy.stand_ins.{module}")
    link = root / ("programs" if programs == "/usr/local/bin" else programs.lstrip("/")) / PROGRAM
    link.symlink_to(Path(sys.prefix) / "bin" / PROGRAM)
    interpreter = Path(sys.executable).resolve()
    if interpreter.parent == Path("/usr/local/bin"):  # because "programs" hides it
        shutil.copy(interpreter, root / "programs")


def render_jinja(text: str) -> str:
    """The text as cloud-init renders it. Only the host's name is available.

    Raises:
        UnusableUserData: the text has another template.
    """

    def value(match: re.Match[str]) -> str:
        if (match[1] or "").strip() != "ds.meta_data.local_hostname":
            raise UnusableUserData(f"cloud-init would render {match[0]}")
        return HOSTNAME

    return _JINJA.sub(value, text)


def _landed(file: dict[str, Any]) -> Landed:
    content = str(file["content"]).encode()
    encoding = file.get("encoding", "")
    if "base64" in encoding:
        content = base64.b64decode(content)
    if "gzip" in encoding:
        content = gzip.decompress(content)
    return Landed(content, int(file.get("permissions", "0644"), 8), file.get("owner", "root:root"))


def _landed_by_ignition(file: dict[str, Any]) -> Landed:
    if not isinstance(file["mode"], int) or "{{" in file["contents"]["inline"]:
        raise UnusableUserData(f"{file['path']}: Ignition needs an octal number as mode, and renders no templates")
    owner = f"{file.get('user', {}).get('name', 'root')}:{file.get('group', {}).get('name', 'root')}"
    return Landed(str(file["contents"]["inline"]).encode(), file["mode"], owner)


def _install(path: Path, arguments: str) -> None:
    environment = f"PYTHONPATH={shlex.quote(str(ROOT))}"
    path.write_text(f'#!/bin/sh\n{environment} exec {shlex.quote(sys.executable)} {arguments} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def _host_folders() -> list[str]:
    wanted = ["/usr", "/dev", str(ROOT), sys.prefix, sys.base_prefix]
    wanted += [f"/{name}" for name in ("bin", "sbin", "lib", "lib64") if not Path(f"/{name}").is_symlink()]
    return sorted(
        folder
        for folder in set(wanted)
        if Path(folder).is_dir() and not any(folder != other and Path(folder).is_relative_to(other) for other in wanted)
    )


def unshare() -> list[str]:
    """A command that runs another one in its own mount namespace.

    Raises:
        MissingPart: the host does not allow it.
    """
    command = ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",))]
    try:
        done = subprocess.run([*command, "true"], capture_output=True, text=True, check=False, timeout=10)
    except FileNotFoundError:
        raise MissingPart("unshare is not installed: apt-get install util-linux") from None
    if done.returncode:
        raise MissingPart("no mount namespace for a scratch root: run as root, or allow user namespaces")
    return command
