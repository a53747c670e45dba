#!/usr/bin/env python3
"""Make everything that a release consists of, from one commit, into one folder.

    make release VERSION=0.2.0

The files come from ``git archive``, all times are the commit's, and names are in order. Two machines with the same
interpreter, packages and libraries make the same release.

Nothing is uploaded. ``docs/development/releasing.md`` says who does what with the folder.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

NAME: Final = "capi-node-attestation"
ROOT: Final = Path(__file__).resolve().parents[2]
CHECKSUMS: Final = "SHA256SUMS"
NAMESPACE: Final = "capi-node-attestation-release"
"""Of the signature (``ssh-keygen -Y sign -n``): a signature for something else does not verify as one of a release."""
VERSION: Final = re.compile(r"(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})(?:rc([1-9]\d{0,5}))?", re.ASCII)
PARTS: Final = ("image", "node")
"""What needs more than Python, and may be left out by name."""
_TEXT_FOLDERS: Final = ("deploy", "docs", "signer/testing/pyproject.toml", "pyproject.toml", "Containerfile")
"""Where the version stands."""


class CannotRelease(Exception):
    """The message says what is wrong, and what to do."""


@dataclass(frozen=True, slots=True)
class Release:
    """What a release is made of."""

    version: str
    commit: str
    time: int
    """Of the commit, in seconds since 1970."""
    notes: str

    @property
    def chart_version(self) -> str:
        """As a semantic version: ``0.2.0rc1`` is ``0.2.0-rc.1``."""
        return re.sub(r"rc(\d+)$", r"-rc.\1", self.version)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the release; returns the exit code: 0 made, 1 a step failed, 2 wrong use."""
    options = _parser().parse_args(arguments)
    try:
        release = examine(options.version)
        if options.output.exists() and any(options.output.iterdir()):
            raise CannotRelease(f"{options.output} is not empty: a release is made into an empty folder")
        require_tools(options)
        options.output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            tree = source_tree(release, Path(folder) / "tree")
            make(release, tree, options)
        write_checksums(options.output)
        if options.signing_key is not None:
            sign(options.output / CHECKSUMS, options.signing_key)
    except CannotRelease as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"release: {error.cmd[0]} ended with {error.returncode}", file=sys.stderr)
        return 1
    for line in (options.output / CHECKSUMS).read_text().splitlines():
        print(line)
    if options.signing_key is None:
        print(f"release: {CHECKSUMS} is not signed: give --signing-key", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="release", description="Makes everything that a release consists of.")
    parser.add_argument("version", help="such as 0.2.0 or 0.2.0rc1; the commit's changelog must have its section")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="an empty folder")
    parser.add_argument(
        "--without", choices=PARTS, action="append", default=[], metavar="PART", help=f"leave out: {', '.join(PARTS)}"
    )
    parser.add_argument("--engine", default="podman", help="builds the image: podman or buildah (default: %(default)s)")
    parser.add_argument("--image-base", default="", metavar="IMAGE", help="BASE of the Containerfile, by digest")
    parser.add_argument(
        "--builder", default="https://localhost/by-hand", metavar="URI", help="names it in the provenance"
    )
    parser.add_argument(
        "--signing-key", type=Path, metavar="FILE", help="an SSH key, or the public key of one in an agent"
    )
    return parser


def require_tools(options: argparse.Namespace) -> None:
    """Look before the first step for what the last ones need.

    Raises:
        CannotRelease: something is missing.
    """
    if "image" not in options.without and shutil.which(options.engine) is None:
        fix = "install it, or give --without image"
        raise CannotRelease(f"{options.engine}, which builds the image, is not installed: {fix}")
    if options.signing_key is not None and not options.signing_key.is_file():
        raise CannotRelease(f"--signing-key {options.signing_key}: no such file")


def examine(version: str) -> Release:
    """What is released.

    Raises:
        CannotRelease: the version, the working tree or the changelog does not fit.
    """
    if not VERSION.fullmatch(version):
        raise CannotRelease(f"{version!r} is not a version such as 0.2.0 or 0.2.0rc1")
    if changed := git("status", "--porcelain"):
        raise CannotRelease(
            f"the working tree has changes, which no release can have: commit {changed.split()[1]} first"
        )
    commit, time = git("log", "-1", "--format=%H %ct").split()
    return Release(version, commit, int(time), notes_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version))


def notes_of(changelog: str, version: str) -> str:
    """The changelog's section of the version. A candidate has that of the version that it may become.

    Raises:
        CannotRelease: there is none.
    """
    wanted = version.partition("rc")[0]
    for section in re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        if title.split(" ")[0].strip("[]") == wanted and body.strip():
            return body.strip() + "\n"
    raise CannotRelease(f"CHANGELOG.md has no section `## {wanted}`: rename `## Unreleased`, and commit that")


def source_tree(release: Release, folder: Path) -> Path:
    """The commit's files, with the version in place of the development version."""
    folder.mkdir()
    archive = subprocess.run(["git", "-C", ROOT, "archive", release.commit], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
        packed.extractall(folder, filter="data")
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = (folder / "deploy/helm" / NAME / "Chart.yaml").read_text(encoding="utf-8")
    [chart_version] = re.findall(r"^version: (\S+)$", chart, re.MULTILINE)
    for path in text_files(folder):
        text = path.read_text(encoding="utf-8")
        replaced = text.replace(project["version"], release.version).replace(chart_version, release.chart_version)
        if replaced != text:
            path.write_text(replaced, encoding="utf-8")
    for path in folder.rglob("*"):
        os.utime(path, (release.time, release.time), follow_symlinks=False)
    return folder


def text_files(tree: Path) -> Iterator[Path]:
    """The files in which the version may stand."""
    for name in _TEXT_FOLDERS:
        path = tree / name
        for one in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if one.is_file() and one.suffix in {"", ".md", ".toml", ".yaml", ".yml", ".json", ".txt", ".tpl"}:
                yield one


def make(release: Release, tree: Path, options: argparse.Namespace) -> None:
    """Every part, in the order of what is quickest to fail."""
    output: Path = options.output
    copy_manifests(tree, output)
    pack_folder(tree / "deploy/helm" / NAME, NAME, output / f"{NAME}-{release.chart_version}.tgz", release.time)
    build_distributions(release, tree, output)
    write_bill_of_materials(release, tree, output)
    write_manual_pages(release, tree, output)
    if "node" not in options.without:
        make_node_archive(release, tree, output)
    if "image" not in options.without:
        make_image(release, tree, options)
    (output / "release-notes.md").write_text(release.notes, encoding="utf-8")
    write_provenance(release, options)


def copy_manifests(tree: Path, output: Path) -> None:
    """For clusterctl: the names that it looks for in a release."""
    shutil.copyfile(tree / "deploy/clusterctl/addon-components.yaml", output / "addon-components.yaml")
    shutil.copyfile(tree / "deploy/clusterctl/metadata.yaml", output / "metadata.yaml")


def pack_folder(folder: Path, name: str, target: Path, time: int) -> None:
    """A folder with the commit's times; ``helm package``, which packs charts alike, writes those of the moment."""
    with (
        target.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=time) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        add_files(archive, folder, f"{name}/", time)


def add_files(archive: tarfile.TarFile, folder: Path, prefix: str, time: int) -> None:
    """All files, with one time and no owner, in order; ``Chart.yaml`` first, where helm looks."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in sorted(files, key=lambda one: one != folder / "Chart.yaml"):
        entry = tarfile.TarInfo(f"{prefix}{path.relative_to(folder)}")
        entry.size, entry.mtime, entry.mode = path.stat().st_size, time, 0o644
        with path.open("rb") as content:
            archive.addfile(entry, content)


def build_distributions(release: Release, tree: Path, output: Path) -> None:
    """Wheel and sdist of both distributions, by build tools with the recorded hashes."""
    environment = new_environment(release, tree, "build")
    python = str(environment / "bin/python")
    pip = [sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check"]
    run([*pip, "install", "--require-hashes", "--requirement", "requirements/build.txt"], release, folder=tree)
    for project in (tree, tree / "signer" / "testing"):
        run([python, "-m", "hatchling", "build", "--directory", str(output.resolve())], release, folder=project)


def new_environment(release: Release, tree: Path, name: str) -> Path:
    """A virtual environment beside the tree."""
    folder = tree.parent / name
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)], release, folder=tree)
    return folder


def write_bill_of_materials(release: Release, tree: Path, output: Path) -> None:
    """The SBOM: the packages of this environment, which must be the tested ones."""
    path = output / f"{NAME}-{release.version}.cdx.json"
    run([sys.executable, "-m", "tests.supply_chain.bill_of_materials", str(path.resolve())], release, folder=ROOT)
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    development = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    text = json.dumps(document, indent=2).replace(development, release.version)
    path.write_text(text + "\n", encoding="utf-8")


def write_manual_pages(release: Release, tree: Path, output: Path) -> None:
    """The pages of all programs and commands."""
    folder = tree.parent / "man"
    run([sys.executable, "deploy/release/man.py", "--output", str(folder / "man1")], release, folder=tree)
    pack_folder(folder, "man", output / f"{NAME}-{release.version}-man.tar.gz", release.time)


def make_node_archive(release: Release, tree: Path, output: Path) -> None:
    """The node's programs for this machine type."""
    target = output / f"kubelet-authenticator-{release.version}-linux-{machine()}.tar.gz"
    environment = new_environment(release, tree, "node")
    extras = "tpm" if has_tpm_headers() else ""
    run(["requirements/install.sh", sys.executable, str(environment), extras], release, folder=tree)
    freeze = [str(environment / "bin/python"), "deploy/node/archive/freeze.py", "--output", str(target.resolve())]
    run(freeze, release, folder=tree)
    target.with_name(target.name + ".sha256").unlink()


def has_tpm_headers() -> bool:
    """Whether the TPM library can be built; without it the archive serves every other attestor."""
    found = shutil.which("pkg-config")
    return found is not None and subprocess.run([found, "--exists", "tss2-esys"], check=False).returncode == 0


def machine() -> str:
    """As Kubernetes and OCI name it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def make_image(release: Release, tree: Path, options: argparse.Namespace) -> None:
    """The controller's image as an OCI archive for this machine type."""
    engine: str = options.engine
    tag = f"localhost/{NAME}:{release.version}"
    base = [f"--build-arg=BASE={options.image_base}"] if options.image_base else []
    labels = [f"--build-arg=VERSION={release.version}", f"--build-arg=REVISION={release.commit}"]
    reproducible = [f"--timestamp={release.time}", "--format=oci"]
    run([engine, "build", "--quiet", *reproducible, *base, *labels, "--tag", tag, "."], release, folder=tree)
    layout = tree.parent / "image"
    run([engine, "save", "--quiet", "--format=oci-dir", "--output", str(layout), tag], release, folder=tree)
    # The engine's own archive has the times at which it was written.
    with tarfile.open(options.output / f"{NAME}-{release.version}-{machine()}.oci.tar", "w") as archive:
        add_files(archive, layout, "", release.time)


def write_provenance(release: Release, options: argparse.Namespace) -> None:
    """An in-toto statement (https://in-toto.io/Statement/v1) with SLSA's provenance, version 1, about every file."""
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in digests(options.output).items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{project_url()}/make-release/v1",
                "externalParameters": {"version": release.version, "without": sorted(options.without)},
                "internalParameters": {"python": platform.python_version(), "imageBase": options.image_base},
                "resolvedDependencies": [{"uri": f"git+{project_url()}", "digest": {"gitCommit": release.commit}}],
            },
            "runDetails": {"builder": {"id": options.builder}},
        },
    }
    text = json.dumps(statement, indent=2, sort_keys=True) + "\n"
    (options.output / f"{NAME}-{release.version}.intoto.json").write_text(text, encoding="utf-8")


def project_url() -> str:
    """Where the project's sources are: the one place that names it is pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    urls: Mapping[str, str] = project.get("urls", {})
    return urls.get("Source", f"https://localhost/{NAME}")


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 by file name, in order."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(CHECKSUMS))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def write_checksums(folder: Path) -> None:
    """As ``sha256sum --check`` reads them."""
    lines = [f"{digest}  {name}\n" for name, digest in digests(folder).items()]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def sign(path: Path, key: Path) -> None:
    """Sign the checksums, and with them every file (OpenSSH PROTOCOL.sshsig)."""
    signature = path.with_name(path.name + ".sig")
    signature.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", NAMESPACE, path], check=True)


def run(command: Sequence[str], release: Release, *, folder: Path) -> None:
    """Run a step with the commit's time as the only time."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(release.time), "PYTHONHASHSEED": "0"}
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=sys.stderr)


def git(*words: str) -> str:
    """What git says of this checkout."""
    done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
