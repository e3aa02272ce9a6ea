"""`python -m ops`: the command behind `make up`, `make demo`, `make down` and `make status`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ops.errors import StackError
from ops.settings import load_settings
from ops.up import bring_up, show_status, take_down

ROOT = Path(__file__).resolve().parent.parent
INTERRUPTED = 130

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


def main() -> None:
    """Run the command; one line and an exit code for what an operator can cure, no traceback."""
    errors = Console(stderr=True, soft_wrap=True)
    try:
        app(standalone_mode=False)
    except StackError as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False)
        raise SystemExit(error.exit_code) from None
    except (KeyboardInterrupt, typer.Abort):
        errors.print("Interrupted.", style="red")
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
