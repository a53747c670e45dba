"""The SSH certificate authorities of a cluster: one for users, one for hosts.

``requests`` says what can be asked for, ``authorities`` signs, ``secret`` reads an authority from its Secret, and
``derivation`` derives the one of last resort from a master secret. Nothing here knows a clock, a file or an API server:
the caller gives time, serial number and nonce.
"""
