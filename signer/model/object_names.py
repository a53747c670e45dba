"""The form of names of objects and namespaces."""

from __future__ import annotations

import re
from typing import Final

OBJECT_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", re.ASCII)
"""apimachinery ``validation.IsDNS1123Subdomain``."""
NAMESPACE: Final = re.compile(r"(?=.{1,63}\Z)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", re.ASCII)
"""apimachinery ``validation.IsDNS1123Label``."""
NAMESPACE_FORM: Final = "up to 63 lower-case letters, digits and '-', a letter or digit at both ends"
