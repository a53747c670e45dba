"""The one line in ``~/.ssh/config``."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from node_access.client.errors import ClientFailed
from node_access.client.include import install, is_installed

PATTERN = "/home/a/.ssh/node-access/grants/*/config"
LINE = f'Include "{PATTERN}"\n'


def test_it_is_made(tmp_path: Path) -> None:
    file = tmp_path / ".ssh/config"
    assert install(file, PATTERN)
    assert file.read_text().endswith(LINE)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not install(file, PATTERN)
    assert is_installed(file, PATTERN)


@pytest.mark.parametrize(
    "text", ["Host *\n  User x\n", f"Host *\n  User x\n{LINE}", f"User x\n{LINE}", "# mine\nHost a"]
)
def test_it_comes_first_and_once(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    file.chmod(0o640)
    assert not is_installed(file, PATTERN)
    assert install(file, PATTERN)
    found = file.read_text()
    assert found.count(LINE) == 1
    assert found.index(LINE) < min(found.index(word) for word in ("Host", "User") if word in found)
    assert found.endswith(text.replace(LINE, ""))
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert not install(file, PATTERN)


def test_other_includes_may_come_before(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(f"# mine\nInclude other\n{LINE}Host *\n")
    assert not install(file, PATTERN)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("Host a\n")
    link = tmp_path / "config"
    link.symlink_to(tmp_path / "real")
    assert install(link, PATTERN)
    assert link.is_symlink()
    assert LINE in (tmp_path / "real").read_text()


def test_what_is_no_text_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ClientFailed):
        install(file, PATTERN)
    assert file.read_bytes() == b"\xff\xfe"
    assert not is_installed(file, PATTERN)
