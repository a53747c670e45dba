"""One recorded release: where its parts are, and what form they have."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parents[2] / "fixtures" / "releases"
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Release:
    """The folder of one version."""

    folder: Path

    @property
    def version(self) -> str:
        """Such as ``0.2.0``."""
        return self.folder.name

    def requests(self) -> dict[str, Document]:
        """The recorded requests by name."""
        return {file.stem: read(file) for file in sorted((self.folder / "requests").glob("*.json"))}

    def objects(self, kind: str) -> list[Document]:
        """The objects of the management cluster, as it stored them."""
        found: list[Document] = read(self.folder / "objects.json")[kind]
        return found

    @property
    def setting(self) -> Document:
        """What the run had: the workload cluster's CA, the operator's settings, the time."""
        return read(self.folder / "setting.json")

    @property
    def node(self) -> Path:
        """The node's files: configuration and store."""
        return self.folder / "node"


def releases() -> list[Release]:
    """All that are recorded, oldest first."""
    folders = [folder for folder in FOLDER.iterdir() if folder.is_dir()]
    return [Release(folder) for folder in sorted(folders, key=lambda each: _order(each.name))]


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def read(file: Path) -> Document:
    """A JSON document."""
    document: Document = json.loads(file.read_text(encoding="utf-8"))
    return document


def form_of(value: Any) -> Any:
    """A document without its values: which keys it has, at every depth, and of which kind what stands there is."""
    if isinstance(value, dict):
        return {key: form_of(item) for key, item in sorted(value.items())}
    if isinstance(value, list):
        return [form_of(value[0])] if value else []
    return type(value).__name__
