"""Access grants: people get SSH to nodes for a time, by objects that prove their creator, and every grant ends.

Another wing than rotation and the SSH authorities, which it builds on. Pure rules are in modules without I/O;
:mod:`signer.access.plan` holds the order of the checks, :mod:`signer.access.reconciler` carries out its moves.
"""
