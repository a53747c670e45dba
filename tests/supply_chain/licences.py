"""Under which licence a package is, as an SPDX expression, and which licences may be shipped."""

from __future__ import annotations

import re
from typing import Final

from cyclonedx.spdx import is_expression

from tests.supply_chain.dependencies import Package

ALLOWED: Final = frozenset(
    {
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "EPL-2.0",  # asyncssh; see CHOSEN
        "ISC",
        "MIT",
        "MIT-0",
        "MPL-2.0",  # certifi: a list of CAs, shipped as it is
        "PSF-2.0",
    }
)
_BY_TEXT: Final = {
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: MIT License": "MIT",
}
_SAID_BY_THEIR_LICENCE_FILES: Final = {
    "pyasn1-modules": "BSD-2-Clause",
    "python-dateutil": "Apache-2.0 OR BSD-3-Clause",
    "tpm2-pytss": "BSD-2-Clause",
}
"""Their metadata says "BSD", or "Dual License"."""
CHOSEN: Final = {"EPL-2.0 OR GPL-2.0-or-later": "EPL-2.0"}
"""Of asyncssh, which is shipped as it is. The other licence would bind what is shipped with it."""
_OPERATORS: Final = re.compile(r"\s+(?:AND|OR)\s+|[()]")


class LicenceUnknown(ValueError):
    """A package does not say its licence in a form that is known here."""


def licence_of(package: Package) -> str:
    """An SPDX expression.

    Raises:
        LicenceUnknown: the metadata gives none.
    """
    metadata = package.metadata
    known = _SAID_BY_THEIR_LICENCE_FILES.get(package.name)
    classifiers = [line for line in metadata.get_all("Classifier") or () if line.startswith("License ::")]
    said = (*(metadata.get_all("License-Expression") or ()), *(metadata.get_all("License") or ()), *classifiers)
    for text in (known,) if known else said:
        expression = _BY_TEXT.get(str(text), str(text))
        if is_expression(expression):
            return expression
    raise LicenceUnknown(f"{package.name} {package.version} does not say its licence in SPDX: look it up")


def is_allowed(expression: str) -> bool:
    """Whether all of an expression's licences may be shipped; of a choice, all too, unless it is in CHOSEN."""
    return all(part in ALLOWED for part in _OPERATORS.split(CHOSEN.get(expression, expression)) if part)
