"""Decides one CSR: attest, match the Machine, reserve and journal. This package never writes to a workload cluster."""
