"""The containers of this node, from containerd's own files, without its API.

containerd keeps the OCI bundle of each container in a folder that only root can write to. Its CRI plugin writes the
annotations ``io.kubernetes.cri.*`` (``pkg/cri/annotations``) after all that come from elsewhere; labels and
annotations of Pods are none of them. Names are read from there, and from nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from attestors.wire.ssh.container_names import Container, Pod
from attestors.wire.ssh.errors import SSHRefused
from node_access.containers.documents import Unreadable, member, parse_object, read_bytes, read_object

TASKS: Final = Path("/run/containerd/io.containerd.runtime.v2.task/k8s.io")
"""A folder for each container of Kubernetes, named by its ID."""
RUNTIME_ROOT: Final = Path("/run/containerd/runc/k8s.io")
"""``--root`` of runc and crun. Kata Containers and gVisor keep nothing there."""
MAXIMUM_CONTAINERS: Final = 4096
_ANNOTATION: Final = "io.kubernetes.cri."
_CONTAINER: Final = "container"
_MAXIMUM_PID_BYTES: Final = 16
_IDENTIFIER_CHARACTERS: Final = 64


class NotOpen(Exception):
    """No session may be opened in this container; the message is for the person who asked."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A container that containerd has, running or not."""

    identifier: str
    """64 hexadecimal digits."""
    folder: Path
    name: str
    """``NAMESPACE_POD_CONTAINER``."""
    specification: Mapping[str, Any] = field(repr=False)
    """Its ``config.json`` (OCI runtime specification)."""

    def process_id(self) -> int:
        """Of its first process.

        Raises:
            NotOpen: it has none yet.
        """
        try:
            text = read_bytes(self.folder / "init.pid", _MAXIMUM_PID_BYTES)
        except Unreadable:
            raise NotOpen("the container does not run") from None
        if not text.isdigit():
            raise NotOpen("the container's runtime is unknown")
        return int(text)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A folder that is no container with a name; ``why`` is for the journal."""

    identifier: str
    why: str


class NotAContainer(Exception):
    """The bundle is a Pod's sandbox: nobody logs in there."""


class Bundles:
    """containerd's folder of bundles. What is known of a folder stays so until another has its name."""

    def __init__(self, folder: Path = TASKS) -> None:
        self._folder = folder
        self._known: dict[tuple[str, int, int], Bundle | Skipped] = {}
        self._incomplete: set[str] = set()

    def all(self) -> tuple[list[Bundle], list[Skipped]]:
        """The containers; and what was skipped, each once."""
        known: dict[tuple[str, int, int], Bundle | Skipped] = {}
        skipped: list[Skipped] = []
        for name in self._names():
            try:
                key = _key(self._folder / name)
            except OSError:
                continue  # removed meanwhile, or not written yet
            found = self._known.get(key)
            if found is None:
                found = _read(self._folder / name)
                if isinstance(found, Skipped) and found.why:
                    skipped.append(found)
            known[key] = found
        self._known = known
        return [one for one in known.values() if isinstance(one, Bundle)], skipped

    def _names(self) -> list[str]:
        try:
            names = sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return []
        return [name for name in names if _is_identifier(name)][:MAXIMUM_CONTAINERS]


def parse_bundle(identifier: str, folder: Path, content: bytes) -> Bundle:
    """Parse a ``config.json``.

    Raises:
        NotAContainer: it is that of a Pod's sandbox.
        Unreadable: its names are missing, or have not the form of names in Kubernetes.
    """
    specification = parse_object(content, "config.json")
    annotations = member(specification, "annotations")
    kind, namespace, pod, container = (
        annotations.get(f"{_ANNOTATION}{name}")
        for name in ("container-type", "sandbox-namespace", "sandbox-name", "container-name")
    )
    if kind != _CONTAINER:
        raise NotAContainer
    if not (isinstance(namespace, str) and isinstance(pod, str) and isinstance(container, str)):
        raise Unreadable("config.json: containerd before 1.5 does not write the names of Pod and container")
    try:
        name = str(Container(namespace, Pod(pod), container).principal)
    except SSHRefused as refused:
        raise Unreadable(f"config.json: {refused.message}") from None
    return Bundle(identifier, folder, name, specification)


@dataclass(frozen=True, slots=True)
class Running:
    """A container in which a session may be opened."""

    bundle: Bundle
    process_id: int
    started: int
    """When the first process started, in clock ticks since boot: the process ID alone comes again."""
    runtime: str
    """``runc`` or ``crun``."""
    root: Path
    control_groups: Mapping[str, str]
    """Where the container's control groups are mounted, by controller; of version 2 by the empty name."""

    def require_same(self, proc: Path = Path("/proc")) -> None:
        """Require that the first process is still the one that was judged.

        Raises:
            NotOpen: the container has ended.
        """
        if _started(proc, self.process_id) != self.started:
            raise NotOpen("the container has ended")


def open_container(bundle: Bundle, root: Path = RUNTIME_ROOT, proc: Path = Path("/proc")) -> Running:
    """Judge a container.

    Raises:
        NotOpen: it does not run, or is of a kind in which nobody may open a session.
    """
    process_id = bundle.process_id()
    started = _started(proc, process_id)
    runtime, document = _state(root, bundle.identifier)
    try:
        recorded, groups = _runc_state(document) if runtime == "runc" else _crun_state(document, proc)
        _require_plain(bundle.specification)
    except Unreadable as unreadable:
        raise NotOpen(f"the container's state is not understood: {unreadable}") from None
    if recorded != process_id:
        raise NotOpen("the container's runtime is unknown: its files do not agree")
    _require_own_namespaces(proc, process_id)
    running = Running(bundle, process_id, started, runtime, root, groups)
    running.require_same(proc)
    return running


def shares_network_with_node(running: Running, proc: Path = Path("/proc")) -> bool:
    """Whether the Pod has the node's own network (``hostNetwork``)."""
    return _is_shared(proc, running.process_id, "net")


def _read(folder: Path) -> Bundle | Skipped:
    try:
        return parse_bundle(folder.name, folder, read_bytes(folder / "config.json"))
    except NotAContainer:
        return Skipped(folder.name, "")
    except Unreadable as unreadable:
        return Skipped(folder.name, str(unreadable))


def _key(folder: Path) -> tuple[str, int, int]:
    """containerd writes the file once, in one go, before it starts the container. Raises OSError."""
    found = os.stat(folder / "config.json", follow_symlinks=False)
    if found.st_size == 0:
        raise FileNotFoundError
    return folder.name, found.st_ino, found.st_mtime_ns


def _is_identifier(name: str) -> bool:
    return len(name) == _IDENTIFIER_CHARACTERS and set(name) <= set("0123456789abcdef")


def _state(root: Path, identifier: str) -> tuple[str, Mapping[str, Any]]:
    for runtime, name in (("runc", "state.json"), ("crun", "status")):
        path = root / identifier / name
        if path.exists():
            try:
                return runtime, read_object(path)
            except Unreadable as unreadable:
                raise NotOpen(f"the container's state is not understood: {unreadable}") from None
    raise NotOpen("the container is not run by runc or crun: sessions in Kata Containers and gVisor are not supported")


def _runc_state(document: Mapping[str, Any]) -> tuple[int, Mapping[str, str]]:
    paths = member(document, "cgroup_paths")
    return _number(document, "init_process_pid"), _absolute(paths)


def _crun_state(document: Mapping[str, Any], proc: Path) -> tuple[int, Mapping[str, str]]:
    """crun records one path for all hierarchies; the kernel says where they are."""
    process_id = _number(document, "pid")
    return process_id, control_groups_of(process_id, proc)


def control_groups_of(process_id: int, proc: Path = Path("/proc")) -> Mapping[str, str]:
    """The control groups of a process, as this machine has them mounted, by controller.

    Raises:
        Unreadable: the process has ended.
    """
    mounts: dict[str, str] = {}
    for line in read_bytes(proc / "self/mountinfo").decode("utf-8", "replace").splitlines():
        fields, _, system = line.partition(" - ")
        words, (kind, _, options) = fields.split(), system.split(" ", 2)
        if kind in ("cgroup", "cgroup2") and words[3] == "/":
            for name in [""] if kind == "cgroup2" else options.split(","):
                mounts.setdefault(name, words[4])
    found: dict[str, str] = {}
    for line in read_bytes(proc / f"{process_id}/cgroup").decode("utf-8", "replace").splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            if name in mounts and path != "/":
                found[name.removeprefix("name=")] = f"{mounts[name]}{path}"
    return _absolute(found)


def _number(document: Mapping[str, Any], name: str) -> int:
    found = document.get(name)
    if type(found) is not int or found <= 1:
        raise Unreadable(f"{name} is no process")
    return found


def _absolute(paths: Mapping[str, Any]) -> Mapping[str, str]:
    for path in paths.values():
        if not isinstance(path, str) or not path.startswith("/") or ".." in path.split("/"):
            raise Unreadable("a control group is no path")
    return dict(paths)


def _require_plain(specification: Mapping[str, Any]) -> None:
    """Nobody has tried sessions under SELinux, where the tools would need a label."""
    if member(specification, "process").get("selinuxLabel"):
        raise NotOpen("sessions in containers with an SELinux label are not supported")


def _require_own_namespaces(proc: Path, process_id: int) -> None:
    """The kernel's view: a Pod's specification can name namespaces of the node in several ways."""
    if _is_shared(proc, process_id, "pid"):
        raise NotOpen("the Pod shares the node's processes (hostPID): sessions there are not supported")
    if _is_shared(proc, process_id, "mnt"):
        raise NotOpen("the container shares the node's file systems: sessions there are not supported")
    if not _is_shared(proc, process_id, "user"):
        raise NotOpen("the Pod has a user namespace of its own (hostUsers: false): sessions there are not supported")


def _is_shared(proc: Path, process_id: int, kind: str) -> bool:
    """Whether a process is in the namespace of this program, or of the node's first process."""
    found = _namespace(proc, str(process_id), kind)
    return found in (_namespace(proc, "self", kind), _namespace(proc, "1", kind))


def _namespace(proc: Path, process: str, kind: str) -> tuple[int, int]:
    try:
        found = os.stat(proc / process / "ns" / kind)
    except OSError:
        raise NotOpen("the container has ended") from None
    return found.st_dev, found.st_ino


def _started(proc: Path, process_id: int) -> int:
    try:
        fields = read_bytes(proc / str(process_id) / "stat").rpartition(b")")[2].split()
    except Unreadable:
        raise NotOpen("the container has ended") from None
    if fields[0] == b"Z":
        raise NotOpen("the container has ended")
    return int(fields[19])


def find_running(bundles: list[Bundle], judge: Callable[[Bundle], Running]) -> Running:
    """The one container that runs among those with one name.

    Raises:
        NotOpen: none runs, or several do: an earlier Pod of the same name may be ending still.
    """
    running: list[Running] = []
    reasons: list[NotOpen] = []
    for bundle in bundles:
        try:
            running.append(judge(bundle))
        except NotOpen as reason:
            reasons.append(reason)
    if len(running) > 1:
        raise NotOpen("several containers have this name: an earlier Pod is ending; try again later")
    if running:
        return running[0]
    raise reasons[-1] if reasons else NotOpen("the container does not run")
