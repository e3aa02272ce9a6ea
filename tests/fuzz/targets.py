"""What atheris drives with bytes of its own making, and what the kept corpus is replayed through."""

import ipaddress
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import jsonschema_rs
import orjson
import yaml
from gateway.errors import InvalidRequest
from gateway.identity.addresses import Clients
from gateway.policy import Clamps, Policy
from gateway.settings import Settings

from tests.conftest import ROOT
from tests.fuzz.sse_properties import check_hiding, check_reading, check_splitting, cut

ENDS = (b"\n", b"\r\n", b"\r")
SIZES = 7
BODIES = {"/v1/chat/completions": "ChatRequest", "/v1/completions": "CompletionRequest"}
PROXIES = tuple(ipaddress.ip_network(text) for text in ("127.0.0.0/8", "::1/128", "10.0.0.0/8"))
ADDRESSES_OF_32 = 4
MAX_LINES = 8
# An input has 4 KiB at most; a slow machine needs a hundredth of this.
LONGEST_CHECK_SECONDS = 0.5


def stream(data: bytes) -> None:
    """Read an event stream: the first byte chooses the line ends, the next seven where the first chunks end."""
    end = ENDS[data[0] % len(ENDS)] if data else ENDS[0]
    text = data[1 + SIZES :].replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", end)
    chunks = cut(text, data[1 : 1 + SIZES])
    check_splitting(chunks)
    check_reading(text)
    check_hiding(chunks)


def policy(data: bytes) -> None:
    """Check a request's body: the first byte chooses the route."""
    path = list(BODIES)[data[0] % len(BODIES)] if data else next(iter(BODIES))
    body, rules = data[1:], _policy()
    started_at = time.process_time()
    try:
        checked = rules.check(path, body)
    except InvalidRequest as refusal:
        checked = None
        assert refusal.message  # noqa: PT017  (both ends are right)
    assert time.process_time() - started_at < LONGEST_CHECK_SECONDS
    if checked is not None:
        given = orjson.loads(body)
        assert _described(path).is_valid(given)
        asked = {"stream_options": {"include_usage": True}} if checked.hide_usage else {}
        assert orjson.loads(checked.body) == given | asked


def addresses(data: bytes) -> None:
    """Read what proxies say of a client: the first byte chooses the header, and which of the lines are of the other."""
    choice, lines = data[:1] or b"\0", data[1:].split(b"\n")[:MAX_LINES]
    names = [b"forwarded" if choice[0] >> index % 8 & 1 else b"x-forwarded-for" for index in range(len(lines))]
    headers = list(zip(names, lines, strict=True))
    started_at = time.process_time()
    name = Clients(PROXIES).name("127.0.0.1", headers)
    assert time.process_time() - started_at < LONGEST_CHECK_SECONDS
    network = ipaddress.ip_network(name)
    assert network.prefixlen == (32 if network.version == ADDRESSES_OF_32 else 64)
    # Whoever stands in the way nearest to us decides: what else is said changes nothing.
    nearest = [(b"x-forwarded-for", b"198.51.100.1")]
    assert Clients(PROXIES).name("127.0.0.1", [*headers, *nearest]) == "198.51.100.1"
    assert Clients(PROXIES).name("203.0.113.1", headers) == "203.0.113.1"


TARGETS: dict[str, Callable[[bytes], None]] = {"stream": stream, "policy": policy, "addresses": addresses}


def words_of(name: str) -> list[str]:
    """Return what an input of that target is likely to be made of, as libFuzzer writes it."""
    if name == "stream":
        marks = ["data: ", "data:", "[DONE]", "id: ", ": ping", "\\x0a\\x0a", "\\x0d\\x0a\\x0d\\x0a", "\\x0d\\x0d"]
        return [*marks, '{\\"choices\\":[],', '\\"usage\\":{', '\\"prompt_tokens\\":1', '{\\"error\\"']
    if name == "addresses":
        hops = [
            "203.0.113.7",
            "10.0.0.1",
            "127.0.0.1",
            "2001:db8::1",
            "::ffff:203.0.113.7",
            "64:ff9b::cb00:7107",
            "::1",
        ]
        return [
            *hops,
            "for=",
            'for=\\"[',
            ']:80\\"',
            ";by=",
            ";proto=http",
            ", ",
            "unknown",
            "_hidden",
            "%25eth0",
            "\\x0a",
        ]
    schemas = _description()["components"]["schemas"]
    fields = {field for schema in BODIES.values() for field in schemas[schema]["properties"]}
    words = fields | {"role", "user", "assistant", "content", "type", "text", "name", "include_usage", "json_object"}
    return [f'\\"{word}\\"' for word in sorted(words)] + ["true", "null", "[{", "}]", ":", ","]


@cache
def _policy() -> Policy:
    defaults = Settings()
    return Policy(Clamps(max_tokens=defaults.max_tokens, max_choices=defaults.max_choices))


@cache
def _description() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docs/openapi.yaml").read_text(encoding="utf-8"))
    return loaded


@cache
def _described(path: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({"$ref": f"#/components/schemas/{BODIES[path]}", **_description()})
