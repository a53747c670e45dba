"""A node that is folders: containerd's bundles, the runtime's state, and ``/proc``."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from node_access.containers.finding import Bundle, Bundles, Running, open_container

IDENTIFIER: Final = "a" * 64
NAME: Final = "shop_web-0_app"
FIRST_PROCESS: Final = 4_000_001
STARTED: Final = 12345
ANNOTATIONS: Final = {
    "io.kubernetes.cri.container-type": "container",
    "io.kubernetes.cri.sandbox-namespace": "shop",
    "io.kubernetes.cri.sandbox-name": "web-0",
    "io.kubernetes.cri.container-name": "app",
}
PROCESS: Final[dict[str, Any]] = {
    "user": {"uid": 65532, "gid": 65532, "additionalGids": [65532]},
    "args": ["/server"],
    "env": ["PATH=/own", "APPLICATION=web", "TERM=none"],
    "cwd": "/srv",
    "capabilities": {},
    "noNewPrivileges": True,
    "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 10, "soft": 10}],
}


@dataclass(frozen=True, slots=True)
class MadeNode:
    """Its folders; ``proc`` has two processes of the node, and the container's."""

    folder: Path

    @property
    def tasks(self) -> Path:
        return self.folder / "tasks"

    @property
    def root(self) -> Path:
        return self.folder / "runc"

    @property
    def proc(self) -> Path:
        return self.folder / "proc"

    def add(self, identifier: str = IDENTIFIER, *, pid: int = FIRST_PROCESS, **changes: Any) -> Path:
        """A container; returns its bundle's folder."""
        bundle = self.tasks / identifier
        bundle.mkdir(parents=True)
        document = {"ociVersion": "1.0.2", "process": PROCESS, "annotations": ANNOTATIONS, **changes}
        (bundle / "config.json").write_text(json.dumps(document))
        (bundle / "init.pid").write_text(str(pid))
        self.keep_state(identifier, pid=pid)
        self.add_process(str(pid), own={"pid", "mnt", "net"})
        for process in ("self", "1"):
            self.add_process(process, own=set())
        return bundle

    def keep_state(self, identifier: str = IDENTIFIER, *, pid: int = FIRST_PROCESS, **changes: Any) -> None:
        """As runc does."""
        (self.root / identifier).mkdir(parents=True, exist_ok=True)
        groups = {"freezer": f"{self.folder}/groups/{identifier}"}
        document = {"init_process_pid": pid, "cgroup_paths": groups, **changes}
        (self.root / identifier / "state.json").write_text(json.dumps(document))

    def add_process(self, pid: str, *, own: set[str], started: int = STARTED, uids: str = "0 0 0 0") -> None:
        """With these namespaces of its own; the others are the node's."""
        folder = self.proc / pid
        (folder / "ns").mkdir(parents=True, exist_ok=True)
        for kind in ("pid", "mnt", "net", "user"):
            real = self.folder / f"namespace-{kind}-{pid if kind in own else 'node'}"
            real.touch()
            link = folder / "ns" / kind
            link.unlink(missing_ok=True)
            os.symlink(real, link)
        fields = " ".join(["S", *["0"] * 18, str(started), "0"])
        (folder / "stat").write_text(f"4000001 (a) b) {fields}\n")
        (folder / "status").write_text(f"Name:\ta\nUid:\t{uids}\n")

    def bundle(self) -> Bundle:
        """The only one."""
        [found], _ = Bundles(self.tasks).all()
        return found

    def opened(self) -> Running:
        """The only one, judged."""
        return open_container(self.bundle(), self.root, self.proc)
