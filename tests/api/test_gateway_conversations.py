"""Several engines of one model: the turns of a conversation meet at one of them, whose cache still has the others."""

import asyncio
from typing import Any

from tests.fakes.engine import FakeEngine, hold
from tests.fakes.gateway import RunningGateway, eventually, running_gateway

CONVERSATIONS = 12


def turns(number: int, count: int) -> dict[str, Any]:
    """Return the request for an answer to the last of so many questions."""
    messages = [{"role": "user", "content": f"question {number}"}]
    for turn in range(1, count):
        messages += [{"role": "assistant", "content": "你好"}, {"role": "user", "content": f"and {turn}"}]
    return {"messages": messages}


async def test_turns_of_a_conversation_meet_at_one_engine(engine: FakeEngine) -> None:
    async with FakeEngine() as other, running_gateway(engine, other) as gateway:
        for count in (1, 2, 3):
            for number in range(CONVERSATIONS):
                assert (await gateway.chat(turns(number, count))).status_code == 200
        asked = [[call.json["messages"][0]["content"] for call in one.calls] for one in (engine, other)]
    assert not set(asked[0]) & set(asked[1])
    assert len(asked[0]) + len(asked[1]) == 3 * CONVERSATIONS
    assert all(asked)


async def test_many_who_ask_the_same_do_not_crowd_one_engine(engine: FakeEngine) -> None:
    engine.script = hold
    async with FakeEngine() as other, running_gateway(engine, other) as gateway:
        other.script = hold
        tasks = [asyncio.create_task(gateway.chat(turns(0, 1))) for _ in range(12)]
        await eventually(lambda: len(engine.calls) + len(other.calls) == len(tasks))
        assert {len(engine.calls), len(other.calls)} == {5, 7}
        await end(tasks, gateway)


async def test_a_conversation_outlives_its_engine(engine: FakeEngine) -> None:
    async with FakeEngine() as other, running_gateway(engine, other) as gateway:
        await gateway.chat(turns(0, 1))
        home, rest = (engine, other) if engine.calls else (other, engine)
        known = next(one for one in gateway.parts.upstreams.engines if one.base_url == home.url)
        await home.stop()
        await eventually(lambda: not known.takes_requests)
        assert (await gateway.chat(turns(0, 2))).status_code == 200
        assert len(rest.calls) == 1
        await home.start()
        await eventually(lambda: known.takes_requests)
        assert (await gateway.chat(turns(0, 3))).status_code == 200
        assert len(rest.calls) == 1


async def end(tasks: list[asyncio.Task[Any]], gateway: RunningGateway) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await eventually(lambda: not len(gateway.parts.in_flight))
