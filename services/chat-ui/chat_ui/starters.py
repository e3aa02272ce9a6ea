"""Questions to begin with: what a model of 0.3 billion parameters does well, in Chinese and in English."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StarterText:
    """What the button says, what is asked, which icon it wears."""

    label: str
    message: str
    icon: str


# Texts come with the question: such a model knows little, and works best on what stands before it.
CHINESE_STARTERS = (
    StarterText("写一首短诗", "写一首诗。", "/public/icons/feather.svg"),
    StarterText("润色一句话", "把这句话改得更礼貌：你怎么还没交报告？", "/public/icons/pen.svg"),
    StarterText(
        "概括一段话",
        "用一句话概括：昨天下午，市图书馆新馆正式开放。新馆共有六层，藏书两百万册，设有儿童阅览室和自习室，"
        "每天从早上九点开到晚上九点，市民凭身份证即可免费入馆。",
        "/public/icons/list.svg",
    ),
    StarterText("解释古文", "用现代汉语解释：学而不思则罔，思而不学则殆。", "/public/icons/scroll.svg"),
    StarterText("翻译成英文", "翻译成英文：今天天气很好，我们去公园散步吧。", "/public/icons/languages.svg"),
    StarterText("写一段代码", "用 Python 写一个函数，判断一个数是不是质数。", "/public/icons/code.svg"),
)

ENGLISH_STARTERS = (
    StarterText("Write a short poem", "Write a poem.", "/public/icons/feather.svg"),
    StarterText("Make it polite", "Make this sentence polite: Where is the report?", "/public/icons/pen.svg"),
    StarterText(
        "Sum up a text",
        "Sum this up in one sentence: The new city library opened yesterday afternoon. It has six floors, two million "
        "books, a reading room for children and quiet desks for students. It is open from nine to nine every day, and "
        "entry is free.",
        "/public/icons/list.svg",
    ),
    StarterText(
        "Explain a classic",
        "Explain this line of Confucius in plain English: 学而不思则罔，思而不学则殆。",
        "/public/icons/scroll.svg",
    ),
    StarterText(
        "Translate to Chinese",
        "Translate into Chinese: The weather is lovely today, let us take a walk.",
        "/public/icons/languages.svg",
    ),
    StarterText(
        "Write some code",
        "Write a Python function that tells whether a number is prime.",
        "/public/icons/code.svg",
    ),
)


def starters_for(language: str) -> tuple[StarterText, ...]:
    """Return the starters of `zh` or of `en`."""
    return CHINESE_STARTERS if language == "zh" else ENGLISH_STARTERS
