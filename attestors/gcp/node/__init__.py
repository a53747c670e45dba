"""The agent plugin of the GCP attestor; it needs only the standard library."""
