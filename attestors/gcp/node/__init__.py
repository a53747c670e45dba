"""The node half of the GCP attestor: the standard library alone."""
