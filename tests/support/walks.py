"""List the functions of the package that a call enters, to limit what a reader has to follow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import cfnade

ROOT = str(Path(cfnade.__file__).parent)


def entered_functions(call: Callable[[], object]) -> set[CodeType]:
    """Return the package's functions that a call enters: no comprehensions, lambdas or imports."""
    entered = set[CodeType]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(ROOT) or code.co_name[0] == "<":
            return
        caller: FrameType | None = frame
        while caller is not None and caller.f_code.co_name != "<module>":
            caller = caller.f_back
        if caller is None or not caller.f_code.co_filename.startswith(ROOT):
            entered.add(code)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered
