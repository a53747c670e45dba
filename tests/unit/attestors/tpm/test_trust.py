"""Whom the operator trusts, as of now."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.contract import AttestorSettings, InvalidSettings
from attestors.tpm.endorsement import EndorsementAuthorities
from attestors.tpm.operator_files import OperatorFile, OperatorFileUnusable, OperatorFolder
from attestors.tpm.settings import TPMSettings
from attestors.tpm.trust import NotConfigured, parse_denied_keys, watched_authorities, watched_denied_keys
from tests.unit.attestors.tpm.endorsement.support import intermediate, root
from tests.unit.attestors.tpm.fixtures import ANY_KEYS

ONE: Final = "sha256:" + "1a" * 32
TWO: Final = "sha256:" + "2b" * 32


def denied(text: str | bytes) -> frozenset[str]:
    data = text if isinstance(text, bytes) else text.encode()
    return parse_denied_keys({"/list": data}, "deniedEndorsementKeysFile: /list")


class TestDenyList:
    @pytest.mark.parametrize(
        ("text", "keys"),
        [
            (ONE, {ONE}),
            (f"# stolen in M\u00fcnchen\n\n  {ONE} \r\n\t{TWO}\n", {ONE, TWO}),
            (f"{ONE}\n{ONE}\n", {ONE}),
            ("# nobody", set()),
            (f"#{ONE}\r\n# {TWO} was returned\n", set()),
            ("\n", set()),
        ],
        ids=["one", "more", "repeated", "comment", "commented out", "blank"],
    )
    def test_lines(self, text: str, keys: set[str]) -> None:
        assert denied(text) == keys

    @pytest.mark.parametrize(
        "line",
        [
            ONE[:-1],
            ONE + "0",
            ONE.upper(),
            ONE[7:],
            f"{ONE} # stolen",
            f"{ONE},{TWO}",
            f"{ONE} {TWO}",
            "zzz",
            "\ufeff#",
            f"X{ONE}",
            f"{ONE}X",
        ],
        ids=range(11),
    )
    def test_a_line_without_effect_is_refused(self, line: str) -> None:
        with pytest.raises(OperatorFileUnusable, match="KeysFile: /list: line 2 is neither") as unusable:
            denied(f"{TWO}\n{line}\n")
        assert line not in str(unusable.value)

    @pytest.mark.parametrize("between", [" ", "\r", "\u2028"], ids=["folded", "carriage", "separator"])
    def test_lost_line_ends_are_refused(self, between: str) -> None:
        """``keys: >`` in YAML makes one comment of a list that begins with one."""
        listed = between.join(("# Stolen in May, from the depot.", ONE, TWO))
        with pytest.raises(OperatorFileUnusable, match="/list: line 2, a comment, is several lines"):
            denied(f"{ONE}\n{listed}\n")

    @pytest.mark.parametrize("between", ["\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"])
    def test_line_ends_of_another_kind_behind_a_comment(self, between: str) -> None:
        """One key is behind it, which would be let in: the others are in lines of their own."""
        with pytest.raises(OperatorFileUnusable, match="/list: line 2, a comment, is several lines"):
            denied(f"{ONE}\n# Stolen in May.{between}{TWO}\n")

    def test_a_one_entry_list_that_lost_its_line_ends(self) -> None:
        rack = (f"{comment} {ONE}" for comment in ("# 7", "#X", "# # 7", "# 7 #", "## x"))
        for folded in (f"# Stolen in May, from the depot. {ONE}\n", f"\n# 7\t{ONE}", *rack):
            with pytest.raises(OperatorFileUnusable, match=r"nothing but comments, and line [1-3] ends with"):
                denied(folded)
        for meant in (
            f"# {ONE}\n",
            f"#{ONE}",
            f"## {ONE}",
            f"# # {ONE}",
            f"# {ONE} was found again\n",
            f"# was {ONE}\n{TWO}\n",
            f"# This one was found again: {ONE}.\n",
            f"\n\n# {ONE}\n\n",
        ):
            assert ONE not in denied(meant)

    def test_a_list_in_paragraphs_that_lost_the_line_ends_within_them(self) -> None:
        """Each key has a comment before it, and ``keys: >`` in YAML made one line of both."""
        for folded in (
            f"# Stolen in May, from the depot. {ONE}\n# Stolen in June. {TWO}\n",
            f"# Stolen machines\n# May chip:{ONE}\n",
            f"# {ONE}\n\n# Stolen in June. {TWO}",
        ):
            with pytest.raises(OperatorFileUnusable, match=r"nothing but comments, and line [1-3] ends with"):
                denied(folded)
        assert denied(f"# Returned in June: {ONE}\n{TWO}\n") == {TWO}

    def test_a_line_before_a_key_is_no_comment_without_its_sign(self) -> None:
        with pytest.raises(OperatorFileUnusable, match="/list: line 1 is neither sha256:"):
            denied(f"Stolen in May: {ONE}\n")

    def test_an_empty_file_is_just_being_written(self) -> None:
        with pytest.raises(OperatorFileUnusable, match="/list: is empty"):
            denied("")

    def test_what_is_no_text(self) -> None:
        with pytest.raises(OperatorFileUnusable, match="/list: is not UTF-8"):
            denied(b"\xff")

    @given(st.binary(max_size=200) | st.lists(st.sampled_from([ONE, "#", " ", "\n", "x"])).map("".join))
    def test_every_key_that_is_denied_has_a_line(self, data: bytes | str) -> None:
        try:
            keys = denied(data)
        except OperatorFileUnusable:
            return
        text = data if isinstance(data, str) else data.decode()
        lines = [line.strip(" \t\r") for line in text.split("\n")]
        assert keys == {line for line in lines if line and not line.startswith("#")}


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    made = tmp_path / "roots", tmp_path / "intermediates"
    for folder, content in zip(made, (root(), intermediate()), strict=True):
        folder.mkdir()
        (folder / "maker.der").write_bytes(content)
    return made


def operators(roots: Path, **more: object) -> dict[str, object]:
    return {"endorsementRootsFolder": str(roots), **more}


class TestFollowed:
    """Through the settings."""

    def test_authorities(self, folders: tuple[Path, Path]) -> None:
        trust = TPMSettings.parse(AttestorSettings(operators(folders[0]))).trust
        before = trust.current().authorities
        assert isinstance(before, EndorsementAuthorities)
        assert trust.current().authorities is before
        (folders[0] / "more.der").write_bytes(intermediate())
        after = trust.current().authorities
        assert isinstance(after, EndorsementAuthorities)
        assert (len(before.roots), len(after.roots)) == (1, 2)
        assert trust.last().authorities is after

    @pytest.mark.parametrize("which", [0, 1], ids=["roots", "intermediates"])
    def test_a_certificate_that_is_none_is_named(self, folders: tuple[Path, Path], which: int) -> None:
        settings = operators(folders[0], endorsementIntermediatesFolder=str(folders[1]))
        trust = TPMSettings.parse(AttestorSettings(settings)).trust
        (folders[which] / "b.pem").write_bytes(b"none")
        for ask in (trust.current, trust.last):
            with pytest.raises(
                OperatorFileUnusable, match=f"endorsement authorities: .*{folders[which].name}, file b.pem"
            ):
                ask()

    def test_denied_keys_of_settings_and_file(self, tmp_path: Path) -> None:
        file = tmp_path / "denied"
        file.write_text(f"{ONE}\n")
        settings = {**ANY_KEYS, "deniedEndorsementKeys": [TWO], "deniedEndorsementKeysFile": str(file)}
        trust = TPMSettings.parse(AttestorSettings(settings)).trust
        assert trust.current().denied == {ONE, TWO}
        file.write_text("# nobody\n")
        assert trust.last().denied == {ONE, TWO}
        assert trust.current().denied == trust.last().denied == {TWO}
        file.unlink()
        with pytest.raises(OperatorFileUnusable, match=f"deniedEndorsementKeysFile: {file}: No such file"):
            trust.current()

    def test_a_mistake_is_found_before_a_node_asks(self, tmp_path: Path) -> None:
        file = tmp_path / "denied"
        settings = AttestorSettings({**ANY_KEYS, "deniedEndorsementKeysFile": str(file)})
        with pytest.raises(InvalidSettings, match=r"deniedEndorsementKeysFile: .*No such file"):
            TPMSettings.parse(settings)
        file.write_text("x")
        with pytest.raises(InvalidSettings, match="line 1 is neither"):
            TPMSettings.parse(settings)


def test_all_clusters_share_what_they_read(folders: tuple[Path, Path], tmp_path: Path) -> None:
    roots = OperatorFolder("roots", str(folders[0]))
    more = OperatorFolder("intermediates", str(folders[1]))
    kept = watched_authorities(roots, more, False)
    assert watched_authorities(roots, more, False) is kept
    assert watched_authorities(roots, more, True) is not kept
    assert watched_authorities(roots, NotConfigured(), False) is not kept
    file = OperatorFile("file", str(tmp_path / "denied"))
    assert watched_denied_keys(file) is not watched_denied_keys(OperatorFile("file", str(tmp_path / "other")))
    assert watched_denied_keys(file) is watched_denied_keys(file)


def test_a_tenant_that_changes_its_policy_has_no_authority_parsed_again(folders: tuple[Path, Path]) -> None:
    """Each change drops the cluster's attestors before the next are made, and this cluster may be the only one. Parsing
    hundreds of authorities takes a tenth of a second, in which the controller decides nothing for anybody.
    """
    settings = AttestorSettings(operators(folders[0], deniedEndorsementKeysFile=str(folders[0].parent / "denied")))
    (folders[0].parent / "denied").write_text(f"{ONE}\n")
    before = TPMSettings.parse(settings).trust.current()
    gc.collect()  # nothing has the settings any more
    after = TPMSettings.parse(AttestorSettings(settings.operator, {"pcrs": {"sha256:7": ["00" * 32]}})).trust.current()
    assert after.authorities is before.authorities


def test_what_no_cluster_uses_any_more_is_there_for_the_next(tmp_path: Path) -> None:
    file = tmp_path / "denied"
    file.write_text(f"{ONE}\n")
    watched_denied_keys(OperatorFile("file", str(file))).current()
    gc.collect()
    assert watched_denied_keys(OperatorFile("file", str(file))).last() == {ONE}
