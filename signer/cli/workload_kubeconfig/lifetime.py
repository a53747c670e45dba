"""How long a credential lasts."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

DEFAULT_LIFETIME: Final = timedelta(days=365)
MINIMUM_LIFETIME: Final = timedelta(days=1)
