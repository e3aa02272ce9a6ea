"""`python -m ops`: what make runs to start, watch, examine and try the stack, and to make keys and accounts."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ops import accounts
from ops.acceptance import run as acceptance
from ops.doctor import show
from ops.doctor.configuration import read_settings
from ops.doctor.examination import examine
from ops.doctor.report import pack
from ops.doctor.show import line_of
from ops.doctor.signatures import ALL
from ops.errors import StackError
from ops.keys import DEFAULT_FILE, SETTING, add_key, keys_file
from ops.settings import load_settings
from ops.soak import run as soaking
from ops.soak.sample import Sample
from ops.status import show_status
from ops.up import bring_up, take_down

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
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """Show what runs, how far it is, its versions, the card, and tokens a second."""
    if not show_status(load_settings(ROOT), Console(soft_wrap=True), watch=watch, as_json=as_json):
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
def accept(
    recovery: Annotated[bool, typer.Option("--recovery", help="Kill the engine, too, and see it come back.")] = False,
    as_json: Json = False,
) -> None:
    """Run the acceptance test against the running stack, through nginx."""
    settings = load_settings(ROOT)
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    result = acceptance.accept(
        settings,
        recovery=recovery,
        on_check=lambda check: console.print(f"{check.verdict:8} {check.name}: {check.measured}", markup=False),
    )
    files = acceptance.write(result, settings.run_dir)
    if as_json:
        sys.stdout.write(result.as_json() + "\n")
    else:
        acceptance.print_table(result, Console())
    console.print(f"Report: {files[1]}", markup=False)
    if not result.is_accepted:
        raise typer.Exit(1)


@app.command()
def soak(
    hours: Annotated[float, typer.Option(min=0.001, help="How long.")] = 1.0,
    streams: Annotated[int, typer.Option(min=1, max=256, help="How many ask at a time.")] = soaking.STREAMS,
    per_minute: Annotated[float, typer.Option(min=1, help="How many questions a minute.")] = soaking.PER_MINUTE,
    as_json: Json = False,
) -> None:
    """Load the running stack for hours; see whether anything grows, slows or restarts. Ctrl-C ends it in order."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)

    def show_sample(sample: Sample) -> None:
        memory = ", ".join(f"{name} {usage.memory_bytes / 1e6:.0f}" for name, usage in sample.usage.items())
        faults = sum(sample.faults.values())
        console.print(
            f"{sample.at_seconds:8.0f} s  {sample.asked:4} asked, {faults} faults,"
            f" first token {sample.first_token_p50_seconds:.2f} s; MB: {memory}",
            markup=False,
        )

    result, folder = soaking.soak(
        load_settings(ROOT), hours=hours, streams=streams, per_minute=per_minute, on_sample=show_sample
    )
    if as_json:
        sys.stdout.write(result.as_json() + "\n")
    else:
        for finding in result.findings:
            word = "[green]pass[/]" if finding.is_good else "[red]fail[/]"
            console.print(f"{word}  {finding.name}: {finding.measured} ({finding.limit})")
        console.print(result.summary, markup=False)
    console.print(f"Report: {folder}/report.html", markup=False)
    if not result.is_good:
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
