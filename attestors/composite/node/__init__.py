"""The agent plugin of the composite attestor."""
