#!/usr/bin/env python3
"""Write the archive of the node's programs: with their own Python interpreter and their own C library.

A node that unpacks it needs a Linux kernel and ``/bin/sh``, and neither Python nor a certain C library: the programs
start through the dynamic loader of the archive, which finds every library in the archive.

Run it with the interpreter of a virtual environment in which ``capi-node-attestation`` is installed:

    python -m venv build/node && build/node/bin/pip install '.[tpm]'
    build/node/bin/python deploy/node/archive/freeze.py --output node.tar.gz

The archive is for the machine type on which this program runs, and only for the folder that ``--prefix`` names. Two
runs with the same interpreter, libraries and packages write the same bytes.
"""

from __future__ import annotations

import argparse
import compileall
import gzip
import hashlib
import importlib.metadata
import json
import os
import platform
import py_compile
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "capi-node-attestation"
PREFIX: Final = "/opt/kubelet-authenticator"
PROGRAMS: Final = ("kubelet-authenticator", "node-access-containers", "node-access-sessions")
"""Those that run on nodes."""
MANUAL_PAGES: Final = Path(__file__).resolve().parents[2] / "release" / "man.py"
LEFT_OUT_PACKAGES: Final = frozenset({"signer", "pip", "setuptools", "wheel", "pkg_resources", "_distutils_hack"})
"""The management cluster's side, and what installs packages."""
LEFT_OUT_MODULES: Final = frozenset(
    {
        "test",
        "tests",
        "idlelib",
        "tkinter",
        "turtledemo",
        "turtle.py",
        "ensurepip",
        "lib2to3",
        "pydoc_data",
        "distutils",
    }
)
"""Of the standard library."""
LEFT_OUT_LIBRARIES: Final = re.compile(
    r"(?:_test|_xxtest|_ctypes_test|_tkinter|_sqlite3|_curses|_dbm|_gdbm|readline|nis)"
)
"""Of the standard library: what no program of a node needs, and what needs libraries of its own."""
LOADED_BY_NAME: Final = ("libgcc_s.so.1", "libtss2-tcti-device.so.0", "libnss_files.so.2", "libnss_dns.so.2")
"""Libraries that others open by name. Those that this system has are copied."""
_PT_INTERP: Final = 3
_ELF: Final = b"\x7fELF\x02\x01"
"""64 bits, little-endian: x86_64 and aarch64 (ELF, "ELF Header")."""
_FOUND: Final = re.compile(r"^\s*(\S+) => (/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)


class CannotFreeze(Exception):
    """The message says what is missing, and what to do."""


def main() -> int:
    """Write the archive; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Writes the archive of the node's programs with their own interpreter."
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="a .tar.gz")
    parser.add_argument(
        "--prefix", default=PREFIX, metavar="FOLDER", help="the folder on the node (default: %(default)s)"
    )
    options = parser.parse_args()
    try:
        if not re.fullmatch(r"(?:/[A-Za-z0-9._-]+)+", options.prefix):
            raise CannotFreeze(f"--prefix {options.prefix!r} is not an absolute path of letters, digits, ., _ and -")
        with tempfile.TemporaryDirectory() as folder:
            freeze(Path(folder), options.prefix)
            write_archive(Path(folder), options.prefix, options.output)
    except CannotFreeze as error:
        print(f"freeze.py: {error}", file=sys.stderr)
        return 2
    print(f"{options.output}: {options.output.stat().st_size / 1e6:.1f} MB for {options.prefix}")
    return 0


def freeze(root: Path, prefix: str) -> None:
    """Fill ``root``, which becomes ``prefix`` on the node."""
    modules = root / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    copy_standard_library(modules)
    copy_packages(modules / "site-packages")
    compile_all(root, prefix)
    (root / "libexec").mkdir()
    interpreter = root / "libexec" / "python"
    shutil.copyfile(Path(sys._base_executable).resolve(), interpreter)  # type: ignore[attr-defined]
    interpreter.chmod(0o755)
    loader = loader_of(interpreter)
    libraries = copy_libraries(root, loader, [interpreter, *sorted(modules.rglob("*.so*"))])
    write_programs(root, prefix, loader.name)
    write_manual_pages(root / "share" / "man" / "man1")
    write_contents(root, [loader, *libraries])


def copy_standard_library(modules: Path) -> None:
    """Copy what programs can use, without tests and graphical tools."""
    source = Path(sysconfig.get_path("stdlib"))

    def left_out(folder: str, names: list[str]) -> set[str]:
        top = Path(folder) == source
        return {
            name
            for name in names
            if name in ("__pycache__", "site-packages", "dist-packages")
            or (top and (name in LEFT_OUT_MODULES or name.startswith("config-")))
            or LEFT_OUT_LIBRARIES.match(name)
        }

    shutil.copytree(source, modules, ignore=left_out, symlinks=False, ignore_dangling_symlinks=True)
    built_in = Path(sysconfig.get_config_var("DESTSHARED"))
    if not (modules / "lib-dynload").exists():
        shutil.copytree(built_in, modules / "lib-dynload", ignore=left_out)


def copy_packages(packages: Path) -> None:
    """Copy the virtual environment's packages."""
    if sys.prefix == sys.base_prefix:
        raise CannotFreeze("run it with the interpreter of a virtual environment in which the programs are installed")
    source = Path(sysconfig.get_path("purelib"))
    if not (source / "authenticator").is_dir():
        raise CannotFreeze(f"{source} has no authenticator: install the project there, and not as editable")

    def left_out(folder: str, names: list[str]) -> set[str]:
        top = Path(folder) == source
        return {
            name
            for name in names
            if name == "__pycache__"
            or (top and (project_of(name) in LEFT_OUT_PACKAGES or name.endswith((".pth", ".virtualenv"))))
        }

    shutil.copytree(source, packages, ignore=left_out)
    for record in packages.glob("*.dist-info/RECORD"):  # it names files that are not here, and paths of this machine
        record.unlink()
    for origin in packages.glob("*.dist-info/direct_url.json"):
        origin.unlink()


def project_of(name: str) -> str:
    """The package's name, also for its ``dist-info``."""
    return name.split("-")[0].removesuffix(".py") if name.endswith(".dist-info") else name.removesuffix(".py")


def compile_all(root: Path, prefix: str) -> None:
    """Compile every module once: the node may not be able to write, and must not look at timestamps."""
    done = compileall.compile_dir(
        root / "lib",
        quiet=1,
        stripdir=str(root),
        prependdir=prefix,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        workers=1,
    )
    if not done:
        raise CannotFreeze("a module cannot be compiled; the lines above name it")


def loader_of(program: Path) -> Path:
    """The dynamic loader that the program names (ELF, segment PT_INTERP)."""
    data = program.read_bytes()
    if not data.startswith(_ELF):
        raise CannotFreeze(f"{program} is not an ELF program of 64 bits, little-endian")
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for at in range(start, start + size * count, size):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, at)
        if kind == _PT_INTERP:
            return Path(data[offset : offset + length].rstrip(b"\0").decode("ascii"))
    raise CannotFreeze(
        f"{program} names no dynamic loader: an interpreter that is linked statically cannot load libraries"
    )


def copy_libraries(root: Path, loader: Path, files: Iterable[Path]) -> list[Path]:
    """Copy every library that ``files`` need into ``lib``; returns where each stood."""
    found = dict(needed_by(loader, files))
    for name in LOADED_BY_NAME:
        for folder in library_folders(found.values()):
            if name not in found and (folder / name).exists():
                found[name] = folder / name
                found |= needed_by(loader, [folder / name])
    if not any(name.startswith("libc.so") for name in found):
        raise CannotFreeze("this interpreter has another C library than glibc: run it on a distribution with glibc")
    target = root / "lib"
    shutil.copyfile(loader.resolve(), target / loader.name)
    (target / loader.name).chmod(0o755)
    for name, path in found.items():
        shutil.copyfile(path.resolve(), target / name)
    return sorted(found.values())


def library_folders(libraries: Iterable[Path]) -> list[Path]:
    """Where this system keeps libraries."""
    return sorted({path.parent for path in libraries})


def needed_by(loader: Path, files: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Name and place of each library, as the loader finds them. Those beside the file itself stay where they are."""
    inside = Path(sysconfig.get_path("purelib")).resolve()
    for file in files:
        done = subprocess.run([str(loader), "--list", str(file)], capture_output=True, text=True, check=False)
        if "not found" in done.stdout:
            missing = [line.strip() for line in done.stdout.splitlines() if "not found" in line]
            raise CannotFreeze(f"{file.name} needs libraries that are not installed: {'; '.join(missing)}")
        for name, where in _FOUND.findall(done.stdout):
            path = Path(where)
            if name != loader.name and not any(one in path.resolve().parents for one in (inside, file.parent)):
                yield name, path


def programs() -> dict[str, str]:
    """The node's programs, each with the function that it runs."""
    found = importlib.metadata.distribution(DISTRIBUTION).entry_points.select(group="console_scripts")
    values = {one.name: one.value for one in found if one.name in PROGRAMS}
    if missing := sorted(set(PROGRAMS) - set(values)):
        raise CannotFreeze(f"this installation of {DISTRIBUTION} has no program {', '.join(missing)}")
    return values


def write_programs(root: Path, prefix: str, loader: str) -> None:
    """Write a script for each program. It isolates the interpreter from the environment and from the current folder."""
    (root / "bin").mkdir()
    start = (
        f"#!/bin/sh\nexec {prefix}/lib/{loader} --inhibit-cache --library-path {prefix}/lib "
        f"--argv0 {prefix}/bin/python3 {prefix}/libexec/python -B"
    )
    write_program(root / "bin" / "python3", f'{start} "$@"\n')
    for name, value in programs().items():
        module, _, function = value.partition(":")
        text = (
            f"import sys\n\nfrom {module} import {function}\n\n"
            f"sys.argv[0] = {f'{prefix}/bin/{name}'!r}\nsys.exit({function}())\n"
        )
        (root / "libexec" / f"{name}.py").write_text(text)
        write_program(root / "bin" / name, f'{start} -I {prefix}/libexec/{name}.py "$@"\n')


def write_program(path: Path, text: str) -> None:
    """Write an executable script."""
    path.write_text(text)
    path.chmod(0o755)


def write_manual_pages(folder: Path) -> None:
    """Write the pages of these programs and of their commands."""
    done = subprocess.run([sys.executable, MANUAL_PAGES, "--output", folder, *PROGRAMS], check=False)
    if done.returncode:
        raise CannotFreeze("the manual pages cannot be made; the lines above say why")


def write_contents(root: Path, libraries: Iterable[Path]) -> None:
    """Write ``share/contents.json``: what scanners need to know. Debian's libraries bring their licences along."""
    share = root / "share"
    packages = debian_packages(libraries)
    for name in packages:
        licence = Path("/usr/share/doc") / name.partition(":")[0] / "copyright"
        if licence.exists():
            (share / "licences").mkdir(exist_ok=True)
            shutil.copyfile(licence.resolve(), share / "licences" / name.partition(":")[0])
    contents = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "distributions": dict(sorted(distributions())),
        "debianPackages": packages,
    }
    (share / "contents.json").write_text(json.dumps(contents, indent=2, sort_keys=True) + "\n")


def distributions() -> Iterator[tuple[str, str]]:
    """Name and version of each installed package that is copied."""
    for one in importlib.metadata.distributions(path=[sysconfig.get_path("purelib")]):
        if one.name not in LEFT_OUT_PACKAGES:
            yield one.name, one.version


def debian_packages(libraries: Iterable[Path]) -> dict[str, str]:
    """The packages that own the libraries, with their versions; empty on other distributions."""
    if shutil.which("dpkg-query") is None:
        return {}
    paths = sorted({form for path in libraries for form in (str(path), str(path.resolve()))})
    found = subprocess.run(["dpkg-query", "--search", *paths], capture_output=True, text=True, check=False)
    names = sorted({name for line in found.stdout.splitlines() for name in line.rpartition(": ")[0].split(", ")})
    if not names:
        return {}
    command = ["dpkg-query", "--show", "--showformat=${binary:Package} ${Version}\n", *names]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(line.split(" ", 1) for line in shown.stdout.splitlines())


def write_archive(root: Path, prefix: str, output: Path) -> None:
    """Write a tar that is unpacked in ``/``: no owner, no times, names in order. The checksum stands beside it."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with (
        output.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(root.rglob("*")):
            name = f"{prefix.removeprefix('/')}/{path.relative_to(root)}"
            archive.add(path, name, recursive=False, filter=as_root)
    digest = hashlib.sha256(output.read_bytes()).hexdigest()
    output.with_name(output.name + ".sha256").write_text(f"{digest}  {output.name}\n")


def as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same for everyone that builds it."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry


if __name__ == "__main__":
    sys.exit(main())
