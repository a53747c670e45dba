"""Decides one CSR: attest, match the Machine, reserve and journal. Nothing here writes to a workload cluster."""
