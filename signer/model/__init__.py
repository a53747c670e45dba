"""Immutable values of the controller, parsed from bytes and API objects. No HTTP, no clock."""
