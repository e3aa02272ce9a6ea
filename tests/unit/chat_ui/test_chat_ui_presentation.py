"""What the page shows of what the model wrote."""

import pytest
from chat_ui.presentation import MAX_BLOCK_CHARACTERS, Presenter


def present(text: str, piece_length: int = 1) -> str:
    presenter = Presenter()
    shown = ""
    for start in range(0, len(text), piece_length):
        presenter.feed(text[start : start + piece_length])
        shown += presenter.take_finished()
        assert isinstance(presenter.unfinished, str)
    return shown + presenter.close()


CASES = {
    "colon before a letter": ("a:b, key:value", r"a\:b, key\:value"),
    "colon elsewhere": ("12:30, https://x.org, 例:果, a: b", "12:30, https://x.org, 例:果, a: b"),
    "colon in inline code": ("`a:b` c:d ``e`:f``", r"`a:b` c\:d ``e`:f``"),
    "colon in a code block": ("```py\na:b $5\n```\nc:d", "```py\na:b $5\n```\nc\\:d"),
    "tilde fence with backticks in it": ("~~~\n```\na:b\n~~~\nc:d", "~~~\n```\na:b\n~~~\nc\\:d"),
    "fence in a list": ("- x\n  ```\n  a:b\n  ```", "- x\n  ```\n  a:b\n  ```"),
    "unclosed fence": ("```\na:b", "```\na:b"),
    "money": ("$5 and $10, or US$3/$4", r"\$5 and \$10, or US\$3/\$4"),
    "variables": ("$HOME:$PATH", r"\$HOME:\$PATH"),
    "dollar mathematics": ("设$x:y$为 $5x+3$", "设$x:y$为 $5x+3$"),
    "round brackets": (r"so \( a:b \) holds", "so $a:b$ holds"),
    "square brackets": ("\\[\nx:y\n\\]\nend", "$$\nx:y\n$$\nend"),
    "square brackets in a line": (r"so \[x\] and \[y\].", "so \n$$\nx\n$$\nand \n$$\ny\n$$\n."),
    "double dollars in a line": ("$$x$$", "$$\nx\n$$"),
    "double dollars over lines": ("$$ a\nb $$ c:d", "$$\na\nb\n$$\nc\\:d"),
    "brackets in code": (r"`\(x\)` `\[y\]`", r"`\(x\)` `\[y\]`"),
    "unclosed round bracket": (r"\( a:b", r"\( a\:b"),
    "unclosed square bracket": (r"\[ x", r"\\[ x"),
    "escaped dollar": (r"\$5", r"\$5"),
    "image": ("![cat](http://x/c.png) [a](b)", r"\![cat](http://x/c.png) [a](b)"),
    "ranges": ("3~5 and 7~9, ~~gone~~", r"3\~5 and 7\~9, ~~gone~~"),
    "cursor mark": ("a\u200bb", "ab"),
    "windows newlines": ("a\r\nb:c", "a\nb\\:c"),
    "table": ("|a|b|\n|-|-|\n|k:v|$5|", "|a|b|\n|-|-|\n|k\\:v|\\$5|"),
}


@pytest.mark.parametrize(("text", "shown"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("piece_length", [1, 2, 3, 1000])
def test_page_shows_what_the_model_wrote(text: str, shown: str, piece_length: int) -> None:
    assert present(text, piece_length) == shown


def test_words_are_shown_while_the_line_is_written() -> None:
    presenter = Presenter()
    presenter.feed("first:second and")
    assert presenter.unfinished == r"first\:second and"
    presenter.feed(r" \(x")
    assert presenter.unfinished == r"first\:second and "
    presenter.feed(r"\) done")
    assert presenter.unfinished == r"first\:second and $x$ done"


def test_mathematics_that_never_ends_is_shown_as_text() -> None:
    text = "\\[\n" + "x\n" * MAX_BLOCK_CHARACTERS
    presenter = Presenter()
    presenter.feed(text)
    assert presenter.take_finished().startswith("\\\\[\nx\n")
