"""The digest of a grant's spec, which an approval names."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final

DIGEST: Final = re.compile(r"[0-9a-f]{64}")
NOT_COVERED: Final = frozenset({"ingress", "suspend"})
"""The only fields of a grant's spec that may change."""


def digest_of_spec(spec: Mapping[str, Any]) -> str:
    """SHA-256, hexadecimal, of a grant's spec without :data:`NOT_COVERED`, as canonical JSON in UTF-8.

    Canonical: keys sorted, no spaces, no escapes that JSON does not need. ``jq -cjS 'del(.ingress, .suspend)'`` writes
    the same.
    """
    covered = {name: value for name, value in spec.items() if name not in NOT_COVERED}
    text = json.dumps(covered, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
