"""Leader election and shards: how replicas divide the work with Leases."""
