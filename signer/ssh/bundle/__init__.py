"""The trust bundle: one signed statement about SSH, in the workload cluster, which the agents of nodes read.

``content`` has what it says, from facts alone; ``publishing`` compares and writes the ConfigMap, ``readers`` lets nodes
read it, and ``reconciler`` looks after one cluster's.
"""
