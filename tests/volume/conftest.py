"""These tests run on the loop that production runs on."""

from tests.fakes.fixtures import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
