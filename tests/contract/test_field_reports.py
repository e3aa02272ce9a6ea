"""`docs/field-reports.md` has every row of the groups it covers, and names only tests that there are."""

import ast
import re

import pytest

from tests.conftest import ROOT

STARRED = {"a1", "a2", "b1", "b2", "b6", "b8", "d1", "d6", "f12", "g1"}
ROWS = STARRED | {
    *("a3", "a4", "a6", "a7", "a8", "a9", "a11", "a12"),
    *("b3", "b4", "b7", "b9", "b11", "b13", "b15", "b16", "b17"),
    *("c3", "c5", "c7", "c8", "c10", "c11"),
    *("d3", "d4", "d7", "d8", "d10", "d11", "d12", "d13", "d15", "d16"),
    *("g3", "g6", "g8"),
}
ROW = re.compile(r"^\| ([a-g]\d+)( ★)? \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FOUND = ROW.findall((ROOT / "docs/field-reports.md").read_text(encoding="utf-8"))


def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_row_is_there_once() -> None:
    assert sorted(row for row, *_ in FOUND) == sorted(ROWS)
    assert {row for row, star, *_ in FOUND if star} == STARRED


@pytest.mark.parametrize(("row", "held_by"), [(row, held_by) for row, _, _, held_by in FOUND])
def test_row_is_held_by_tests_that_exist(row: str, held_by: str) -> None:
    tests = TEST.findall(held_by)
    assert tests, f"{row} has no test"
    assert len(set(tests)) == len(tests), f"{row} names a test twice"
    assert held_by.count("::") == len(tests), f"{row} names a test in another form"
    assert [f"{file}::{name}" for file, name in tests if name not in functions_of(file)] == []
