"""Machines as each infrastructure provider leaves them, and CA Secrets as each control plane provider does."""
