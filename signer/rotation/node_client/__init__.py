"""The node-client authority: a CA that signs the client certificates of nodes alone, where a policy chooses that.

``plan`` has the facts, the proof and the one move that comes next, and is pure. ``signing`` knows which authorities
sign now, and ``reconciler`` reads, asks and writes.
"""
