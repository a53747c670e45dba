"""``local``: one sshd for each bastion on this machine, on a port of its own.

The machine is the shared bastion host. It needs OpenSSH's sshd, util-linux' ``unshare``, the account ``bastion``, and
root. ``keeper`` runs beside each sshd and ends it; ``resources`` is the provider; ``folder`` is the state of a bastion,
which its files hold alone.
"""
