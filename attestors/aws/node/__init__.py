"""The agent plugin of the AWS attestor: makes evidence from this instance's metadata service and its role's
credentials.

Nothing is imported here; ``plugin.agent_plugin_from`` makes the agent plugin and needs ``botocore`` (the extra
``aws``).
"""
