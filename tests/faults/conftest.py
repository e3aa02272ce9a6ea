"""The faults' tests run on the fakes' fixtures."""

from tests.fakes.fixtures import engine, gateway, pytest_asyncio_loop_factories, quick_looks

__all__ = ["engine", "gateway", "pytest_asyncio_loop_factories", "quick_looks"]
