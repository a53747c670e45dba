"""A registry of images on 127.0.0.1, Debian's ``docker-registry``, in the place of one that documents name."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.binaries import MissingPart
from tests.support.processes import Programs, free_port


@dataclass(frozen=True, slots=True)
class ImageRegistry:
    """A running registry without users."""

    address: str
    """``HOST:PORT``."""
    folder: Path

    def instead_of(self, name: str) -> Mapping[str, str]:
        """The environment in which podman pulls from this registry what is in the one called ``name``, and may push
        to this one.

        Source: containers-registries.conf(5), remapping of references, which holds for pulls alone.
        """
        file = self.folder / f"{name}.conf"
        tables = [f'prefix = "{prefix}"\nlocation = "{self.address}"' for prefix in (name, self.address)]
        file.write_text("".join(f"[[registry]]\n{table}\ninsecure = true\n" for table in tables))
        return {"CONTAINERS_REGISTRIES_CONF": str(file)}


@contextlib.contextmanager
def image_registry() -> Iterator[ImageRegistry]:
    """Start a registry with an empty store. Raises ``MissingPart``."""
    program = shutil.which("docker-registry")
    if program is None:
        raise MissingPart("docker-registry is not installed: run tests/provision/provision.sh image as root on Debian")
    with contextlib.closing(Programs("image-registry-")) as programs:
        port = free_port()
        settings = {
            "version": "0.1",
            "storage": {"filesystem": {"rootdirectory": str(programs.folder / "store")}},
            "http": {"addr": f"127.0.0.1:{port}"},
        }
        configuration = programs.folder / "config.yml"
        configuration.write_text(json.dumps(settings))  # JSON is YAML
        registry = programs.start("registry", [program, "serve", configuration])
        registry.wait_ready(lambda: _listens(port))
        yield ImageRegistry(f"127.0.0.1:{port}", programs.folder)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
