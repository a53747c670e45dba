"""What stays on the node's disk: pairs, the request that is under way, the bootstrap credential's copy."""
