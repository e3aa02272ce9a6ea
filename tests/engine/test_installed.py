"""What the launcher reads from the installed vLLM's files, against vLLM itself."""

import json
import subprocess

import pytest

from .conftest import PYTHON, run_launcher

pytestmark = pytest.mark.engine

_COMPARE = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
from launcher.installation import Installation
parser = make_arg_parser(FlexibleArgumentParser())
real = {flag for action in parser._actions for flag in action.option_strings}
found = Installation.find()
names = ("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM")
json.dump({"lost": sorted(real - found.flags), "real": len(real), "build": found.build,
           "known": [found.knows_architecture(name) for name in names]}, sys.stdout)
"""


def test_the_flags_of_the_sources_are_the_parsers() -> None:
    done = subprocess.run([PYTHON, "-c", _COMPARE], capture_output=True, text=True, timeout=120, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["lost"] == ["--help", "-h"]
    assert found["real"] > 300
    assert found["build"] == "cpu"
    assert found["known"] == [True, False]


def test_a_flag_is_checked_against_them() -> None:
    done = run_launcher("check", ENGINE_MODEL="demo", ENGINE_EXTRA_ARGS="--max-num-batched 9")
    assert done.returncode == 2
    assert "did you mean --max-num-batched-tokens?" in done.stderr
    assert run_launcher("check", ENGINE_MODEL="demo", ENGINE_EXTRA_ARGS="--stream-interval 2").returncode == 0


def test_the_plan_of_the_demo_is_printed() -> None:
    done = run_launcher("plan", ENGINE_MODEL="demo", ENGINE_EAGER="auto")
    assert done.returncode == 0, done.stderr
    assert "--served-model-name ernie-demo" in done.stdout
    assert "--enforce-eager" in done.stdout
