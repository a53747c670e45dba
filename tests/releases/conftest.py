"""The house of the integration tests."""

from tests.integration.conftest import house

__all__ = ["house"]
