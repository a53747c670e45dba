"""The rotation of a workload cluster's certificate authorities: a list of steps, each with a proof."""
