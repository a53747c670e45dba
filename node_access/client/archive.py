"""``python -m node_access.client.archive FILE``: this program as one file, for machines that have ``cryptography``."""

from __future__ import annotations

import shutil
import sys
import tempfile
import zipapp
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attestors.command_parser import CommandParser

_ROOT: Final = Path(__file__).parents[2]
_PARTS: Final = (
    "attestors/__init__.py",
    "attestors/command_parser.py",
    "attestors/standard_output.py",
    "attestors/wire/__init__.py",
    "attestors/wire/ssh",
    "node_access/__init__.py",
    "node_access/client",
)
_MAIN: Final = "node_access/client/__main__.py"
"""The one that zipapp writes drops the exit code."""
_INTERPRETER: Final = "/usr/bin/env python3"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; returns the exit code."""
    parser = CommandParser(
        prog="python -m node_access.client.archive",
        description="Writes node-access as one file, for machines that have Python and its package cryptography.",
    )
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="the file to write, such as node-access.pyz, or kubectl-node_access"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        for part in _PARTS:
            target = Path(folder) / part
            target.parent.mkdir(parents=True, exist_ok=True)
            if (_ROOT / part).is_dir():
                shutil.copytree(_ROOT / part, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(_ROOT / part, target)
        shutil.copy(_ROOT / _MAIN, Path(folder) / "__main__.py")
        zipapp.create_archive(folder, options.file, interpreter=_INTERPRETER, compressed=True)
    options.file.chmod(0o755)
    return 0


if __name__ == "__main__":
    sys.exit(main())
