"""Container images, made here without a registry: one docker-archive, which ``ctr images import`` reads.

Format of the archive: ``manifest.json`` lists each image's configuration and layers (moby, image/tarexport; the
configuration is the OCI image-spec's ``config.md``). Same files, same bytes.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from node_access.containers.tools import ACCOUNTS
from tests.support.binaries import MissingPart

PAUSE: Final = "local.test/pause:1"
SHELL: Final = "local.test/shell:1"
"""busybox, with a shell, ``tar`` and a web server; the account ``app`` has user ID 1000."""
DISTROLESS: Final = "local.test/distroless:1"
"""One static program, and nothing else: no shell, no library, no ``/etc/passwd``."""
FILES: Final = "local.test/files:1"
"""As ``SHELL``, with a server of SFTP and rsync."""
WEB_PORT: Final = 8080
"""What both images listen on, on the Pod's loopback interface alone."""
PAGE: Final = b"hello from the pod\n"
GREETING: Final = b"distroless\n"
"""The first bytes of each connection to the distroless image; it echoes what follows."""
APPLICATION_USER: Final = 1000
NONROOT_USER: Final = 65532
"""The user ID of distroless images."""

TOOLS: Final = "local.test/tools:1"
"""What an operator names as the tools image: a shell, a server of SFTP, and libnss_wrapper. It has no users."""
_INSTALL: Final = "run tests/provision/provision.sh containers"
_PROGRAMS: Final = Path(__file__).parent / "programs"
_APPLETS: Final = (
    *("sh", "cat", "ls", "id", "sleep", "nc", "stty", "tty", "env", "mkdir", "rm", "stat", "head", "wc", "sha256sum"),
    *("dd", "httpd", "ps", "tar", "echo", "true", "false", "kill", "setsid", "nohup", "touch", "test", "grep", "wget"),
    "tr",
)
_ACCOUNTS: Final = f"root:x:0:0::/:/bin/sh\napp:x:{APPLICATION_USER}:{APPLICATION_USER}::/home/app:/bin/sh\n"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class File:
    """A regular file of a layer. Folders above it are made."""

    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Image:
    """An image of one layer."""

    reference: str
    files: Mapping[str, File]
    """By path from the root, without a leading slash."""
    configuration: Mapping[str, Any]
    """``config`` of the OCI image configuration."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Symbolic links: what each points to, by path."""
    folders: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Folders that need an owner (user and group ID alike) and a mode."""


def standard_images() -> list[Image]:
    """The images that every node of the tests has.

    Raises:
        MissingPart: busybox or a C compiler is not installed.
    """
    busybox = File(find_busybox().read_bytes(), 0o755)
    shell = Image(
        SHELL,
        {"bin/busybox": busybox, "etc/passwd": File(_ACCOUNTS.encode()), "www/index.html": File(PAGE)},
        {
            "Cmd": ["/bin/httpd", "-f", "-p", f"127.0.0.1:{WEB_PORT}", "-h", "/www"],
            "Env": ["PATH=/bin:/usr/bin", "APPLICATION=shell"],
        },
        {f"bin/{applet}": "busybox" for applet in _APPLETS},
        {"tmp": (0, 0o1777), "home/app": (APPLICATION_USER, 0o755)},
    )
    programs = _with_libraries("/usr/lib/openssh/sftp-server", "/usr/bin/rsync", "/usr/bin/scp")
    return [
        Image(PAUSE, {"pause": _compiled("pause")}, {"Entrypoint": ["/pause"]}),
        Image(
            DISTROLESS,
            {"greeter": _compiled("greeter")},
            {"Entrypoint": ["/greeter"], "User": f"{NONROOT_USER}:{NONROOT_USER}"},
        ),
        shell,
        replace(shell, reference=FILES, files={**shell.files, **programs}),
        replace(shell, reference=TOOLS, files={"bin/busybox": busybox, **programs, **_with_libraries(str(ACCOUNTS))}),
    ]


def find_busybox() -> Path:
    """A busybox that needs no libraries.

    Raises:
        MissingPart: none is installed, or it is linked dynamically.
    """
    found = shutil.which("busybox")
    if found is None:
        raise MissingPart(f"busybox-static is not installed: {_INSTALL}")
    if b"/lib/ld" in Path(found).read_bytes()[:4096]:
        raise MissingPart(f"busybox is linked dynamically, so it does not run in an empty image: {_INSTALL}")
    return Path(found)


def archive(images: Iterable[Image]) -> bytes:
    """A docker-archive of these images."""
    entries: dict[str, bytes] = {}
    manifest = []
    for image in images:
        layer = _layer(image)
        identifier = hashlib.sha256(layer).hexdigest()
        configuration = _configuration(image, identifier)
        name = f"{hashlib.sha256(configuration).hexdigest()}.json"
        entries |= {name: configuration, f"{identifier}/layer.tar": layer}
        manifest.append({"Config": name, "RepoTags": [image.reference], "Layers": [f"{identifier}/layer.tar"]})
    entries["manifest.json"] = json.dumps(manifest).encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path, content in entries.items():
            _add(tar, path, File(content))
    return packed.getvalue()


def _configuration(image: Image, layer: str) -> bytes:
    document = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": dict(image.configuration),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
        "history": [{"created": "2026-01-01T00:00:00Z"}],
    }
    return json.dumps(document).encode()


def _layer(image: Image) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for folder in _folders(image):
            entry = tarfile.TarInfo(folder)
            entry.type = tarfile.DIRTYPE
            entry.uid, entry.mode = image.folders.get(folder, (0, 0o755))
            entry.gid = entry.uid
            tar.addfile(entry)
        for path, file in image.files.items():
            _add(tar, path, file)
        for path, target in image.links.items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return packed.getvalue()


def _folders(image: Image) -> list[str]:
    """All folders of a layer, each after the one it is in."""
    paths = (*image.files, *image.links, *image.folders)
    above = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
    return sorted((above | image.folders.keys()) - {"."})


def _add(tar: tarfile.TarFile, path: str, file: File) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(file.content), file.mode
    tar.addfile(entry, io.BytesIO(file.content))


def _with_libraries(*programs: str) -> dict[str, File]:
    """Programs of this machine, each with what it is linked to."""
    found: dict[str, File] = {}
    for program in programs:
        if not Path(program).exists():
            raise MissingPart(f"{program} is not installed: {_INSTALL}")
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True, timeout=60)
        for path in (program, *(word for word in listed.stdout.split() if word.startswith("/"))):
            found[path.lstrip("/")] = File(Path(path).read_bytes(), 0o755)
    return found


@functools.cache
def _compiled(name: str) -> File:
    """One of our C programs, linked statically."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise MissingPart(f"gcc is not installed: {_INSTALL}")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / name
        flags = ("-static", "-Os", "-s", "-Wall", "-Werror")
        command: list[str | Path] = [compiler, *flags, "-o", program, _PROGRAMS / f"{name}.c"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode != 0:
            raise MissingPart(f"gcc links no static program ({done.stderr.strip()}): {_INSTALL}")
        return File(program.read_bytes(), 0o755)
