"""The CSRs of one workload cluster: watched, queued, decided by workers, published and reported."""
