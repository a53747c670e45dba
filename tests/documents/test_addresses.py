"""The addresses of the project stand in pyproject.toml; everything else has them from there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from signer.model.documentation import DOCUMENTATION_URL
from tests.documents.addresses import PLACES, SOURCE, WRITTEN, UnfitAddress, addresses, replaced, write
from tests.documents.markdown import ROOT
from tests.support.yaml_documents import safe_load

ADDRESSES: Final = addresses(ROOT, SOURCE)
GENERATED: Final = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
COPIES: Final = ("deploy/helm/capi-node-attestation/files/monitoring/alerts.yaml",)
"""Files that `make generate` writes as a whole from those that have the addresses."""
FORK: Final = {"Documentation": "https://fork.example.org/docs", "Source": "https://fork.example.org/docs/source"}


def host(address: str) -> str:
    return address.removeprefix("https://").partition("/")[0]


def test_no_other_file_names_them() -> None:
    words = [word for address in ADDRESSES.values() for word in ("-e", host(address))]
    command = ["git", "-C", str(ROOT), "grep", "--untracked", "-lIF", *words]
    named = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    by_hand = {
        name
        for name in named
        if any(host(one) in GENERATED.sub("", (ROOT / name).read_text(encoding="utf-8")) for one in ADDRESSES.values())
    }
    assert by_hand == {SOURCE, *PLACES, *COPIES}


def test_they_are_written_everywhere() -> None:
    """After a change of pyproject.toml: run make generate."""
    assert addresses(ROOT, WRITTEN) == ADDRESSES
    chart = safe_load((ROOT / "deploy/helm/capi-node-attestation/Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["home"], chart["sources"]) == (ADDRESSES["Documentation"], [ADDRESSES["Source"]])
    assert ADDRESSES["Documentation"] == DOCUMENTATION_URL
    [site] = re.findall(r"^site_url: (\S+)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert site == f"{ADDRESSES['Documentation']}/"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (SOURCE, *PLACES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def set_addresses(tree: Path, old: dict[str, str], new: dict[str, str]) -> None:
    project = tree / SOURCE
    project.write_text(replaced(project.read_text(encoding="utf-8"), old, new), encoding="utf-8")


def test_a_fork_changes_them_in_one_place(tree: Path) -> None:
    set_addresses(tree, dict(ADDRESSES), FORK)
    assert {str(path.relative_to(tree)) for path in write(tree)} == set(PLACES)
    for name in PLACES:
        text = (tree / name).read_text(encoding="utf-8")
        assert not any(host(one) in text for one in ADDRESSES.values()), name
    assert write(tree) == []
    set_addresses(tree, FORK, dict(ADDRESSES))
    write(tree)
    for name in PLACES:
        assert (tree / name).read_bytes() == (ROOT / name).read_bytes(), name


@pytest.mark.parametrize(
    ("documentation", "source"),
    [
        ("http://fork.example.org", "https://fork.example.org/source"),
        ("https://fork.example.org/", "https://fork.example.org/source"),
        ("https://fork.example.org/a b", "https://fork.example.org/source"),
        ("https://fork.example.org", "https://fork.example.org"),
    ],
    ids=["no TLS", "slash at the end", "blank", "the same"],
)
def test_what_cannot_be_written(tree: Path, documentation: str, source: str) -> None:
    set_addresses(tree, dict(ADDRESSES), {"Documentation": documentation, "Source": source})
    before = {name: (tree / name).read_bytes() for name in PLACES}
    with pytest.raises(UnfitAddress):
        write(tree)
    assert {name: (tree / name).read_bytes() for name in PLACES} == before
