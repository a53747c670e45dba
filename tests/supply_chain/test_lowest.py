"""The lowest versions are those that pyproject.toml allows; where another package forces a higher one, that is told."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.supply_chain import lowest
from tests.supply_chain.dependencies import CONSTRAINTS, PRODUCT, constrained_versions
from tests.supply_chain.lowest import (
    EXIT_BOUND,
    EXIT_NOT_ASKED,
    EXIT_USAGE,
    EXTRAS,
    Lowest,
    NotAsked,
    Release,
    UnfitBound,
    Wish,
    ask_pip,
    direct_requirements,
    lower_bound,
    main,
    read_report,
    settle,
)

TESTED: Final = {"server": "3.9", "parser": "1.7", "helper": "5.1", "old-helper": "4.2", "pytest": "9.2"}
"""``server`` and ``parser`` are the product's own dependencies."""


def wishes(*product: str, tests: Iterable[str] = ("pytest>=8",)) -> list[Wish]:
    return [
        *(Wish(PRODUCT, Requirement(text)) for text in product),
        *(Wish("the tests", Requirement(text)) for text in tests),
    ]


def settled(
    wanted: list[Wish],
    index: Mapping[str, Iterable[str]] | None = None,
    installed: Mapping[str, Iterable[str]] | None = None,
    withdrawn: str = "",
) -> Lowest:
    """With an index that has every version; ``index`` says what some want, as ``installed`` does of tested ones."""

    def ask(versions: Mapping[str, Version]) -> Mapping[str, Release]:
        return {
            name: Release(version, tuple((index or {}).get(f"{name} {version}", ())), f"{name} {version}" == withdrawn)
            for name, version in versions.items()
        }

    return settle(wanted, TESTED, ask, lambda name: (installed or {}).get(name, ()))


def test_direct_dependencies_are_at_their_bounds_and_all_else_at_its_tested_version() -> None:
    found = settled(wishes("Server>=3.1,<4", "parser>=1.2"))
    lines = ["helper==5.1", "old-helper==4.2", "parser==1.2", "pytest==9.2", "server==3.1"]
    assert list(found.lines()) == lines
    assert list(found.report()) == ["2 direct dependencies, 2 of them at their lower bounds"]


def test_the_higher_of_two_bounds_holds() -> None:
    assert settled(wishes("server>=3.1", "server>=3.4")).direct == {"server": Version("3.4")}


def test_another_packages_minimum_raises_a_bound_and_is_named() -> None:
    found = settled(wishes("server>=3.1", "parser>=1.2"), {"server 3.1": ["parser<2,>=1.5"]})
    assert found.direct == {"server": Version("3.1"), "parser": Version("1.5")}
    assert list(found.report()) == [
        "parser is 1.5 and not 1.2: server 3.1 wants <2,>=1.5",
        "2 direct dependencies, 1 of them at their lower bounds",
    ]


def test_so_does_that_of_a_test_tool_and_of_what_it_brings_along() -> None:
    found = settled(wishes("server>=3.1", tests=["pytest[more]>=8"]), installed={"pytest": ['helper; extra == "more"']})
    assert found.direct == {"server": Version("3.1")}
    installed = {"pytest": ['helper; extra == "more"'], "helper": ["server>=3.3"], "old-helper": ["server>=3.8"]}
    found = settled(wishes("server>=3.1", tests=["pytest[more]>=8"]), installed=installed)
    assert found.direct == {"server": Version("3.3")}, "nothing brings old-helper along"
    assert str(found.raised["server"]) == "helper 5.1 wants >=3.3"


def test_the_highest_of_several_minimums_counts() -> None:
    index = {"server 3.1": ["parser>=1.5", "parser>=1.5"], "other 2": ["parser>=1.6", "parser>=1.4"]}
    found = settled(wishes("server>=3.1", "parser>=1.2", "other>=2"), index)
    assert found.direct["parser"] == Version("1.6")
    assert str(found.raised["parser"]) == "other 2 wants >=1.6"


def test_where_a_tool_wants_the_same_the_products_own_dependency_is_named() -> None:
    found = settled(wishes("server>=3.1", "parser>=1.2"), {"server 3.1": ["parser>=1.5"]}, {"pytest": ["parser>=1.5"]})
    assert str(found.raised["parser"]) == "server 3.1 wants >=1.5"


def test_a_version_that_was_raised_may_raise_others() -> None:
    index = {"server 3.1": ["parser>=1.5"], "parser 1.2": [], "parser 1.5": ["server>=3.2"], "server 3.2": []}
    found = settled(wishes("server>=3.1", "parser>=1.2"), index)
    assert found.direct == {"server": Version("3.2"), "parser": Version("1.5")}


def test_what_an_old_dependency_refuses_is_left_to_pip() -> None:
    found = settled(wishes("server>=3.1"), {"server 3.1": ["helper<5,>=4"]}, {"helper": ["server>=3.5"]})
    assert found.direct == {"server": Version("3.1")}, "what the refused version wants does not count"
    assert "helper" not in {line.partition("==")[0] for line in found.lines()}
    assert next(found.report()) == "helper is left to pip: server 3.1 wants <5,>=4"


def test_what_only_a_version_that_was_raised_refused_is_not_left() -> None:
    index = {"server 3.1": ["helper<5"], "server 3.2": ["helper"], "parser 1.2": ["server>=3.2"]}
    found = settled(wishes("server>=3.1", "parser>=1.2"), index)
    assert not found.left
    assert "helper==5.1" in list(found.lines())


@pytest.mark.parametrize(
    ("index", "withdrawn", "part"),
    [
        ({"server 3.1": ["parser<1.2"]}, "", "parser 1.2 does not do: server 3.1 wants <1.2"),
        ({"server 3.1": ["parser!=1.2"]}, "", "parser 1.2 does not do: server 3.1 wants !=1.2"),
        ({}, "parser 1.2", "parser 1.2 was withdrawn"),
    ],
    ids=["too new for another", "the one that another leaves out", "withdrawn"],
)
def test_a_bound_that_does_not_do(index: Mapping[str, Iterable[str]], withdrawn: str, part: str) -> None:
    with pytest.raises(UnfitBound, match=part):
        settled(wishes("server>=3.1", "parser>=1.2"), index, withdrawn=withdrawn)


@pytest.mark.parametrize(
    ("text", "version"), [("a>=1.2,<2", "1.2"), ("a~=1.4", "1.4"), ("a==1.5", "1.5"), ("a>=1,>=1.3", "1.3")]
)
def test_the_lowest_version(text: str, version: str) -> None:
    assert lower_bound(Requirement(text)) == Version(version)


@pytest.mark.parametrize("text", ["a", "a<2", "a>1", "a==1.*", "a>=2,<2", "a>=1,!=1"])
def test_no_lowest_version(text: str) -> None:
    with pytest.raises(UnfitBound, match="names no lowest version"):
        lower_bound(Requirement(text))


def test_our_own_dependencies_all_have_one() -> None:
    pyproject = tomllib.loads((CONSTRAINTS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    found = {requirement.name: lower_bound(requirement) for requirement in direct_requirements(pyproject)}
    declared = [*pyproject["project"]["dependencies"]]
    declared += [line for extra in EXTRAS for line in pyproject["project"]["optional-dependencies"][extra]]
    assert set(found) == {Requirement(line).name for line in declared}
    tested = constrained_versions(CONSTRAINTS.read_text(encoding="utf-8"))
    assert all(version <= Version(tested[name.lower()]) for name, version in found.items())


def test_markers_count() -> None:
    project = {
        "dependencies": ["a>=1", "b>=1; sys_platform == 'nowhere'"],
        "optional-dependencies": {**dict.fromkeys(EXTRAS, ()), EXTRAS[0]: ["c>=1"], "other": ["d>=1"]},
    }
    assert [each.name for each in direct_requirements({"project": project})] == ["a", "c"]


REPORT: Final = {
    "install": [
        {"metadata": {"name": "Some_Thing", "version": "1.0", "requires_dist": ["other>=2"]}, "is_yanked": False},
        {"metadata": {"name": "lone", "version": "2"}, "is_yanked": True},
    ]
}


def test_pips_report() -> None:
    assert read_report(json.dumps(REPORT)) == {
        "some-thing": Release(Version("1.0"), ("other>=2",)),
        "lone": Release(Version("2"), (), withdrawn=True),
    }


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"install": [{}]}', '{"install": 1}'])
def test_no_report(text: str) -> None:
    with pytest.raises(NotAsked):
        read_report(text)


class Pip:
    """Instead of the one that asks the index."""

    def __init__(self, report: str, code: int = 0, said: str = "") -> None:
        self.report, self.code, self.said = report, code, said
        self.command: list[str] = []

    def __call__(self, command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.command = command
        Path(command[command.index("--report") + 1]).write_text(self.report, encoding="utf-8")
        return subprocess.CompletedProcess(command, self.code, "", self.said)


def test_pip_is_asked_and_installs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pip = Pip(json.dumps(REPORT))
    monkeypatch.setattr(subprocess, "run", pip)
    assert set(ask_pip({"some-thing": Version("1"), "lone": Version("2")})) == {"some-thing", "lone"}
    assert {"--dry-run", "--no-deps", "--ignore-installed", "some-thing==1", "lone==2"} <= set(pip.command)


def test_pip_cannot_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "WARNING: slow\nERROR: No matching distribution found for lone==2\nnotice: another pip\n"
    monkeypatch.setattr(subprocess, "run", Pip("", 1, said))
    assert main([str(tmp_path / "lowest.txt")]) == EXIT_NOT_ASKED
    assert "not known: ERROR: No matching distribution found for lone==2\n" in capsys.readouterr().err
    monkeypatch.setattr(subprocess, "run", Pip("", 2))
    with pytest.raises(NotAsked, match="ended with 2"):
        ask_pip({})
    assert not list(tmp_path.iterdir())


def test_pip_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> None:
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(NotAsked, match="more than"):
        ask_pip({})


def test_the_file_holds_every_bound(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an index where nothing wants anything; the test tools' own minimums are those of what is installed."""
    monkeypatch.setattr(
        lowest, "ask_pip", lambda versions: {name: Release(version, ()) for name, version in versions.items()}
    )
    file = tmp_path / "lowest.txt"
    assert main([str(file)]) == 0
    versions = constrained_versions(file.read_text(encoding="utf-8"))
    pyproject = tomllib.loads((CONSTRAINTS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    for requirement in direct_requirements(pyproject):
        assert requirement.specifier.contains(versions[requirement.name.lower()])
    assert versions["pytest"] == constrained_versions(CONSTRAINTS.read_text(encoding="utf-8"))["pytest"]
    assert "direct dependencies" in capsys.readouterr().out


def test_a_bound_that_does_not_do_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        lowest, "ask_pip", lambda versions: {name: Release(version, (), True) for name, version in versions.items()}
    )
    assert main([str(tmp_path / "lowest.txt")]) == EXIT_BOUND
    assert "was withdrawn" in capsys.readouterr().err
    assert main([]) == EXIT_USAGE
