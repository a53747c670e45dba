"""The image of tools containers, by which people get files and a shell where a container's own image has none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

MAXIMUM_IMAGE_CHARACTERS: Final = 512
_REFERENCE: Final = re.compile(
    r"[a-z0-9]+(?:[._:-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?",
    re.ASCII,
)


class InvalidToolsImage(ValueError):
    """No image has this name."""


@dataclass(frozen=True, slots=True)
class ToolsImage:
    """The name of an image (distribution ``reference/regexp.go``).

    Raises:
        InvalidToolsImage: the text is no name of an image.
    """

    name: str

    def __post_init__(self) -> None:
        if len(self.name) > MAXIMUM_IMAGE_CHARACTERS or _REFERENCE.fullmatch(self.name) is None:
            raise InvalidToolsImage("must be the name of an image, such as registry.example.com/tools:1")


@dataclass(frozen=True, slots=True)
class NoToolsImage:
    """The gateway adds no containers to pods."""


NamedToolsImage: TypeAlias = ToolsImage | NoToolsImage

__all__ = ["MAXIMUM_IMAGE_CHARACTERS", "InvalidToolsImage", "NoToolsImage", "NamedToolsImage", "ToolsImage"]
