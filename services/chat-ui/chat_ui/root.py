"""Chainlit's root: a private copy of the shipped files in a place that can be written.

Chainlit writes beside its configuration when it starts and deletes there when it ends. With a copy the shipped files
may be read-only, belong to another user, and stay as they are.
"""

import shutil
from pathlib import Path

SHIPPED = Path(__file__).resolve().parent.parent
APP_FILE = SHIPPED / "app.py"

# Kinds of Chinese that browsers name, and that would get English without a file of their own.
CHINESE_TAGS = ("zh", "zh-HK", "zh-MO", "zh-SG", "zh-TW")


def fill_root(root: Path) -> None:
    """Copy the shipped files into an empty folder."""
    for folder in (".chainlit", "public"):
        shutil.copytree(SHIPPED / folder, root / folder)
    english, chinese = SHIPPED / "chainlit.md", SHIPPED / "chainlit_zh-CN.md"
    shutil.copyfile(english, root / "chainlit.md")
    shutil.copyfile(english, root / "chainlit_en-US.md")
    translations = root / ".chainlit" / "translations"
    shutil.copyfile(chinese, root / "chainlit_zh-CN.md")
    for tag in CHINESE_TAGS:
        shutil.copyfile(chinese, root / f"chainlit_{tag}.md")
        if tag != "zh-TW":
            shutil.copyfile(translations / "zh-CN.json", translations / f"{tag}.json")
