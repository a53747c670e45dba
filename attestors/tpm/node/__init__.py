"""The agent plugin of the TPM attestor: makes evidence with the machine's TPM 2.0.

Nothing is imported here; ``plugin.agent_plugin_from`` makes the agent plugin and needs ``tpm2-pytss`` (the extra
``tpm``).
"""
