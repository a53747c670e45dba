"""Where the statement about a cluster's trust is published, in the workload cluster."""

from __future__ import annotations

from typing import Final

STATEMENT_NAMESPACE: Final = "kube-system"
STATEMENT_CONFIG_MAP: Final = "node-attestation-trust"
STATEMENT_KEY: Final = "statement"
RENEWAL_KEY: Final = "client-renewal"
"""Of the statement about client certificates. Agents that do not know it read ``STATEMENT_KEY`` alone."""
