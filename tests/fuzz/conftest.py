"""`pytest tests/fuzz --hypothesis-profile fuzz` looks long and anew each time; without it, briefly and alike."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.fuzz.effort import LONG
from tests.fuzz.service import Service, served

settings.register_profile(LONG, settings.get_profile("default"), print_blob=True)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with served() as running:
        yield running
