"""A base class of context managers that close themselves."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Self


class ClosedAtTheEnd(abc.ABC):
    """A context manager that closes itself."""

    __slots__ = ()

    @abc.abstractmethod
    def close(self) -> None:
        """Release everything."""

    @contextlib.contextmanager
    def closed_on_failure(self) -> Iterator[None]:
        """Close on an error in the block: during construction, no caller can close the object yet."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
