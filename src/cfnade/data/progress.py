"""A download's progress bar: rich's, in the shape that pooch drives."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn


class DownloadBar:
    """Shown on standard error if that is a terminal, silent otherwise."""

    def __init__(self, name: str) -> None:
        console = Console(stderr=True)
        self.total = 0
        self._progress = Progress(
            TextColumn(name),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(name, total=None)

    def update(self, amount: int) -> None:
        self._progress.start()
        self._progress.update(self._task, total=self.total, advance=amount)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.stop()
