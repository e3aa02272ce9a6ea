"""Clients that ask from an address of their choice, and what became of all of it."""

import asyncio
from collections import Counter

import httpx

from tests.fakes.gateway import RunningGateway

FIVE = {"GATEWAY_RATE_LIMIT_REQUESTS": "5/minute"}


def at(address: str) -> dict[str, str]:
    """Say as nginx does where a request came from."""
    return {"x-forwarded-for": address}


def statuses(responses: list[httpx.Response]) -> Counter[int]:
    """Count the statuses of answers."""
    return Counter(response.status_code for response in responses)


async def flood(gateway: RunningGateway, number: int, address: str = "203.0.113.1") -> list[httpx.Response]:
    """Ask so often at once from one address."""
    return await asyncio.gather(*(gateway.chat(headers=at(address)) for _ in range(number)))
