"""Which of a cluster's two CAs the certificate of one API server comes from, while the CA changes."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Presented"]


class Presented(StrEnum):
    """The chain that one API server presents."""

    OLD = "Old"
    """The old CA issued the server's certificate."""
    OLD_LINKED = "OldLinked"
    """The same, and the link certificate follows, so that clients that know only the new CA accept it."""
    NEW = "New"
    """The new CA issued the server's certificate."""
    NEW_LINKED = "NewLinked"
    """The same, and the link certificate follows, so that clients that know only the old CA accept it."""
    FOREIGN = "Foreign"
    """Any other chain."""
