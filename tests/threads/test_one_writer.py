"""Who makes rows of turns, by the code itself."""

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("threads", "usermemory", "workingmemory", "memorygw")
MAKES_ROWS = ("create", "bulk_create", "get_or_create", "update_or_create")


def makers_of_turns(source: str) -> set[str]:
    """Names of the functions in this code that make rows of turns; instead of a private one, those that use it."""
    units = list(units_of(ast.parse(source)))
    makers = {name for name, node in units if any(map(makes_a_turn, ast.walk(node)))}
    while users := {name for name, node in units if names_in(node) & private(makers)} - makers:
        makers |= users
    used = {used for name, node in units for used in names_in(node) if used != name}
    return makers - (private(makers) & used)


def units_of(module: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Functions and methods, each with its name; what stands outside of them is ``<module>``."""
    for node in module.body:
        for part in node.body if isinstance(node, ast.ClassDef) else [node]:
            yield (part.name if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) else "<module>"), part


def makes_a_turn(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    manager, _, method = called.rpartition(".")
    by_manager = method.removeprefix("a") in MAKES_ROWS and re.search(r"\b(?:Turn|turns)\b", manager)
    return bool(by_manager or re.fullmatch(r"(?:\w+\.)*Turn", called))


def names_in(node: ast.AST) -> set[str]:
    parts = list(ast.walk(node))
    attributes = {part.attr for part in parts if isinstance(part, ast.Attribute)}
    return attributes | {part.id for part in parts if isinstance(part, ast.Name)}


def private(names: Collection[str]) -> set[str]:
    return {name for name in names if name.startswith("_")}


@pytest.mark.rows("T58")
def test_one_method_of_the_code_writes_turns() -> None:
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py") if "migrations" not in file.parts]
    assert len(files) > 40
    found = {(file.relative_to(ROOT).as_posix(), name) for file in files for name in makers_of_turns(file.read_text())}
    assert found == {("threads/store.py", "append_turns")}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def note(thread):\n    Turn(thread=thread).save()", {"note"}),
        ("class Store:\n    def note(self):\n        models.Turn.objects.create(seq=1)", {"note"}),
        ("async def note(rows):\n    await Turn.objects.abulk_create(rows)", {"note"}),
        ("def note(thread):\n    thread.turns.create(seq=1)", {"note"}),
        ("def _make():\n    return Turn()\ndef note():\n    _make()\ndef read():\n    pass", {"note"}),
        ("def _make():\n    return Turn()\ndef _more():\n    _make()\ndef note(self):\n    self._more()", {"note"}),
        ("class A:\n    def note():\n        Turn()\nclass B:\n    def note():\n        pass", {"note"}),
        ("Turn.objects.create()\nimport os", {"<module>"}),
        ("def _note(**_):\n    Turn().save()", {"_note"}),
        ("def read():\n    return TurnDraft(), Turn.objects.filter(seq=1), Run.objects.create()", set()),
    ],
)
def test_whoever_makes_turns_is_found(code: str, found: set[str]) -> None:
    assert makers_of_turns(code) == found
