"""Files on the node's disk: pairs, the pending request, the copy of the bootstrap credential."""
