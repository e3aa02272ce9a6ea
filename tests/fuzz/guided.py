"""Coverage-guided fuzzing with atheris: `python -m tests.fuzz.guided TARGET FOLDER… [-libfuzzer_option=value …]`.

New inputs go to the first folder. libFuzzer's own options apply: `-max_total_time` in seconds; `-merge=1` brings into
the first folder what the others add to it.
"""

import shlex
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["gateway"]):
    from tests.fuzz.targets import TARGETS, words_of


def main() -> None:
    """Run one target until libFuzzer ends it; a failed assertion is printed and exits with another code than 0."""
    name, *arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        words, itself = Path(folder) / "words", Path(folder) / "itself"
        words.write_text("".join(f'"{word}"\n' for word in words_of(name)), encoding="ascii")
        # To merge, libFuzzer calls the program again that stands in argv[0].
        itself.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tests.fuzz.guided {name} "$@"\n', "ascii")
        itself.chmod(0o700)
        options = [*arguments, f"-dict={words}", "-max_len=4096", "-timeout=5", "-print_final_stats=1"]
        atheris.Setup([str(itself), *options], TARGETS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
