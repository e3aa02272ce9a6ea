"""What the launcher reads from the installed vLLM's files, against vLLM itself."""

import json
import subprocess
from pathlib import Path

import pytest

from .conftest import PYTHON, ROOT, run_launcher

pytestmark = pytest.mark.engine

_COMPARE = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.envs import environment_variables
from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS
from vllm.utils.argparse_utils import FlexibleArgumentParser
from launcher.installation import flags
from launcher.installation import Installation
parser = make_arg_parser(FlexibleArgumentParser())
real = {flag for action in parser._actions for flag in action.option_strings}
found = Installation.find()
names = ("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM")
json.dump({"lost": sorted(real - found.flags), "real": len(real), "build": found.build,
           "known": [found.knows_architecture(name) for name in names],
           "methods": [name for name in QUANTIZATION_METHODS if not found.knows_quantization(name)],
           "unknown": [name for name in ("aqlm", "hqq", "") if found.knows_quantization(name)],
           "variables": [name for name in environment_variables
                         if name.startswith("VLLM_") and name not in found.variables],
           "gone": [name for name in ("VLLM_ATTENTION_BACKEND", "VLLM_USE_V1") if name in found.variables],
           "said": sorted(name for name, text in flags._MISLEADING.items() if flags._NONE in text and name in real),
           "sound": sorted(real & {"--attention-backend", "--load-format", "--uds", "--headless", "--root-path"})},
          sys.stdout)
"""


# Each machine that has a plan, with settings that bring out every flag that the plan can choose.
_PARSE = """
import json, sys
from pathlib import Path
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
from launcher import preflight
from launcher.errors import LauncherError
from launcher.hardware import record
from launcher.settings import Settings
parser = make_arg_parser(FlexibleArgumentParser())
flags, lost, refused = set(), set(), {}
variants = ({}, {"kv_cache_dtype": "fp8"}, {"quantization": "fp8_per_tensor"}, {"front_end": "rust"},
            {"tensor_parallel": 2}, {"eager": "on", "api_servers": 2})
for path in sorted(Path(sys.argv[1]).glob("*.json")):
    for model in ("baidu/ERNIE-4.5-0.3B-PT", "baidu/ERNIE-4.5-21B-A3B-PT"):
        for variant in variants:
            settings = Settings(model=model, offline=True, **variant)
            try:
                prepared = preflight.foresee(settings, {"HF_HUB_CACHE": "/nonexistent"}, record.read(path))
            except LauncherError as error:
                refused.setdefault(path.stem, []).append(type(error).__name__)
                continue
            found = preflight.Site.find(settings, {}, record.read(path)).installation
            for command in prepared.commands:
                words = command.argv[command.argv.index(model) + 1:]
                arguments = parser.parse_args([*words])
                assert arguments.max_model_len == prepared.plan.context_tokens
                used = {word for word in words if word.startswith("--")}
                flags |= used
                lost |= {flag for flag in used if not found.accepts(flag)}
json.dump({"flags": sorted(flags), "lost": sorted(lost), "refused": refused}, sys.stdout)
"""


def test_vllms_own_parser_takes_the_commands_of_every_recorded_machine() -> None:
    machines = ROOT / "tests/hardware"
    done = subprocess.run([PYTHON, "-c", _PARSE, machines], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["lost"] == []
    assert {name for name, kinds in found["refused"].items() if len(kinds) == 12} == {"v100", "cpu-old"}
    assert {
        *(
            "--attention-backend",
            "--kv-cache-dtype",
            "--api-server-count",
            "--max-num-batched-tokens",
            "--quantization",
        ),
        *("--tensor-parallel-size", "--enable-expert-parallel", "--enable-eplb", "--eplb-config", "--enforce-eager"),
        *("--kv-cache-memory-bytes", "--gpu-memory-utilization", "--max-num-seqs", "--middleware"),
    } <= {*found["flags"]}


def test_the_flags_of_the_sources_are_the_parsers() -> None:
    done = subprocess.run([PYTHON, "-c", _COMPARE], capture_output=True, text=True, timeout=120, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["lost"] == ["--help", "-h"]
    assert found["real"] > 300
    assert found["build"] == "cpu"
    assert found["known"] == [True, False]
    assert found["methods"] == found["unknown"] == []
    assert found["variables"] == found["gone"] == []
    # What the launcher says of flags that recipes name: these are gone, and those are there.
    assert found["said"] == []
    assert found["sound"] == ["--attention-backend", "--headless", "--load-format", "--root-path", "--uds"]


def test_a_flag_is_checked_against_them() -> None:
    done = run_launcher("check", ENGINE_MODEL="demo", ENGINE_EXTRA_ARGS="--max-num-batched 9")
    assert done.returncode == 2
    assert "did you mean --max-num-batched-tokens?" in done.stderr


def test_a_value_is_checked_by_vllm_itself_and_what_was_good_is_remembered(tmp_path: Path) -> None:
    settings = {"ENGINE_MODEL": "demo", "ENGINE_CACHE_DIR": str(tmp_path), "ENGINE_PORT": "8000"}
    done = run_launcher("check", ENGINE_EXTRA_ARGS="--stream-interval abc", **settings)
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("launcher: ENGINE_EXTRA_ARGS: vLLM 0.32.0 refuses it: argument --stream-interval: invalid")
    asked = "asking vLLM's parser"
    first = run_launcher("check", ENGINE_EXTRA_ARGS="--stream-interval 2", **settings)
    assert first.returncode == 0, first.stderr
    assert asked in first.stderr
    again = run_launcher("check", ENGINE_EXTRA_ARGS="--stream-interval 2", **settings)
    assert again.returncode == 0, again.stderr
    assert asked not in again.stderr


def test_the_plan_of_the_demo_is_printed() -> None:
    done = run_launcher("plan", ENGINE_MODEL="demo", ENGINE_EAGER="auto")
    assert done.returncode == 0, done.stderr
    assert "--served-model-name ernie-demo" in done.stdout
    assert "--enforce-eager" in done.stdout
