"""Pages of the tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.page.process import ObservedPage, running_page


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[ObservedPage]:
    """The page as it is."""
    async with running_page(tmp_path) as page:
        yield page
