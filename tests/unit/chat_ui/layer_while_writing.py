"""A program: reads a conversation from Chainlit's data layer while it is being written, and prints what it found.

Of its own, since importing Chainlit changes a process (and warns).
"""

import asyncio
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from chat_ui.history import layer as layer_module
from chat_ui.history import threads
from chat_ui.history.guests import Guests
from chat_ui.history.layer import Layer
from chat_ui.history.opening import store_at

ALICE = "account:alice"


async def main(folder: Path) -> None:
    """Begin to write an answer, ask for the conversation, and only then let the answer be written."""
    layer_module.context = SimpleNamespace(session=SimpleNamespace())  # type: ignore[assignment]
    store = store_at("", folder)
    guests = Guests(store, "guest:", days=1, room_bytes=10**9)
    layer = Layer(store, person=lambda: ALICE, tell=asyncio.Event().wait, guests=guests)  # type: ignore[arg-type]
    thread_id = str(uuid.uuid4())
    async with store.work() as connection:
        await threads.claim(connection, thread_id, ALICE, "x")
    may_write, is_writing = asyncio.Event(), asyncio.Event()

    async def write(connection: Any) -> None:
        is_writing.set()
        await may_write.wait()
        answer = (str(uuid.uuid4()), thread_id, "2026-11-30T10:00:00Z", "assistant_message", "x")
        await threads.keep_step(connection, threads.Step(*answer, output="part", text="part"))

    writing = asyncio.create_task(layer._keep(thread_id, write))
    await is_writing.wait()
    reading = asyncio.create_task(layer.get_thread(thread_id))
    # One that did not wait would have read by now: the store works in threads, and has nothing else to do.
    await asyncio.wait([reading], timeout=0.5)
    may_write.set()
    thread = await reading
    print([step["output"] for step in thread["steps"]] if thread else None)
    await writing
    await layer.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
