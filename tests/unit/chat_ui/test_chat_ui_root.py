"""Chainlit's root is a copy."""

import json
from pathlib import Path

from chat_ui.root import SHIPPED, fill_root


def test_root_is_a_copy_that_chainlit_may_write_to(tmp_path: Path) -> None:
    before = sorted(path for path in SHIPPED.rglob("*") if "__pycache__" not in path.parts)
    root = tmp_path
    fill_root(root)
    assert (root / "public/katex/katex.min.css").is_file()
    (root / ".files").mkdir()
    assert sorted(path for path in SHIPPED.rglob("*") if "__pycache__" not in path.parts) == before


def test_every_kind_of_chinese_has_its_page_in_chinese(tmp_path: Path) -> None:
    root = tmp_path
    fill_root(root)
    for tag in ("zh", "zh-CN", "zh-HK", "zh-TW"):
        assert "回答" in (root / f"chainlit_{tag}.md").read_text(encoding="utf-8")
    hong_kong = json.loads((root / ".chainlit/translations/zh-HK.json").read_text(encoding="utf-8"))
    assert hong_kong["chat"]["input"]["actions"]["stop"] == "停止"


def test_shipped_files_name_no_foreign_host() -> None:
    for path in [*SHIPPED.glob("public/*.css"), *SHIPPED.glob("public/*.js"), SHIPPED / "public/katex/katex.min.css"]:
        assert "//" not in path.read_text(encoding="utf-8").replace("// ", ""), path
    assert json.loads((SHIPPED / "public/theme.json").read_text(encoding="utf-8"))["custom_fonts"] == []
