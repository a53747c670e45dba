"""The wire format: every string and byte layout that the node and the controller must agree on.

Both sides import these modules, and no other module repeats the names. ``names`` holds the strings, ``pem`` splits
blocks, ``provider_id`` encodes the CSR extension, ``evidence`` the evidence JSON, ``binding`` computes the value that
evidence must commit to, and ``request`` joins and splits the blocks of a request.
"""
