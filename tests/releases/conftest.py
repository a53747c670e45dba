"""The harness of the integration tests."""

from tests.integration.conftest import harness

__all__ = ["harness"]
