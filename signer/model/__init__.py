"""Immutable values of the controller: what bytes and API objects become at the edge. No HTTP, no clock."""
