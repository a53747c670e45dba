"""Bastions: hosts between the Internet and nodes, which providers make and remove.

``contract`` holds the types and the protocol of a provider, ``registry`` finds installed providers, and ``suite`` is
the test suite that each provider passes. ``sshd`` and ``host_key`` write the files of a bastion's sshd for providers.
The providers of this project are ``none``, ``local``, ``pod`` and ``aws``; docs/bastions.md describes them, and how to
write another.
"""
