"""A browser that does not read: the others notice nothing, what it holds is bounded, and the engine is let go."""

import asyncio
import json
import uuid
from pathlib import Path

import aiohttp
import httpx
import pytest

from tests.edge.person import Person
from tests.page.process import ObservedPage, running_page, until
from tests.page.sessions import settled
from tests.page.slow_person import packets, slow_person

pytestmark = pytest.mark.browser

HERE = "127.0.0.1"
OTHERS = 5
# Bounds for those who do not read: one of the two is out of reach.
BY_BYTES = ("3600", "500000")
BY_TIME = ("1", str(10**12))
BY_MUCH_TIME = ("5", str(10**12))
# What the system's buffers may take besides, and what the engine says within the grace.
ON_THE_WAY_BYTES = 60_000_000


async def read_whole(page: ObservedPage) -> str:
    """Ask for a long answer and return it."""
    async with Person(page.url, HERE, await page.guest()) as person:
        return await person.ask("count to 100")


async def test_one_who_does_not_read_is_given_up_and_the_others_get_their_whole_answers(tmp_path: Path) -> None:
    async with running_page(tmp_path, *BY_BYTES) as page:
        async with slow_person(page.url, "flood", await page.guest(), str(uuid.uuid4())):
            await until(lambda: page.gateway.flood_bytes > 0)
            answers = await asyncio.gather(*(read_whole(page) for _ in range(OTHERS)))
            await until(lambda: page.gateway.aborted_streams == 1)
        whole = " ".join(map(str, range(100))) + " You said count to 100."
        assert answers == [whole] * OTHERS
        await settled(page)
        assert page.gateway.open_streams == 0
        assert page.gateway.flood_bytes < ON_THE_WAY_BYTES


async def test_one_who_does_not_read_is_given_up_in_time_however_little_it_is(tmp_path: Path) -> None:
    async with running_page(tmp_path, *BY_TIME) as page:
        async with slow_person(page.url, "flood", await page.guest(), str(uuid.uuid4())):
            await until(lambda: page.gateway.flood_bytes > 0)
            await until(lambda: page.gateway.aborted_streams == 1)
        await settled(page)
        assert page.gateway.open_streams == 0


async def test_one_who_polls_no_more_is_given_up_too(tmp_path: Path) -> None:
    async with (
        running_page(tmp_path, *BY_BYTES) as page,
        httpx.AsyncClient(base_url=page.url, headers=await page.guest()) as client,
    ):
        address = "/ws/socket.io/?EIO=4&transport=polling"
        address += "&sid=" + json.loads((await client.get(address)).text[1:])["sid"]
        connect, *messages = packets("flood", str(uuid.uuid4()))
        await client.post(address, content=connect)
        await client.get(address)
        for message in messages:
            await client.post(address, content=message)
        await page.line_with("gave up a page that reads too slowly")
        # What waits is still handed out while the page takes its leave of the person.
        async with asyncio.timeout(60):
            while (await client.get(address)).status_code != 400:
                pass
        await until(lambda: page.gateway.aborted_streams == 1)
        await settled(page)


async def test_one_who_reads_slowly_gets_the_whole_answer(tmp_path: Path) -> None:
    async with (
        running_page(tmp_path, *BY_MUCH_TIME) as page,
        slow_person(page.url, "flood 60", await page.guest(), str(uuid.uuid4())) as websocket,
    ):
        frames: list[str] = []
        async with asyncio.timeout(120):
            # Chainlit says that all is done when the page is opened, and when the answer is complete.
            while "task_start" not in "".join(frames) or "task_end" not in frames[-1]:
                frames.append(await websocket.receive_str())
                if frames[-1] == "2":
                    await websocket.send_str("3")
                await asyncio.sleep(min(0.5, len(frames[-1]) / 100_000))
        whole = max(frames, key=len)
        assert "You said flood 60." in whole
        assert whole.count("much text ") >= 60 * 10_000


async def test_one_who_was_given_up_comes_back_to_the_whole_answer(tmp_path: Path) -> None:
    async with running_page(tmp_path, *BY_BYTES, CHAT_UI_DISCONNECT_GRACE_SECONDS="60") as page:
        guest, session_id = await page.guest(), str(uuid.uuid4())
        async with slow_person(page.url, "flood 60", guest, session_id) as websocket:
            await page.line_with("gave up a page that reads too slowly")
            # What was on its way is lost with the connection.
            async with asyncio.timeout(60):
                while (await websocket.receive()).type is aiohttp.WSMsgType.TEXT:
                    pass
        async with Person(page.url, HERE, guest, session_id=session_id) as person:
            await until(lambda: any("You said flood 60." in text for text in person.shown.values()))
            [answer] = [text for text in person.shown.values() if "You said" in text]
        assert answer.count("much text") == 60 * 10_000
        assert page.gateway.aborted_streams == 0
        assert len(page.gateway.prompts) == 1
