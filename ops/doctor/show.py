"""What the doctor found, for people and for scripts."""

import json
from typing import Any

from rich.console import Console

from ops.doctor.age import in_words
from ops.doctor.diagnosis import Finding
from ops.doctor.examination import Examination
from ops.doctor.signature import LOGS, Signature, Source

EXCERPT_LINES = 15
SHOWN_CHARACTERS = 300


def print_findings(examination: Examination, console: Console) -> None:
    """Print cause, evidence and cure of each; of unknown trouble the right excerpts, and how to report it."""
    for number, finding in enumerate(examination.findings, start=1):
        console.print(f"\n[bold]{number}. {finding.signature.id}[/] ({_when(finding)})")
        _print(console, "cause", finding.cause)
        for line in finding.lines:
            _print(console, finding.source, line)
        if finding.count > len(finding.lines):
            _print(console, finding.source, f"... {finding.count} such lines in all")
        _print(console, "cure", finding.cure)
    if examination.is_well:
        console.print("[green]Nothing is wrong that is known here; the stack answers.[/]")
    elif not any(not finding.is_past for finding in examination.findings):
        _print_unknown(examination, console)


def as_json(examination: Examination) -> str:
    """Return the same as JSON."""
    findings: list[dict[str, Any]] = [
        {
            "id": finding.signature.id,
            "kind": finding.signature.kind,
            "source": finding.source,
            "past": finding.is_past,
            "seconds_ago": None if finding.seconds_ago is None else round(finding.seconds_ago),
            "count": finding.count,
            "lines": finding.lines,
            "cause": finding.cause,
            "cure": finding.cure,
        }
        for finding in examination.findings
    ]
    whole = {"well": examination.is_well, "answers": examination.answers, "findings": findings}
    return json.dumps(whole, ensure_ascii=False, indent=1)


def line_of(signature: Signature) -> str:
    """Return a signature on one line."""
    cause = signature.cause.replace("{", "<").replace("}", ">")
    return f"{signature.id:32} {signature.kind:16} {'/'.join(signature.looks_at):24} {cause}"


def _when(finding: Finding) -> str:
    ago = [] if finding.seconds_ago is None else [f"{in_words(finding.seconds_ago)} ago"]
    return ", ".join(["earlier", *ago, "over by now"] if finding.is_past else [finding.signature.kind, *ago])


def _print_unknown(examination: Examination, console: Console) -> None:
    console.print("\n[yellow]Something is wrong, and none of the known signs shows.[/] What was seen:")
    for source in (Source.ANSWER, Source.STATES, Source.READINESS):
        for line in examination.evidence.get(source, ()):
            _print(console, source, line)
    for source in LOGS:
        if source.value in examination.unwell:
            for line in list(examination.evidence.get(source, ()))[-EXCERPT_LINES:]:
                _print(console, source, line)
    console.print("To report it: make report packs logs and states, without secrets and prompts; attach that file.")


def _print(console: Console, label: str, text: str) -> None:
    console.print(f"   {label:10} {text[:SHOWN_CHARACTERS]}", markup=False, highlight=False)
