"""``pod``: a Pod with an unprivileged sshd, behind a Service of type LoadBalancer, for each bastion.

``objects`` are the manifests, ``resources`` is the provider's logic, and ``provider`` has the settings.
"""
