"""The instructions of the Containerfile. ``tests/e2e/test_container_image.py`` builds and runs the image."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from dataclasses import dataclass
from typing import Final

import pytest

from tests.deploy.packages import ROOT

FILE: Final = ROOT / "Containerfile"
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Instruction:
    """One instruction, with its lines joined."""

    name: str
    arguments: str


def instructions() -> list[Instruction]:
    text = re.sub(r"^#.*\n", "", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [Instruction(name, arguments) for name, _, arguments in (line.partition(" ") for line in lines)]


def stages() -> list[list[Instruction]]:
    """The instructions of each stage. The first list has those before the first FROM."""
    found: list[list[Instruction]] = [[]]
    for instruction in instructions():
        if instruction.name == "FROM":
            found.append([])
        found[-1].append(instruction)
    return found


def of(name: str, stage: list[Instruction]) -> list[str]:
    return [instruction.arguments for instruction in stage if instruction.name == name]


def test_both_stages_stand_on_a_base_that_can_be_a_digest() -> None:
    before, build, final = stages()
    [base] = of("ARG", before)
    assert re.fullmatch(r"BASE=python:3\.1[1-9]-slim", base)
    assert [*of("FROM", build), *of("FROM", final)] == ["${BASE} AS build", "${BASE}"]


def test_the_final_stage_is_unprivileged_and_starts_the_controller() -> None:
    final = stages()[-1]
    assert of("USER", final) == ["65532:65532"]
    [entry] = of("ENTRYPOINT", final)
    assert json.loads(entry) == ["node-attestation-controller"]
    assert "node-attestation-controller" in PROJECT["project"]["scripts"]
    assert of("RUN", final) == []
    assert of("ADD", final) == []
    assert of("COPY", final) == ["--from=build /opt/node-attestation /opt/node-attestation"]
    assert not any("PASSWORD" in one or "TOKEN" in one for one in of("ENV", final))


def test_labels_say_what_it_is() -> None:
    final = stages()[-1]
    labels = dict(word.split("=", 1) for text in of("LABEL", final) for word in shlex.split(text))
    assert labels["org.opencontainers.image.licenses"] == PROJECT["project"]["license"]
    assert f"VERSION={PROJECT['project']['version']}" in of("ARG", final)
    assert {"title", "description", "version", "revision"} <= {label.rpartition(".")[2] for label in labels}


def test_what_the_build_needs_is_copied_and_not_ignored() -> None:
    copied = {word for text in of("COPY", stages()[1]) for word in text.split()[:-1]}
    project = PROJECT["project"]
    needed = {"pyproject.toml", "constraints.txt", "requirements", project["readme"], *project["license-files"]}
    needed |= set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert copied == needed
    ignored = (ROOT / ".containerignore").read_text(encoding="utf-8").split("\n")
    assert {line[1:] for line in ignored if line.startswith("!")} == needed | {"deploy/node/files"}
    assert "*" in ignored
    assert ignored.index("!signer") < ignored.index("signer/testing"), "the last line that matches counts"


def test_only_files_with_recorded_hashes_are_installed_with_known_extras() -> None:
    build = stages()[1]
    [run] = of("RUN", build)
    assert " pip " not in run
    [install] = [part for part in run.split("&&") if "requirements/install.sh" in part]
    assert shlex.split(install)[1:] == [
        "requirements/install.sh",
        "python3",
        "/opt/node-attestation",
        "${EXTRAS}",
        "${ATTESTORS}",
    ]
    extras = next(one for one in of("ARG", build) if one.startswith("EXTRAS="))
    assert set(extras.removeprefix("EXTRAS=").split(",")) <= set(project_extras())


def project_extras() -> list[str]:
    return list(PROJECT["project"]["optional-dependencies"])


@pytest.mark.parametrize("word", ["latest", "http:", "https:"])
def test_nothing_floats(word: str) -> None:
    assert word not in FILE.read_text(encoding="utf-8")
