"""What the stand-ins write down, in the order in which it happened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

EVENTS: Final = Path("/run/events.jsonl")


def write_down(**event: Any) -> None:
    """Append an event, from within the scratch root."""
    with EVENTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")
