"""A release as ``make release`` makes it, in a clone whose changelog has the version's section."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.helm import REGISTRY, run_helm
from tests.support.yaml_documents import safe_load, safe_load_all

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parents[2]
VERSION: Final = "0.2.0"
AUTHOR: Final = ("-c", "user.name=Release", "-c", "user.email=release@example.invalid")


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "deploy/release/release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["release"] = module
    spec.loader.exec_module(module)
    return module


def git(clone: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", clone, *AUTHOR, *words], capture_output=True, text=True, check=True)
    return done.stdout


def run(clone: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, clone / "deploy/release/release.py", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This commit, with a section of the changelog for the version."""
    folder = tmp_path_factory.mktemp("release") / "clone"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", ROOT.as_uri(), folder], check=True, capture_output=True)
    changelog = folder / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("## Unreleased", f"## {VERSION} - 2026-12-01", 1))
    git(folder, "commit", "--quiet", "--all", "--message", f"Release {VERSION}")
    return folder


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "release"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture(scope="module")
def release(clone: Path, key: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("tpm2_pytss") is None:
        skip_or_fail(MissingPart("the SBOM lists tpm2-pytss, which is not installed: run make test, which builds it"))
    folder = tmp_path_factory.mktemp("made") / VERSION
    without = ("--without", "image", "--without", "node")  # which tests of their own make
    done = run(clone, VERSION, "--output", folder, *without, "--signing-key", key)
    assert done.returncode == 0, done.stderr
    return folder


def test_it_has_every_file_under_its_version(release: Path) -> None:
    assert sorted(path.name for path in release.iterdir()) == [
        "SHA256SUMS",
        "SHA256SUMS.sig",
        "addon-components.yaml",
        "capi-node-attestation-0.2.0-man.tar.gz",
        "capi-node-attestation-0.2.0.cdx.json",
        "capi-node-attestation-0.2.0.intoto.json",
        "capi-node-attestation-0.2.0.tgz",
        "capi_node_attestation-0.2.0-py3-none-any.whl",
        "capi_node_attestation-0.2.0.tar.gz",
        "capi_node_attestation_testing-0.2.0-py3-none-any.whl",
        "capi_node_attestation_testing-0.2.0.tar.gz",
        "metadata.yaml",
        "release-notes.md",
    ]


def test_no_file_names_the_development_version(release: Path) -> None:
    development = re.compile(rb"0\.2\.0\.?-?dev")
    with tarfile.open(release / "capi-node-attestation-0.2.0-man.tar.gz") as packed:
        [head] = packed.extractfile("man/man1/node-access.1").readlines()[:1]  # type: ignore[union-attr]
    assert head == b'.TH "NODE\\-ACCESS" 1 "" "capi\\-node\\-attestation 0.2.0"\n'
    for name in ("addon-components.yaml", "capi-node-attestation-0.2.0.cdx.json"):
        assert development.search((release / name).read_bytes()) is None, name
    with zipfile.ZipFile(release / "capi_node_attestation_testing-0.2.0-py3-none-any.whl") as wheel:
        metadata = wheel.read("capi_node_attestation_testing-0.2.0.dist-info/METADATA").decode()
    assert "Requires-Dist: capi-node-attestation[controller]==0.2.0\n" in metadata


def test_helm_takes_the_chart(release: Path) -> None:
    try:
        text = run_helm(
            [
                "template",
                "name",
                "--namespace",
                "node-attestation-system",
                str(release / "capi-node-attestation-0.2.0.tgz"),
            ],
            values={"image": {"registry": REGISTRY}},
        )
    except MissingPart as missing:
        skip_or_fail(missing)
    [deployment] = [one for one in safe_load_all(text) if one and one["kind"] == "Deployment"]
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == f"{REGISTRY}/capi-node-attestation:0.2.0"


def test_clusterctl_finds_its_two_files(release: Path) -> None:
    components = list(safe_load_all((release / "addon-components.yaml").read_text()))
    labels = [
        one["metadata"].get("labels", {}).get("app.kubernetes.io/version") for one in components if one is not None
    ]
    assert {label for label in labels if label is not None} == {VERSION}
    series = safe_load((release / "metadata.yaml").read_text())["releaseSeries"]
    assert {(one["major"], one["minor"]) for one in series} >= {(0, 2)}


def verified(folder: Path, key: Path) -> bool:
    """As the page says: the signature, then every file."""
    signers = folder.parent / "signers"
    signers.write_text(f"release {key.with_suffix('.pub').read_text()}")
    words = ["-I", "release", "-n", "capi-node-attestation-release", "-s", str(folder / "SHA256SUMS.sig")]
    with (folder / "SHA256SUMS").open("rb") as sums:
        signed = subprocess.run(["ssh-keygen", "-Y", "verify", "-f", signers, *words], stdin=sums, capture_output=True)
    summed = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, capture_output=True)
    return signed.returncode == 0 and summed.returncode == 0


def test_the_signature_covers_every_file(release: Path, key: Path) -> None:
    assert verified(release, key)
    listed = {line.split("  ")[1] for line in (release / "SHA256SUMS").read_text().splitlines()}
    assert listed == {path.name for path in release.iterdir()} - {"SHA256SUMS", "SHA256SUMS.sig"}
    for name in ("SHA256SUMS", "release-notes.md"):
        path = release / name
        before = path.read_bytes()
        path.write_bytes(before + b"\n")
        assert not verified(release, key), name
        path.write_bytes(before)


def test_the_provenance_names_the_commit_and_the_files(release: Path, clone: Path) -> None:
    statement = json.loads((release / "capi-node-attestation-0.2.0.intoto.json").read_text())
    built = statement["predicate"]["buildDefinition"]
    assert built["resolvedDependencies"][0]["digest"] == {"gitCommit": git(clone, "rev-parse", "HEAD").strip()}
    assert built["externalParameters"] == {"version": VERSION, "without": ["image", "node"]}
    sums = {tuple(line.split("  ")) for line in (release / "SHA256SUMS").read_text().splitlines()}
    subjects = {(one["digest"]["sha256"], one["name"]) for one in statement["subject"]}
    assert sums - subjects == {one for one in sums if one[1].endswith(".intoto.json")}


def test_the_same_commit_makes_the_same_bytes(release: Path, clone: Path, tmp_path: Path) -> None:
    done = run(clone, VERSION, "--output", tmp_path / "again", "--without", "image", "--without", "node")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again" / "SHA256SUMS").read_text() == (release / "SHA256SUMS").read_text()
    assert "SHA256SUMS is not signed" in done.stderr


def test_the_sources_have_nothing_that_git_does_not_know(release: Path, clone: Path) -> None:
    with tarfile.open(release / "capi_node_attestation-0.2.0.tar.gz") as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert names - {"PKG-INFO"} <= set(git(clone, "ls-files").splitlines())


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.2", "is not a version such as 0.2.0"),
        ("v0.2.0", "is not a version such as 0.2.0"),
        ("0.2.0.dev0", "is not a version such as 0.2.0"),
        ("0.3.0", "CHANGELOG.md has no section `## 0.3.0`"),
    ],
)
def test_a_version_that_is_refused(clone: Path, tmp_path: Path, version: str, said: str) -> None:
    done = run(clone, version, "--output", tmp_path / "made")
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "made").exists()


def test_a_changed_tree_and_a_full_folder_are_refused(clone: Path, release: Path, tmp_path: Path) -> None:
    stray = clone / "stray.txt"
    stray.write_text("")
    done = run(clone, VERSION, "--output", tmp_path / "made")
    stray.unlink()
    assert (done.returncode, "the working tree has changes" in done.stderr) == (2, True), done.stderr
    done = run(clone, VERSION, "--output", release)
    assert (done.returncode, "is not empty" in done.stderr) == (2, True), done.stderr


def test_what_is_missing_is_named(clone: Path, tmp_path: Path) -> None:
    words = (VERSION, "--output", tmp_path / "made")
    done = run(clone, *words, "--engine", "no-such-engine")
    assert (done.returncode, "no-such-engine, which builds the image, is not installed" in done.stderr) == (2, True)
    done = run(clone, *words, "--without", "image", "--signing-key", tmp_path / "no-such-key")
    assert (done.returncode, "no-such-key: no such file" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "made").exists()


def test_a_candidate_has_the_notes_of_what_it_may_become() -> None:
    notes_of = script().notes_of
    text = "# Changelog\n\n## Unreleased\n\nlater\n\n## 0.2.0 - 2026-12-01\n\n- this\n\n## 0.1.0\n\n- that\n"
    assert notes_of(text, "0.2.0rc1") == notes_of(text, "0.2.0") == "- this\n"
    assert script().Release("0.2.0rc1", "", 0, "").chart_version == "0.2.0-rc.1"
