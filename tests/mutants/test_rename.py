"""rename.py changes the paths of a moved file or folder, and nothing else."""

from __future__ import annotations

from tests.mutants.rename import rename

ENTRIES = """
[[mutant]]
file = 'src/a/near.py'
old = 'src/a/near.py'
new = '''file = 'src/a/near.py\\n'''
tests = 'tests/test_near.py tests/a/test_near.py::test_one tests/a/test_nearer.py'

[[mutant]]
file = "src/a/near.pyx"
old = 'src/a'
new = 'src/b'
tests = 'tests/a'
"""


def test_a_moved_source_file_changes_one_entry() -> None:
    text, count = rename(ENTRIES, "src/a/near.py", "src/b/far.py")
    assert count == 1
    assert text == ENTRIES.replace("file = 'src/a/near.py'\nold", "file = 'src/b/far.py'\nold")


def test_a_moved_test_keeps_the_name_of_the_function() -> None:
    text, count = rename(ENTRIES, "tests/a/test_near.py", "tests/b/test_far.py")
    assert count == 1
    assert text == ENTRIES.replace("tests/a/test_near.py::", "tests/b/test_far.py::")


def test_a_moved_folder_changes_every_path_in_it() -> None:
    text, count = rename(ENTRIES, "tests/a/", "tests/components")
    assert count == 3
    assert text == ENTRIES.replace("tests/a", "tests/components")


def test_an_unknown_path_changes_nothing() -> None:
    assert rename(ENTRIES, "near.py", "far.py") == (ENTRIES, 0)
