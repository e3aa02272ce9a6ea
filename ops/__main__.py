"""`python -m ops`: the command behind `make up`, `demo`, `down`, `status`, `key` and `account`."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ops import accounts
from ops.errors import StackError
from ops.keys import DEFAULT_FILE, SETTING, add_key, keys_file
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


@app.command()
def account(name: str) -> None:
    """Let a person log in to the chat page; a name that is there already gets the new password."""
    settings = load_settings(ROOT)
    file = accounts.accounts_file(settings)
    console = Console(soft_wrap=True, highlight=False)
    if sys.stdin.isatty():
        password = typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt="Once more")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    is_new = accounts.set_password(file, name, password)
    console.print(f"{name} {'can log in' if is_new else 'has a new password'}; {file} has its hash.", markup=False)
    if settings.environment.get("CHAT_UI_LOGIN") != "password":
        console.print(
            f"Accounts are off. To turn them on: CHAT_UI_LOGIN=password and {accounts.SETTING}={accounts.DEFAULT_FILE} "
            "in .env, then make up.",
            markup=False,
        )


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
