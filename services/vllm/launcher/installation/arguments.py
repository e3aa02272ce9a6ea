"""What vLLM's own parser says of the command line, asked in a process of its own: it takes some 10 s to import."""

import hashlib
import json
import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from launcher.errors import BadSetting
from launcher.installation.flags import VARIABLE

_LIMIT_SECONDS = 90
_REFUSED = 2
_LONGEST = 300
# The parser's place differs between versions; neither is there in one that this module does not know.
_PARSE = """
import importlib, sys
for name in ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args"):
    try:
        module = importlib.import_module(name)
        break
    except ModuleNotFoundError:
        continue
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = module.make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
arguments = parser.parse_args(sys.argv[1:])
try:
    module.validate_parsed_serve_args(arguments)
except (TypeError, ValueError) as error:
    parser.error(str(error))
"""

log = logging.getLogger(__name__)


def check(words: Sequence[str], environment: Mapping[str, str], version: str) -> None:
    """Parse the server's words (the model first) as the server will; what was found good is remembered.

    Raises BadSetting with vLLM's own words. A parser that cannot be asked is no fault of the words: that is logged.
    """
    note = _note(words, environment, version)
    if note.exists():
        return
    log.info("asking vLLM's parser about %s", VARIABLE)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PARSE, "--model", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        log.warning("vLLM's parser gave no answer in %d s: the values in %s are unchecked", _LIMIT_SECONDS, VARIABLE)
        return
    _, _, complaint = done.stderr.rpartition("vllm serve: error: ")
    if done.returncode == _REFUSED:
        raise BadSetting(VARIABLE, f"vLLM {version} refuses it: {' '.join(complaint.split())[:_LONGEST]}")
    if done.returncode:
        last = (complaint.strip().splitlines() or ["no message"])[-1]
        log.warning("vLLM's parser could not be asked (%s): the values in %s are unchecked", last[:_LONGEST], VARIABLE)
        return
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.touch()
    except OSError as error:
        log.warning("the parser's answer cannot be kept for the next start: %s", error)


def _note(words: Sequence[str], environment: Mapping[str, str], version: str) -> Path:
    """A file that exists if these words were good for this version; beside vLLM's own caches."""
    root = environment.get("VLLM_CACHE_ROOT")
    folder = Path(root) if root else Path(environment.get("HOME") or Path.home()) / ".cache" / "vllm"
    key = hashlib.sha256(json.dumps([version, *words]).encode()).hexdigest()
    return folder / "launcher" / key
