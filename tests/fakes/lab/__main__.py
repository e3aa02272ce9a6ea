"""`python -m tests.fakes.lab`: the fault engine as a process, the scorecard, and single faults to look at."""

import argparse
import asyncio
import json
import signal
import sys

from tests.fakes.events import MODEL
from tests.fakes.lab.client import chat, send
from tests.fakes.lab.engine import FaultEngine, Switchboard
from tests.fakes.lab.faults import FAULTS
from tests.fakes.lab.modes import MODES
from tests.fakes.lab.native import score_natively
from tests.fakes.lab.report import print_rows
from tests.fakes.lab.scorecard import Lab, score


def main() -> int:
    """Return the exit code: of a scorecard, 1 if any fault failed."""
    arguments = _parser().parse_args()
    lab = Lab(arguments.gateway, arguments.switchboard)
    commands = {
        "engine": lambda: serve(arguments.host, arguments.port, arguments.control_port),
        "scorecard": lambda: print_rows(score(lab), markdown=arguments.markdown),
        "native": lambda: print_rows(score_natively(), markdown=arguments.markdown),
        "ask": lambda: show(lab, arguments.fault, stream=not arguments.whole),
        "switch": lambda: switch(lab, arguments.mode),
        "list": show_all,
    }
    return asyncio.run(commands[arguments.command]())


async def serve(host: str, port: int, control_port: int) -> int:
    """Serve the fault engine until told to stop; the first line of output is its two ports."""
    engine = FaultEngine(host, port)
    switchboard = Switchboard(engine, host, control_port)
    stop = asyncio.Event()
    for sent in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sent, stop.set)
    await engine.start()
    await switchboard.server.start()
    print(json.dumps({"port": engine.port, "control_port": switchboard.server.port}), flush=True)
    await stop.wait()
    await switchboard.server.stop()
    await engine.stop()
    return 0


async def show(lab: Lab, fault: str, *, stream: bool) -> int:
    """Ask for a fault through the gateway and print every byte of the answer as it comes."""
    conversation = await chat(lab.gateway, fault, stream=stream)
    while data := await conversation.reader.read(65_536):
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    return 0


async def switch(lab: Lab, mode: str) -> int:
    """Put the engine into a mode and print what it then reports."""
    conversation = await send(lab.switchboard, "/control", {"mode": mode})
    answer = await conversation.answer()
    print(answer.body.decode())
    return 0 if answer.status == 200 else 1


async def show_all() -> int:
    """Print every fault and mode with what the engine does."""
    for name, fault in FAULTS.items():
        print(f"{name:<26}model  the engine {fault.engine_does}")
    for name, mode in MODES.items():
        print(f"{name:<26}mode   the engine {mode.engine_does}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.lab", description=__doc__)
    parser.add_argument("--gateway", default="http://127.0.0.1:8001", help="the gateway's base URL")
    parser.add_argument("--switchboard", default="http://127.0.0.1:8009", help="the engine's control address")
    commands = parser.add_subparsers(dest="command", required=True)
    engine = commands.add_parser("engine", help="serve the fault engine")
    engine.add_argument("--host", default="127.0.0.1")
    engine.add_argument("--port", type=int, default=8000)
    engine.add_argument("--control-port", type=int, default=8009)
    for name, text in (("scorecard", "score a running gateway"), ("native", "start engine and gateway, and score")):
        commands.add_parser(name, help=text).add_argument("--markdown", action="store_true")
    ask = commands.add_parser("ask", help="ask for one fault and print the raw answer")
    ask.add_argument("fault", help=f"a fault's name, or {MODEL}")
    ask.add_argument("--whole", action="store_true", help="not streamed")
    commands.add_parser("switch", help="put the engine into a mode").add_argument("mode", choices=list(MODES))
    commands.add_parser("list", help="list every fault and mode")
    return parser


if __name__ == "__main__":
    sys.exit(main())
