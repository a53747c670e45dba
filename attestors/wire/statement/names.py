"""Where the statements for nodes are published, in the workload cluster."""

from __future__ import annotations

from typing import Final

STATEMENT_NAMESPACE: Final = "kube-system"
STATEMENT_CONFIG_MAP: Final = "node-attestation-trust"
STATEMENT_KEY: Final = "statement"
RENEWAL_KEY: Final = "client-renewal"
"""Of the statement about client certificates. Agents that do not know it read ``STATEMENT_KEY`` alone."""
NODE_ACCESS_CONFIG_MAP: Final = "node-access-trust"
"""Of the statement about SSH, in the same namespace. It may be large, so readers of the others do not get it."""
