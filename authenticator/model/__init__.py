"""Values of the agent plugin, and rules over them. Nothing here reads a clock, a file or the network."""
