"""What an API server presents while its CA is rotated."""

from __future__ import annotations

import enum


class Presented(enum.Enum):
    """Which CA issued an API server's certificate, and which link it sends."""

    OLD = "old"
    OLD_LINKED = "old, linked to the new CA"
    """Clients that know only the new CA accept it, too."""
    NEW = "new"
    NEW_LINKED = "new, linked to the old CA"
    """Clients that know only the old CA accept it, too."""
    FOREIGN = "neither"
