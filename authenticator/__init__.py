"""The node's half: the kubelet's exec credential plugin. Standard library and ``cryptography`` only."""
