"""The node half of the AWS attestor: makes evidence from this instance's metadata service and its role's credentials.

Nothing is imported here; ``half.node_half_from`` makes the node half and needs ``botocore`` (the extra ``aws``).
"""
