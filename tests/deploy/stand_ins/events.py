"""The record of the stand-ins' calls, in their order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

EVENTS: Final = Path("/run/events.jsonl")


def record(**event: Any) -> None:
    """Append an event. Call it within the scratch root."""
    with EVENTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")
