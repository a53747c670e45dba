"""Values of the node's program, and rules over them. Nothing here reads a clock, a file or the network."""
