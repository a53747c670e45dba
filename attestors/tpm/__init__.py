"""The TPM attestor: which chip is asking."""
