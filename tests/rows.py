"""Lists the promises of docs/promises.md that no test proves yet."""

import ast
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "promises.md"
LINE = re.compile(r"^## (?P<section>.+)$|^\| (?P<id>[A-Z]\d+) \| (?P<text>.+) \|$", re.MULTILINE)


class Promise(NamedTuple):
    section: str
    id: str
    text: str


def promises() -> Iterator[Promise]:
    section = ""
    for line in LINE.finditer(PAGE.read_text(encoding="utf-8")):
        section = line["section"] or section
        if line["id"]:
            yield Promise(section, line["id"], line["text"].replace(r"\|", "|"))


def named_ids(path: Path) -> Iterator[tuple[str, str]]:
    """Each id that a `pytest.mark.rows(...)` in the file names, and where."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), path)):
        if isinstance(node, ast.Call) and f".{ast.unparse(node.func)}".endswith(".mark.rows"):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value, f"{path.relative_to(TESTS.parent)}:{argument.lineno}"


def main() -> None:
    promised = list(promises())
    known = {promise.id for promise in promised}
    named = [mark for path in sorted(TESTS.rglob("*.py")) for mark in named_ids(path)]
    if unknown := [f"{place}: {id_} is not in docs/promises.md" for id_, place in named if id_ not in known]:
        sys.exit("\n".join(unknown))

    proven = {id_ for id_, _ in named}
    unproven = [promise for promise in promised if promise.id not in proven]
    for section, group in groupby(unproven, key=lambda promise: promise.section):
        print(section, *(f"  {promise.id:<5} {promise.text}" for promise in group), "", sep="\n")
    print(f"{len(proven)} of {len(promised)} promises have a test")


if __name__ == "__main__":
    main()
