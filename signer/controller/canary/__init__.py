"""Proves that a workload API server accepts the client certificates that a cluster's CA signs."""
