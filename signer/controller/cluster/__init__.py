"""One task for each workload cluster, and the fleet of these tasks."""
