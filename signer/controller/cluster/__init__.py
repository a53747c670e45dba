"""The fleet of workload clusters, with one task for each."""
