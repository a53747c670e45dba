"""``make demo-ssh``: ssh knows a node that proved its identity, refuses a thief of its certificate, and a person's
session ends with the person's certificate.

systemd, sshd and ssh are real, on this host. The API servers are embedded ones, and the node's machine is a
scratch root.
"""
