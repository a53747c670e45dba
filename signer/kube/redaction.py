"""What must not be repeated of what an API server says: it may say again what it was sent, or what it read.

Messages of API servers stand in logs, Events and conditions. An honest one quotes names and numbers; a webhook, a proxy
or a hostile server may quote the request with its credentials.
"""

from __future__ import annotations

import re
from typing import Final

REDACTED: Final = "[redacted]"
_CREDENTIALS: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{1,64}-----.*?(?:-----END [A-Z0-9 ]{1,64}-----|\Z)"  # PEM, also where it is cut off
    r"|\b(?:bearer|basic)\s+[!-~]+"  # an Authorization header
    r"|\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"  # a JSON Web Token
    r"|\b[a-z0-9]{6}\.[a-z0-9]{16}\b"  # a bootstrap token
    r"|[A-Za-z0-9+/_=-]{96,}",  # keys, certificates, evidence; names of our own objects hold digests of 64 digits
    # ASCII: then each alternative that fails has looked at no more than 96 characters, or the last one takes them all.
    re.IGNORECASE | re.DOTALL | re.ASCII,
)
_READ_CHARACTERS: Final = 4096
"""A message is shown to a few hundred; a hostile server's may have millions, and is looked at in the event loop."""


def without_credentials(text: str) -> str:
    """``text`` with ``[redacted]`` in place of whatever has the form of a credential, a key or evidence; its beginning
    where it is long.
    """
    if len(text) > _READ_CHARACTERS:
        # Half of a credential does not look like one.
        text = f"{text[:_READ_CHARACTERS].rpartition(' ')[0]} {REDACTED}"
    return _CREDENTIALS.sub(REDACTED, text)
