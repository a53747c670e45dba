"""Rotation of the certificate authorities of a workload cluster."""
