"""`python -m ops`: the command behind `make up`, `down`, `status`, `doctor`, `report`, `accept`, `soak` and `key`."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ops.doctor import show
from ops.doctor.configuration import read_settings
from ops.doctor.examination import examine
from ops.doctor.report import pack
from ops.doctor.show import line_of
from ops.doctor.signatures import ALL
from ops.errors import StackError
from ops.keys import DEFAULT_FILE, SETTING, add_key, keys_file
from ops.settings import load_settings
from ops.up import bring_up, show_status, take_down

ROOT = Path(__file__).resolve().parent.parent
INTERRUPTED = 130

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)


@app.command()
def up(
    demo: Annotated[bool, typer.Option("--demo", help="Serve the bundled demo model.")] = False,
) -> None:
    """Start the stack; print the address once a real answer has come back."""
    bring_up(load_settings(ROOT), Console(soft_wrap=True), demo=demo)


@app.command()
def down() -> None:
    """Stop everything; weights and caches stay."""
    take_down(load_settings(ROOT), Console(soft_wrap=True))


@app.command()
def status() -> None:
    """Show what runs and whether it answers."""
    if not show_status(load_settings(ROOT), Console(soft_wrap=True)):
        raise typer.Exit(1)


@app.command()
def doctor(
    known: Annotated[bool, typer.Option("--list", help="Print the known signs, one a line.")] = False,
    as_json: Json = False,
) -> None:
    """Say what is wrong, why, and what cures it."""
    console = Console(soft_wrap=True)
    if known:
        for signature in ALL:
            console.print(line_of(signature), markup=False, highlight=False)
        return
    examination = examine(ROOT)
    if as_json:
        sys.stdout.write(show.as_json(examination) + "\n")
    else:
        show.print_findings(examination, console)
    if not examination.is_well:
        raise typer.Exit(1)


@app.command()
def report() -> None:
    """Pack what was seen for somebody else to read, without secrets and prompts."""
    settings, _ = read_settings(ROOT)
    path, sizes = pack(examine(ROOT), settings.run_dir)
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{path} holds, without secrets, prompts and clients' addresses:", markup=False)
    for name, size in sizes.items():
        console.print(f"  {size:9} bytes  {name}", markup=False)


@app.command()
def key(name: str, tier: str = "default") -> None:
    """Make an API key and show it, this once."""
    settings = load_settings(ROOT)
    file = keys_file(settings)
    made = add_key(file, name, tier)
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"Key of {name}, shown this once; {file} has its hash:\n\n    {made}\n", markup=False)
    if not settings.environment.get(SETTING):
        console.print(f"Keys are off. To turn them on: {SETTING}={DEFAULT_FILE} in .env, then make up.", markup=False)


def main() -> None:
    """Run the command; one line and an exit code for what an operator can cure, no traceback."""
    errors = Console(stderr=True, soft_wrap=True)
    try:
        code = app(standalone_mode=False)
    except StackError as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False)
        raise SystemExit(error.exit_code) from None
    except (KeyboardInterrupt, typer.Abort):
        errors.print("Interrupted.", style="red")
        raise SystemExit(INTERRUPTED) from None
    # Typer hands the code of its Exit back here.
    raise SystemExit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
