"""Rotates the certificate authorities of a workload cluster in two phases."""
