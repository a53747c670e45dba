"""SSH to nodes, a wing: makes and keeps each cluster's two SSH authorities, where policy and operator ask for them.

``secrets`` reads and seals their Secrets, ``plan`` has the one move that comes next, and ``status`` says what people
see; all three are pure. ``reconciler`` reads and writes. ``available`` is what a part asks that signs. The authorities
themselves are in :mod:`signer.authority.ssh`.
"""
