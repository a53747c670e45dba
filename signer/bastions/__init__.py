"""The bastion controller: ``node-access-bastions run``, a process of its own.

It knows Bastions and their providers. It holds no key of an authority, and reads no Secret of a cluster.
"""
