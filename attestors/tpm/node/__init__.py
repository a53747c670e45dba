"""The agent plugin of the TPM attestor: makes evidence with the machine's TPM 2.0.

This package imports nothing. ``plugin.agent_plugin_from`` builds the agent plugin, which needs ``tpm2-pytss`` (the
extra ``tpm``).
"""
