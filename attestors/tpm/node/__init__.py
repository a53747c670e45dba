"""The node half of the TPM attestor: makes evidence with the machine's TPM 2.0.

Nothing is imported here; ``half.node_half_from`` makes the node half and needs ``tpm2-pytss`` (the extra ``tpm``).
"""
