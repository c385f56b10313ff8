"""When a new model is looked for: at the start, on SIGHUP, and now and then if asked to watch."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cfnade.serve.loading import Models

_SIGNAL = getattr(signal, "SIGHUP", None)  # there is none on Windows


@asynccontextmanager
async def keep_fresh(models: Models, watch: float | None) -> AsyncIterator[None]:
    """Load the model if there is none yet; inside, reload it on SIGHUP and when it changes."""
    if not models.ready:
        await asyncio.to_thread(models.load)
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    listens = _SIGNAL is not None and threading.current_thread() is threading.main_thread()
    if _SIGNAL is not None and listens:
        loop.add_signal_handler(_SIGNAL, asked.set)
    task = asyncio.create_task(_refresh(models, asked, watch))
    try:
        yield
    finally:
        if _SIGNAL is not None and listens:
            loop.remove_signal_handler(_SIGNAL)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _refresh(models: Models, asked: asyncio.Event, watch: float | None) -> None:
    while True:
        try:
            async with asyncio.timeout(watch):
                await asked.wait()
            wanted = True
        except TimeoutError:
            wanted = await asyncio.to_thread(models.changed)
        asked.clear()
        if wanted:
            await asyncio.to_thread(models.reload)
