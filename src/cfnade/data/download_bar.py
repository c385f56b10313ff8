"""How far a download is, on standard error if that is a terminal."""

from __future__ import annotations


class DownloadBar:
    """Rich's, in the shape that pooch drives."""

    def __init__(self, name: str) -> None:
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        self.total = 0
        columns = (progress.BarColumn(), progress.DownloadColumn(), progress.TransferSpeedColumn())
        self._progress = progress.Progress(
            progress.TextColumn(name), *columns, console=console, disable=not console.is_terminal
        )
        self._task = self._progress.add_task(name, total=None)

    def update(self, amount: int) -> None:
        self._progress.start()
        self._progress.update(self._task, total=self.total, advance=amount)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.stop()
