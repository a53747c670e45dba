"""Tests of the agent of containers."""
