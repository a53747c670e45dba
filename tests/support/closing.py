"""What a test starts ends with its ``with``."""

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
        """Leave nothing behind."""

    @contextlib.contextmanager
    def closed_on_failure(self) -> Iterator[None]:
        """Close itself where what is done in here fails: nobody else has it yet, to close it."""
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
