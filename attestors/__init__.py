"""Attestors: who can prove which machine is asking.

``attestors.contract`` is what an attestor implements, ``attestors.wire`` what travels between node and controller, and
``attestors.registry`` finds the installed ones. Each provider is a package of its own beside these, found through the
entry-point group and imported only when a cluster authorises it.
"""
