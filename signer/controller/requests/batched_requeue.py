"""What concerns thousands of requests at once: a few of them in each turn of the event loop, which is everybody's."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

AT_ONCE: Final = 100
"""Some five milliseconds, where each is glanced at."""


class BatchedRequeue:
    """Names to which the same is to be done, in their order: a few at once, the others of many in turns to come."""

    def __init__(self, do: Callable[[str], None]) -> None:
        """``do`` must not raise, and is told of names that are no longer there, too."""
        self._do = do
        self._names: OrderedDict[str, None] = OrderedDict()
        self._next: asyncio.Handle | None = None

    def __len__(self) -> int:
        return len(self._names)

    def add(self, names: Sequence[str]) -> None:
        """Few do not wait behind the many that others have added."""
        if len(names) <= AT_ONCE:
            for name in names:
                self._do(name)
            return
        self._names.update(dict.fromkeys(names))
        if self._next is None:
            self._do_some()

    def clear(self) -> None:
        """Nothing more is to be done."""
        self._names.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _do_some(self) -> None:
        self._next = asyncio.get_running_loop().call_soon(self._do_some) if len(self._names) > AT_ONCE else None
        for _ in range(min(AT_ONCE, len(self._names))):
            name, _ = self._names.popitem(last=False)
            self._do(name)
