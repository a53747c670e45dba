"""The agent plugin of the GCP attestor: the standard library alone."""
