"""CSR objects as a workload API server sends them, with nothing in them."""

from __future__ import annotations

from typing import Any, Final

from attestors.wire.names import Purpose, SignerName

SIGNER: Final = str(SignerName(Purpose.CLIENT, "keyed-mac"))
APPROVED: Final = {"type": "Approved", "status": "True"}


def csr(name: Any = "csr", uid: Any = "uid-1", *, spec: Any = None, status: Any = None, **metadata: Any) -> Any:
    """A CSR; ``spec`` and ``metadata`` are added to the usual ones."""
    return {
        "metadata": {"name": name, "uid": uid, "resourceVersion": "1", **metadata},
        "spec": {"signerName": SIGNER, "request": "cmVx", **(spec or {})},
        "status": status or {},
    }
