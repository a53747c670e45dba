"""Attestors: plugins that prove which machine sent a request.

``attestors.contract`` is the interface that an attestor implements. ``attestors.wire`` is the format that the node and
the controller share. ``attestors.registry`` finds the installed attestors. Each provider has a package of its own,
which the entry-point group names and which is imported only when a cluster authorises the provider.
"""
