"""``make demo-access``: two people ask for access to a node, each has a bastion, neither takes the other's, and access
ends with its heartbeats.

sshd of node and bastions, ssh, ssh-agent, kubectl and ``node-access`` are real, on this host. The API servers are
embedded ones, and the node's machine is a scratch root.
"""
