"""Appends lines to a stream, such as standard output. Each process begins a chain."""

from __future__ import annotations

import os
from collections.abc import Sequence

from signer.audit.chain import START, Link, new_chain, start_content
from signer.audit.kept_lines import LinesRemoved
from signer.audit.line_mac import LineSeals, NoKeyYet, with_mac
from signer.audit.lines import Content, encoded, kind_of


class StreamLines:
    """Writes lines to a pipe or terminal, which cannot be flushed to a disk. The reader has to store them."""

    def __init__(self, descriptor: int) -> None:
        self.seals: LineSeals = NoKeyYet()
        self._descriptor = descriptor
        self._link = new_chain()
        self._begun = self._unended = False

    @property
    def end(self) -> Link:
        """See :class:`Lines`."""
        return self._link

    @property
    def filled_files(self) -> int:
        """A stream is no file."""
        return 0

    @property
    def continues_earlier_chain(self) -> bool:
        """A stream begins its own."""
        return False

    def require_lines(self, line: Link, end: Link) -> None:
        """Lines of a stream cannot be read again, but only this process writes its chain."""
        if line.chain != self._link.chain or not line.sequence <= end.sequence <= self._link.sequence:
            raise LinesRemoved

    def begin_new_chain(self) -> None:
        """See :class:`Lines`."""
        self._link, self._begun = new_chain(), False

    def write(self, contents: Sequence[Content]) -> None:
        """See :class:`Lines`."""
        try:
            if not self._begun:
                self._put(START, start_content(""))
                self._begun = True
            for content in contents:
                self._put(kind_of(content), encoded(content))
        except OSError:
            self._begun = False  # the next write begins with a start line after the partial line
            raise

    def close(self) -> None:
        """Nothing to do: the stream stays open."""

    def _put(self, kind: str, content: bytes) -> None:
        line = with_mac(self._link.next_line(kind, content), self.seals)
        left = memoryview((b"\n" if self._unended else b"") + line + b"\n")
        self._unended = True
        while left:
            left = left[os.write(self._descriptor, left) :]
        self._unended = False
        self._link = self._link.after(line)
