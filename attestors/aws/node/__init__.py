"""The agent plugin of the AWS attestor: makes evidence from this instance's metadata service and its role's
credentials.

This package imports nothing. ``plugin.agent_plugin_from`` builds the agent plugin, which needs ``botocore`` (the extra
``aws``).
"""
