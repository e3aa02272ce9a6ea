r"""How an answer is written for Chainlit's Markdown, so that it shows what the model wrote.

Chainlit's page reads `a:b` as a directive and drops `b`, takes `$5 and $10` for mathematics, leaves `\(x\)` and
`\[x\]` as plain brackets, strikes out what stands between two `~`, and loads images from anywhere. `Presenter`
escapes and rewrites these outside code and mathematics. The text for the model stays as it is.

Works line by line, so that a long answer costs no more per word than a short one. Code indented by four spaces is
not told from a nested list: a colon in it gets a backslash.
"""

import re
from dataclasses import dataclass

FENCE = re.compile(r"^[ \t>]*(?P<mark>`{3,}|~{3,})(?P<rest>.*)$")
BLOCK_OPEN = re.compile(r"(?<!\\)(?:\\\[|\$\$)")
BLOCK_MARKS = {r"\[": r"\]", "$$": "$$"}

# A mark that opens mathematics without its closing mark, or half of such a mark, at the end of an unfinished line.
HALF_MATHEMATICS = re.compile(r"\\\((?:(?!\\\)).)*$|\\\[|\$\$|\\$")

# Longest mathematics waited for; a mark that is never closed is shown as text after this many characters.
MAX_BLOCK_CHARACTERS = 4000

# In this order: code, inline mathematics, then single characters. `$…$` by pandoc's rule: no space inside its ends,
# no letter or digit right after it, so that sums of money stay money.
INLINE = re.compile(
    r"(?P<code>(?<!`)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`))"
    r"|\\\((?P<bracket>.+?)\\\)"
    r"|(?P<math>(?<![\\$])\$(?![\s$])(?:[^$\\]|\\.)*?(?<!\s)\$(?![0-9A-Za-z$]))"
    r"|(?P<escaped>\\.)"
    r"|(?P<money>\$)"
    r"|(?P<colon>:)(?=[A-Za-z])"
    r"|(?P<image>!)(?=\[)"
    r"|(?P<tilde>(?<!~)~(?!~))"
)


def show_inline(text: str) -> str:
    """Rewrite one line, or a part of one, that stands outside code blocks and display mathematics."""
    return INLINE.sub(_replace, text.replace("\u200b", ""))


def _replace(match: re.Match[str]) -> str:
    if match["bracket"]:
        return f"${match['bracket'].strip()}$"
    if match["money"] or match["colon"] or match["image"] or match["tilde"]:
        return "\\" + match[0]
    return match[0]


@dataclass(slots=True)
class _Block:
    """Display mathematics that waits for its closing mark."""

    mark: str
    indent: str
    body: str = ""


def _as_text(block: _Block) -> str:
    return show_inline(f"{block.mark}{block.body}".replace("\\", "\\\\"))


class Presenter:
    """Turns the raw text of one answer, fed piece by piece, into Markdown for the page."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._line = ""
        self._fence = ""
        self._block: _Block | None = None

    def feed(self, text: str) -> None:
        """Take the next piece of raw text."""
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._shown.append(self._finish_line(line.removesuffix("\r")))

    def take_finished(self) -> str:
        """Return the Markdown of lines finished since the last call; it never changes again."""
        finished = "".join(self._shown)
        self._shown.clear()
        return finished

    @property
    def unfinished(self) -> str:
        """Markdown of the line still being written; the next piece may change it."""
        if self._block or not self._line:
            return ""
        if self._fence or FENCE.match(self._line):
            return self._line
        # What may become mathematics is not shown half: it would flash as brackets.
        half = HALF_MATHEMATICS.search(self._line)
        return show_inline(self._line[: half.start()] if half else self._line)

    def close(self) -> str:
        """End the text and return the Markdown not yet taken; open mathematics is shown as text."""
        line, self._line = self._line, ""
        if line:
            self._shown.append(self._finish_line(line).removesuffix("\n"))
        if self._block:
            self._shown.append(_as_text(self._block).removesuffix("\n"))
            self._block = None
        return self.take_finished()

    def _finish_line(self, line: str) -> str:
        if self._block:
            return self._continue_block(line)
        fence = FENCE.match(line)
        if self._fence:
            if fence and fence["mark"].startswith(self._fence) and not fence["rest"].strip():
                self._fence = ""
            return line + "\n"
        if fence and not (fence["mark"][0] == "`" and "`" in fence["rest"]):
            self._fence = fence["mark"]
            return line + "\n"
        return self._open_blocks(line)

    def _open_blocks(self, line: str) -> str:
        """Show a line of text; display mathematics in it gets lines of its own."""
        code_spans = [match.span() for match in INLINE.finditer(line) if match["code"]]
        for opening in BLOCK_OPEN.finditer(line):
            if any(start <= opening.start() < end for start, end in code_spans):
                continue
            before = line[: opening.start()]
            indent = line[: len(line) - len(line.lstrip(" \t"))]
            self._block = _Block(mark=opening[0], indent=indent)
            head = show_inline(before) + "\n" if before.strip() else ""
            return head + self._continue_block(line[opening.end() :])
        return show_inline(line) + "\n"

    def _continue_block(self, line: str) -> str:
        block = self._block
        if block is None:
            return ""
        body, mark, rest = line.partition(BLOCK_MARKS[block.mark])
        block.body += body
        if not mark:
            block.body += "\n"
            if len(block.body) <= MAX_BLOCK_CHARACTERS:
                return ""
            self._block = None
            return _as_text(block)
        self._block = None
        inner = "\n".join(block.indent + row.strip() for row in block.body.strip().split("\n"))
        shown = f"{block.indent}$$\n{inner}\n{block.indent}$$\n"
        return shown + (self._open_blocks(block.indent + rest.lstrip()) if rest.strip() else "")
