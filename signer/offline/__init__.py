"""Commands that work when every API server is down: ``ssh-sign`` and ``krl``.

They read files and write files, and import nothing of Kubernetes: `.importlinter` forbids it, and
:mod:`signer.entry` starts them without the rest of the controller. They need no package of the extra ``controller``.

Exit codes: 0 success; 1 failure at run time; 2 wrong usage, or an input that is refused. ``ssh-sign --exec``: the exit
code of ``ssh``. All commands: 74 standard output cannot be written, 130 interrupted, 141 broken pipe.
"""

from collections.abc import Mapping
from typing import Final

SSH_SIGN: Final = "ssh-sign"
KRL: Final = "krl"
COMMANDS: Final[Mapping[str, str]] = {
    SSH_SIGN: "sign an SSH certificate for a user, or log in with one; works with every API server down",
    KRL: "revoke SSH keys and certificates in a file, without an API server",
}
"""By name, each with its line in the list of commands."""
