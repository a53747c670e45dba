"""Leader election and shards: how replicas divide the Clusters by Leases."""
