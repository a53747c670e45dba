from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import attestors
from attestors.contract import Security
from attestors.registry import (
    AttestorNotInstalled,
    AttestorUnavailable,
    InvalidAttestor,
    MissingExtra,
    Registry,
)
from attestors.wire.names import ENTRY_POINT_GROUP

MODULE = "attestor_for_registry_test"
NAMES_NOTHING = "fails when imported: (AttributeError|AssertionError)"  # before Python 3.13, and since

WORKING = """
from attestors.contract import AttestorDescription, Freshness, Security
class Attestor:
    description = AttestorDescription("example", Security.SECURE, ("v1",), Freshness.TIMESTAMP)
    def server_plugin(self, settings): ...
    def agent_plugin(self, settings): ...
plugin = Attestor()
number = 5
class Undescribed(Attestor):
    description = "example"
undescribed = Undescribed()
class Halved(Attestor):
    agent_plugin = None
halved = Halved()
"""


class Distribution(importlib.metadata.Distribution):
    """An installed distribution of which only the name and its extras are known."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def read_text(self, filename: str) -> str | None:
        extras = ("example", "tpm") if self._name != "without-extras" else ()
        return f"Name: {self._name}\n" + "".join(f"Provides-Extra: {extra}\n" for extra in extras)

    def locate_file(self, path: object) -> Path:
        return Path(str(path))


def entry_point(
    name: str = "example", value: str = f"{MODULE}:plugin", distribution: str | None = "example-distribution"
) -> importlib.metadata.EntryPoint:
    found = importlib.metadata.EntryPoint(name, value, ENTRY_POINT_GROUP)
    # As importlib.metadata itself does it; there is no public way to make an entry point with a distribution.
    vars(found).update(dist=Distribution(distribution) if distribution is not None else None)
    return found


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of an importable module, forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / f"{MODULE}.py"
    file.write_text(WORKING)
    yield file
    sys.modules.pop(MODULE, None)


def test_loads_an_attestor(module: Path) -> None:
    assert Registry([entry_point()]).load("example").description.provider == "example"


def test_knows_the_names_without_importing(module: Path) -> None:
    registry = Registry([entry_point(), entry_point("other", "no.such.module:plugin")])
    assert registry.providers == {"example", "other"}
    assert MODULE not in sys.modules
    registry.load("example")
    assert MODULE in sys.modules


def test_loads_once(module: Path) -> None:
    registry = Registry([entry_point()])
    first = registry.load("example")
    sys.modules.pop(MODULE)
    assert registry.load("example") is first


def test_one_that_cannot_be_imported_does_not_hinder_another(module: Path) -> None:
    registry = Registry([entry_point("broken", "no.such.module:plugin"), entry_point()])
    with pytest.raises(InvalidAttestor):
        registry.load("broken")
    assert registry.load("example").description.provider == "example"


@pytest.mark.parametrize(
    ("installed", "says"),
    [
        ((), "installed are: none"),
        ((entry_point("tpm"), entry_point("aws")), "installed are: aws, tpm"),
        ((entry_point("Example"),), "installed are: Example"),
    ],
)
def test_says_what_is_installed_instead(installed: tuple[importlib.metadata.EntryPoint, ...], says: str) -> None:
    with pytest.raises(AttestorNotInstalled, match=says):
        Registry(installed).load("example")


@pytest.mark.parametrize(
    ("value", "extra"),
    [
        pytest.param(f"{MODULE}:plugin", "[example]", id="extra-named-like-the-attestor"),
        pytest.param(f"{MODULE}:plugin [cloud,http]", "[cloud,http]", id="extras-of-the-entry-point"),
    ],
)
def test_a_missing_library_names_what_to_install(module: Path, value: str, extra: str) -> None:
    module.write_text("import library_that_is_not_here")
    with pytest.raises(MissingExtra) as missing:
        Registry([entry_point(value=value)]).load("example")
    assert str(missing.value) == (
        "attestor 'example' needs library_that_is_not_here, which is not installed: "
        f"pip install 'example-distribution{extra}'"
    )


def test_a_missing_library_of_a_plugin_names_what_to_install() -> None:
    error = ImportError("no tpm2_pytss", name="tpm2_pytss")
    missing = Registry([entry_point("tpm", distribution="capi-node-attestation")]).missing_extra("tpm", error)
    assert "needs tpm2_pytss" in str(missing)
    assert "pip install 'capi-node-attestation[tpm]'" in str(missing)


def test_a_missing_system_library_is_not_a_missing_package(module: Path) -> None:
    """As of tpm2-pytss without libtss2: ``pip install`` would answer that everything is installed."""
    text = "libtss2-esys.so.0: cannot open shared object file: No such file or directory"
    module.write_text(f"raise ImportError({text!r}, name='_libtpm2_pytss')")
    with pytest.raises(MissingExtra) as missing:
        Registry([entry_point()]).load("example")
    assert str(missing.value) == (
        "attestor 'example' needs the system library libtss2-esys.so.0, which is not installed: install the package of "
        "the operating system that contains it"
    )


def test_an_import_error_without_a_name_still_says_what_to_install(module: Path) -> None:
    module.write_text("raise ImportError('no shared library')")
    with pytest.raises(MissingExtra, match=r"needs a library, .*'example-distribution\[example\]'"):
        Registry([entry_point()]).load("example")


def test_an_extra_that_is_not_declared_is_not_named(module: Path) -> None:
    module.write_text("import library_that_is_not_here")
    with pytest.raises(MissingExtra, match="not installed: see how without-extras is installed"):
        Registry([entry_point(distribution="without-extras")]).load("example")


def test_a_module_that_fails_otherwise_is_that_attestors_fault(module: Path) -> None:
    module.write_text("raise RuntimeError('no device /dev/secret')")
    with pytest.raises(InvalidAttestor) as invalid:
        Registry([entry_point()]).load("example")
    assert str(invalid.value) == (
        f"attestor 'example' of example-distribution fails when imported: RuntimeError ({MODULE}.py, line 1)"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("from enum import Enum\nEnum.missing", r"AttributeError \(.*\.py, line 2\)$", id="AttributeError"),
        pytest.param("x = 1\nimport json\njson.loads('{')", r"JSONDecodeError \(.*\.py, line 3\)$", id="of-a-library"),
        pytest.param("x = 1\nx = = 2", r"SyntaxError \(.*\.py, line 2\)$", id="SyntaxError"),
        pytest.param("import sys\nsys.exit(3)", r"SystemExit \(.*\.py, line 2\)$", id="a-script"),
    ],
)
def test_says_where_the_attestors_module_fails(module: Path, text: str, says: str) -> None:
    """Not that the object "does not exist", which it would if the module came to it."""
    module.write_text(text)
    with pytest.raises(InvalidAttestor, match=f"fails when imported: {says}"):
        Registry([entry_point()]).load("example")


def test_a_name_that_another_version_has_is_no_missing_library(module: Path) -> None:
    module.write_text("from attestors.contract import FromTheFuture")
    with pytest.raises(MissingExtra) as missing:
        Registry([entry_point()]).load("example")
    assert str(missing.value) == (
        "attestor 'example' of example-distribution cannot be imported: cannot import name 'FromTheFuture' from "
        "'attestors.contract': do their versions fit each other?"
    )


@pytest.mark.parametrize(
    ("fails", "fault"), [("1 / 0", "ZeroDivisionError"), ("__import__('sys').exit(0)", "SystemExit")]
)
def test_a_description_that_fails_is_that_attestors_fault(module: Path, fails: str, fault: str) -> None:
    """It would end the task of every cluster that authorizes it, or the whole controller."""
    module.write_text(
        WORKING + f"class Failing(Attestor):\n    description = property(lambda self: {fails})\nfailing = Failing()"
    )
    with pytest.raises(InvalidAttestor, match=rf"its description fails: {fault} \(.*, line \d+\)$"):
        Registry([entry_point(value=f"{MODULE}:failing")]).load("example")


def test_two_distributions_with_the_same_name_are_refused(module: Path) -> None:
    """Whichever came first on the path would otherwise decide who verifies."""
    registry = Registry([entry_point(distribution="honest"), entry_point(distribution="impostor")])
    with pytest.raises(InvalidAttestor, match="honest and impostor: uninstall all but one"):
        registry.load("example")
    assert MODULE not in sys.modules


def test_two_modules_of_one_distribution_are_refused(module: Path) -> None:
    with pytest.raises(InvalidAttestor, match="uninstall all but one"):
        Registry([entry_point(), entry_point(value="other:plugin")]).load("example")


def test_the_same_distribution_found_twice_is_one(module: Path) -> None:
    assert Registry([entry_point(), entry_point()]).load("example").description.provider == "example"


@pytest.mark.parametrize("name", ["Example", "exa_mple", "-example", "example.com", ""])
def test_a_name_that_no_signer_can_have_is_refused(module: Path, name: str) -> None:
    with pytest.raises(InvalidAttestor, match="a provider name is"):
        Registry([entry_point(name)]).load(name)
    assert MODULE not in sys.modules


@pytest.mark.parametrize(
    ("value", "says"),
    [
        pytest.param(f"{MODULE}:missing", "does not exist", id="no-such-object"),
        pytest.param(f"{MODULE}:number", "is not an attestor", id="a-number"),
        pytest.param(MODULE, "is not an attestor", id="the-module"),
        pytest.param(":plugin", NAMES_NOTHING, id="no-module"),
        pytest.param("", NAMES_NOTHING, id="nothing"),
        pytest.param(f"{MODULE}:undescribed", "is not an attestor", id="description-of-another-type"),
        pytest.param(f"{MODULE}:Attestor", "is a class, and must be an object of it", id="the-class"),
        pytest.param(f"{MODULE}.plugin", "write package.module:object", id="a-dot-for-the-colon"),
        pytest.param("no.such.module:plugin", "no.such.module:plugin names no module", id="no-such-module"),
        pytest.param(f"{MODULE}:halved", "is not an attestor", id="half-an-attestor"),
    ],
)
def test_what_is_no_attestor_is_refused(module: Path, value: str, says: str) -> None:
    with pytest.raises(InvalidAttestor, match=says):
        Registry([entry_point(value=value)]).load("example")


def test_an_attestor_under_another_name_than_its_own_is_refused(module: Path) -> None:
    """Else a secure one's requests could be judged by an insecure one, or the other way round."""
    with pytest.raises(InvalidAttestor, match="'tpm' calls itself 'example'"):
        Registry([entry_point("tpm")]).load("tpm")


def test_a_refused_attestor_stays_refused(module: Path) -> None:
    registry = Registry([entry_point("tpm")])
    for _ in range(2):
        with pytest.raises(InvalidAttestor):
            registry.load("tpm")


def test_an_entry_point_without_a_distribution_is_refused_by_name_all_the_same() -> None:
    registry = Registry([entry_point(distribution=None), entry_point()])
    with pytest.raises(InvalidAttestor, match="an unknown distribution and example-distribution"):
        registry.load("example")


def test_every_refusal_is_an_unavailable_attestor() -> None:
    for kind in (AttestorNotInstalled, MissingExtra, InvalidAttestor):
        assert issubclass(kind, AttestorUnavailable)


class TestInstalled:
    """What is really installed here; the example is, by ``pip install --no-deps -e tests/attestor_plugin``."""

    def test_finds_the_projects_own(self) -> None:
        assert Registry().load("insecure").description.security is Security.INSECURE

    def test_finds_a_third_partys(self) -> None:
        attestor = Registry().load("keyed-mac")
        assert attestor.description.provider == "keyed-mac"
        assert attestor.description.security is Security.SECURE
        [found] = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name="keyed-mac")
        assert found.dist is not None
        assert found.dist.name == "node-attestation-keyed-mac"

    def test_nothing_in_the_project_names_the_third_party(self) -> None:
        sources = [file.read_text() for file in Path(attestors.__file__).parent.rglob("*.py")]
        assert sources
        assert not [source for source in sources if "keyed_mac" in source or "keyed-mac" in source]
