"""Finds every API server of a workload cluster and asks it: what it presents, and which client CAs it accepts.

``observation`` has the types, ``identity`` tells which Machine an API server's certificate names, ``asking`` makes one
request on one connection, and ``observing`` is one pass over all servers. ``key_set``, ``key_asking`` and
``key_observing`` do the same for the public keys of service accounts that each server publishes.
"""
