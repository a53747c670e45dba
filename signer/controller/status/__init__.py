"""Writes status into the management cluster: conditions of policies and Machines, and status of InfraClusters."""
