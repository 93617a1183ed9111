"""Digests of source files: what counts as a change, and which files count."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from dtjax.experiment import sources

BEFORE = '''"""Doc."""

class Study:
    """Doc."""

    n: int = 3
    """Workers."""

    def compute(self):
        """Doc."""
        return self.n + 1  # more

    def report(self):
        return "n"
'''


def test_digests_change_with_what_code_does(tmp_path: Path) -> None:
    path = tmp_path / "some.py"

    def of(text: str, study: bool = True) -> str:
        path.write_text(text)
        return sources.digest(path, study)

    first = of(BEFORE)
    same = {
        "docstring": BEFORE.replace("Doc.", "Other words."),
        "field's docstring": BEFORE.replace("Workers.", "How many."),
        "comment": BEFORE.replace("# more", "# one more"),
        "layout": BEFORE.replace("self.n + 1", "(\n    self.n + 1)"),
        "report": BEFORE.replace('"n"', '"m"'),
    }
    other = {
        "default": BEFORE.replace("n: int = 3", "n: int = 4"),
        "compute": BEFORE.replace("+ 1", "+ 2"),
        "another method": BEFORE + "\n    def more(self):\n        return 1\n",
    }
    assert {what for what, text in same.items() if of(text) != first} == set()
    assert {what for what, text in other.items() if of(text) == first} == set()
    # In the library a method of that name may well be what a cell runs.
    assert of(same["report"], study=False) != of(BEFORE, study=False)


def test_loaded_files_of_the_library_and_the_study_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = {"one.py": "study/one.py", "sub/two.py": "study/sub/two.py"}
    for place in (*inside, "unused.py", "env/site-packages/three.py"):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
        if place != "unused.py":
            module = ModuleType(path.stem)
            module.__file__ = str(path)
            monkeypatch.setitem(sys.modules, f"tested_{path.stem}", module)
    found = sources.loaded(tmp_path)
    assert {name for name in found if name.startswith("study/")} == set(inside.values())
    assert "dtjax/experiment/sources.py" in found and "dtjax/__init__.py" in found
    assert sources.unchanged(found, tmp_path)
    (tmp_path / "unused.py").write_text("x = 2\n")
    assert sources.unchanged(found, tmp_path)
    (tmp_path / "one.py").write_text("x = 20\n")
    assert not sources.unchanged(found, tmp_path)
    (tmp_path / "one.py").write_text("x = 1\n")
    assert sources.unchanged(found, tmp_path)
    (tmp_path / "sub/two.py").unlink()
    assert not sources.unchanged(found, tmp_path)
    assert not sources.unchanged({"study/one.py": found["study/one.py"]}, None)
