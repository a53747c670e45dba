"""``node-attestation-controller check``: verify a controller's configuration and what it needs of its cluster."""
