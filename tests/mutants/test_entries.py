"""Every deliberate fault still applies and names existing tests."""

from __future__ import annotations

from collections import Counter

from tests.mutants.run import ENTRIES, ROOT, Mutant, read_mutants


def find_faults(mutant: Mutant, source: str) -> list[str]:
    """Return what is wrong with an entry, given the text of its source file."""
    count = source.count(mutant.old)
    faults = [] if count == 1 else [f"occurs {count} times instead of once"]
    if mutant.new == mutant.old:
        faults.append("changes nothing")
    paths = [test.partition("::")[0] for test in mutant.tests.split()]
    return faults + [f"{path} does not exist" for path in paths if not (ROOT / path).exists()]


def test_every_fault_applies_once() -> None:
    sources = {path: (ROOT / path).read_text("utf-8") for path in {m.file for m in read_mutants()}}
    faults = [
        f"{mutant}: {fault}"
        for mutant in read_mutants()
        for fault in find_faults(mutant, sources[mutant.file])
    ]
    assert faults == []


def test_faults_are_listed_once_in_the_file_of_their_package() -> None:
    repeated = [entry for entry, count in Counter(read_mutants()).items() if count > 1]
    assert repeated == []
    assert {path.stem for path in ENTRIES} == {mutant.package for mutant in read_mutants()}
    for path in ENTRIES:
        assert {mutant.package for mutant in read_mutants([path])} == {path.stem}


def test_an_outdated_entry_is_noticed() -> None:
    mutant = Mutant("src/cfnade/a.py", "x = 1", "x = 2", "tests/conftest.py tests/missing.py::test")
    assert find_faults(mutant, "x = 1\n") == ["tests/missing.py does not exist"]
    assert len(find_faults(mutant, "x = 1\nx = 1\n")) == 2
