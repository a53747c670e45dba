"""The wire format: every string and byte layout that the node and the controller must agree on.

Both sides import from here; no other module spells these names. ``names`` has the strings, ``pem`` the block splitter,
``provider_id`` the CSR extension, ``evidence`` the JSON envelope, ``binding`` the value that evidence must commit to,
and ``request`` puts the blocks together and takes them apart.
"""
