"""`python -m bench.engine.contract --python PORT --rust PORT`: find where two front ends differ.

Writes contract.json with everything and contract.md with the differences.
"""

import argparse
import http.client
import json
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.engine import result
from bench.engine.behaviour import Server, behaviours
from bench.engine.checks import CHAT, JSON, QUESTION, RISKY, Check, requests
from bench.engine.engines import ask

_TIMEOUT_SECONDS = 12.0
_SHOWN = 300
# Times differ from run to run and are shown, not compared.
_TIMED = ("seconds", "port closed after", "processes gone after")
_ERROR = 400
# Every field of the answers to these is compared; of the others those that say something.
_IN_FULL = ("chat", "completion", "stream with usage", "logprobs with top 3", "unknown model", "messages missing")
_LITTLE = frozenset({"system_fingerprint", "completion_tokens_details", "prompt_tokens_details", "service_tier"})
_STATUS_ONLY = ("/metrics", "/docs", "/openapi.json")
_SOUND = Check("sound after all this", "/health", method="GET", headers={})


def main(arguments: Sequence[str]) -> int:
    """Compare, write, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine.contract", description=__doc__)
    for name in ("python", "rust"):
        parser.add_argument(f"--{name}", type=int, required=True, help="its port")
        parser.add_argument(f"--{name}-pid", type=int, help="its first process, for --last")
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--last", action="store_true", help="only what the engines do not survive")
    chosen = parser.parse_args(arguments)
    servers = {
        "python": Server(chosen.python, chosen.model, chosen.python_pid),
        "rust": Server(chosen.rust, chosen.model, chosen.rust_pid),
    }
    stem = "contract-last" if chosen.last else "contract"
    command = f"python -m bench.engine.contract{' --last' if chosen.last else ''}"
    found = {**result.describe(command, None, result.packages()), "checks": []}
    found["versions"]["vllm"] = json.loads(ask(chosen.python, "/version", _TIMEOUT_SECONDS)[1] or b"{}").get("version")
    path = chosen.out / f"{stem}.json"

    def keep(row: dict[str, Any]) -> None:
        found["checks"].append(row)
        # Whoever ends this process leaves what is known so far.
        result.write(found, path)
        path.with_suffix(".md").write_text(_markdown(found))

    def look(checks: list[Check]) -> None:
        for check in checks:
            keep(_compare(check.name, servers, partial(_observe, check=check)))

    checks = [] if chosen.last else requests(chosen.model, _words(servers["python"]))
    look([check for check in checks if check.name not in RISKY])
    for name, watch in behaviours(chosen.last).items():
        keep(_compare(name, servers, watch))
    look([check for check in checks if check.name in RISKY])
    if not chosen.last:
        keep(_compare("sound after all this", servers, partial(_observe, check=_SOUND)))
    differ = sum(not row["same"] for row in found["checks"])
    print(f"contract: {len(found['checks'])} checks, {differ} differ", flush=True)
    return 0


def _compare(name: str, servers: dict[str, Server], look: Callable[[Server], dict[str, Any]]) -> dict[str, Any]:
    seen = {}
    for front, server in servers.items():
        try:
            seen[front] = look(server)
        except Exception as error:  # noqa: BLE001 - what it is becomes the result
            if not isinstance(error, OSError | http.client.HTTPException):
                traceback.print_exc()
            seen[front] = {"failed": f"{type(error).__name__}: {error}"[:_SHOWN]}
    compared = [_essence(one, in_full=name in _IN_FULL) for one in seen.values()]
    same = compared[0] == compared[1]
    # Of answers that are the same only the times are worth keeping.
    raw = {front: {key: one[key] for key in _TIMED if key in one} if same else one for front, one in seen.items()}
    return {"name": name, "same": same, **dict(zip(seen, compared, strict=True)), "raw": raw}


def _essence(seen: dict[str, Any], *, in_full: bool) -> dict[str, Any]:
    """What is compared: without times, without the words of an error, and mostly without fields that are null."""
    kept = {key: value for key, value in seen.items() if key not in ("message", *_TIMED)}
    if in_full:
        return kept
    if "error" in kept:
        error = kept.pop("error")
        # Types and codes differ throughout: the checks in full show how.
        kept.pop("shape", None)
        kept["has an error's shape"] = bool(error["type"] and error["code"])
    return {key: _pruned(value) if key in ("shape", "events") else value for key, value in kept.items()}


def _pruned(shape: Any) -> Any:
    match shape:
        case dict():
            return {key: _pruned(part) for key, part in shape.items() if part != "null" and key not in _LITTLE}
        case list():
            return _runs([_pruned(part) for part in shape])
        case _:
            return shape


def _observe(server: Server, check: Check) -> dict[str, Any]:
    """Return status and shape of an answer, and those values that the check names."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.putrequest(check.method, check.path)
        for name, text in check.headers.items():
            connection.putheader(name, text)
        if check.body is not None:
            connection.putheader("content-length", str(len(check.body)))
        connection.endheaders()
        if check.body:
            connection.send(check.body)
        answer = connection.getresponse()
        data = answer.read()
    finally:
        connection.close()
    seen: dict[str, Any] = {"status": answer.status, "type": (answer.headers["content-type"] or "").partition(";")[0]}
    if check.path in _STATUS_ONLY:
        return seen
    if seen["type"] == "text/event-stream":
        events = re.findall(rb"^data: ?(.*)$", data, re.MULTILINE)
        parsed = [json.loads(event) for event in events if event != b"[DONE]"]
        seen |= {"done": events[-1:] == [b"[DONE]"], "events": _runs([_shape(event) for event in parsed])}
        body = _joined(parsed)
    else:
        body = _parsed(data)
        seen["shape"] = _shape(body) if body is not None else ("empty" if not data else "text")
    if answer.status >= _ERROR:
        error = body.get("error", body) if isinstance(body, dict) else {}
        error = error if isinstance(error, dict) else {}
        seen["error"] = {key: error.get(key) for key in ("type", "code", "param")}
        seen["message"] = str(error.get("message", data[:_SHOWN].decode(errors="replace")))[:_SHOWN]
        return seen
    values = _values(body, dict(answer.headers.items()))
    return seen | {name: values.get(name) for name in check.values}


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _shape(value: Any) -> Any:
    """Types instead of values; of a list the shape of its first element."""
    match value:
        case dict():
            return {key: _shape(part) for key, part in sorted(value.items())}
        case list():
            return [_shape(value[0])] if value else []
        case bool() | None:
            return json.dumps(value) if value is None else "bool"
        case int() | float():
            return "number"
        case _:
            return "string"


def _runs(shapes: list[Any]) -> list[Any]:
    """Shapes of events; equal neighbours once, however many they are."""
    return [shape for index, shape in enumerate(shapes) if not index or shape != shapes[index - 1]]


def _joined(events: list[Any]) -> dict[str, Any]:
    """Return what a stream says as a whole, like an answer that was not streamed."""
    texts: dict[int, str] = {}
    finishes: dict[int, Any] = {}
    whole: dict[str, Any] = {"id": events[0].get("id") if events else None}
    for event in events:
        for choice in event.get("choices") or []:
            part = choice.get("delta", {}).get("content") if "delta" in choice else choice.get("text")
            texts[choice["index"]] = texts.get(choice["index"], "") + (part or "")
            finishes[choice["index"]] = choice.get("finish_reason") or finishes.get(choice["index"])
        whole["usage"] = event.get("usage") or whole.get("usage")
    whole["choices"] = [{"text": texts[index], "finish_reason": finishes[index]} for index in sorted(texts)]
    return whole


def _values(body: Any, headers: dict[str, str]) -> dict[str, Any]:
    if not isinstance(body, dict):
        return {}
    choices = body.get("choices") or []
    texts = [choice["message"]["content"] if "message" in choice else choice["text"] for choice in choices]
    usage = body.get("usage") or {}
    return {
        "text": texts,
        "finish": [choice["finish_reason"] for choice in choices],
        "stop_reason": [choice.get("stop_reason") for choice in choices],
        "usage": {key: usage.get(key) for key in ("prompt_tokens", "completion_tokens", "total_tokens")},
        "choices": len(choices),
        # Ours, if it is taken over.
        "id": "ours within" if "my-request-1" in str(body.get("id")) else "its own",
        "x-request-id": {key.lower(): value for key, value in headers.items()}.get("x-request-id"),
    }


def _words(server: Server) -> str:
    """Return a greedy answer, of which the checks of `stop` take a part."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    body = {
        "model": server.model,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 16,
        "temperature": 0,
    }
    connection.request("POST", CHAT, json.dumps(body), JSON)
    text: str = json.loads(connection.getresponse().read())["choices"][0]["message"]["content"]
    connection.close()
    return text


def _markdown(found: dict[str, Any]) -> str:
    rows = found["checks"]
    differing = [row for row in rows if not row["same"]]
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    lines = [
        f"Taken {found['taken_at']} by `{found['command']}`: {versions}. {len(rows)} checks, {len(differing)} differ.",
        "",
        "| check | Python | Rust |",
        "| --- | --- | --- |",
        *(f"| {row['name']} | {_cell(row, 'python', 'rust')} | {_cell(row, 'rust', 'python')} |" for row in differing),
        "",
        *_times(rows),
        "",
        f"The same: {'; '.join(row['name'] for row in rows if row['same'])}.",
    ]
    return "\n".join(lines) + "\n"


def _times(rows: list[dict[str, Any]]) -> list[str]:
    """What took how long, which is not compared."""
    timed = [(row, key) for row in rows for key in _TIMED if key in row["raw"]["python"] or key in row["raw"]["rust"]]
    return [
        f"- {row['name']}, {key}: Python {row['raw']['python'].get(key)} s, Rust {row['raw']['rust'].get(key)} s"
        for row, key in timed
    ]


def _cell(row: dict[str, Any], front: str, other: str) -> str:
    """What one front end has that the other has not."""
    text = json.dumps(_difference(row[front], row[other]), ensure_ascii=False)
    words = row["raw"][front].get("message")
    text = f"{text} {words}" if words else text
    return text.replace("|", "\\|").replace("\n", " ")[: 2 * _SHOWN]


def _difference(own: Any, other: Any) -> Any:
    if not isinstance(own, dict) or not isinstance(other, dict):
        return own
    return {key: _difference(value, other.get(key)) for key, value in own.items() if other.get(key) != value}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
