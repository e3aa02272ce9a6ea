"""A report as one HTML file that loads nothing."""

import html
from collections.abc import Sequence

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
td, th { border-bottom: 1px solid #8886; padding: .3rem .6rem; text-align: left; vertical-align: top; }
.pass { color: #15803d; } .fail { color: #dc2626; font-weight: 600; } .skipped { color: #b45309; }
svg { width: 100%; max-width: 44rem; display: block; margin: 1.5rem 0; }
"""


def render(
    title: str, summary: str, head: Sequence[str], rows: Sequence[Sequence[str]], pictures: Sequence[str]
) -> str:
    """Return the page; a cell that is a verdict's word is coloured, and everything is escaped but the pictures."""
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in rows)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>{html.escape(title)}</h1><p>{html.escape(summary)}</p>"
        f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>{''.join(pictures)}</html>\n"
    )


def _cell(text: str) -> str:
    kind = f' class="{text}"' if text in ("pass", "fail", "skipped") else ""
    return f"<td{kind}>{html.escape(text)}</td>"
