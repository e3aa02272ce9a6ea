"""People come and go, and nothing of them stays."""

import pytest

from tests.page.process import ObservedPage
from tests.page.sessions import FIRST, VISITS, come_and_go

pytestmark = pytest.mark.browser

SESSIONS = 40


async def test_nothing_stays_of_those_who_came_and_went(page: ObservedPage) -> None:
    # That every session, message and connection of the page is gone is what `come_and_go` waits for.
    figures = await come_and_go(page, SESSIONS)
    assert page.gateway.aborted_streams >= (FIRST + SESSIONS) / len(VISITS)
    assert figures.after["tasks"] <= figures.before["tasks"]
    assert figures.after["files"] <= figures.before["files"]
