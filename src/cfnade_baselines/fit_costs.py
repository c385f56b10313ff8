"""What a fit costs: cores' seconds and memory."""

from __future__ import annotations

import os
import resource
from pathlib import Path


def cpu_seconds() -> float:
    """Of all threads and of processes that have ended: on a busy machine the fairer clock."""
    return sum(os.times()[:4])


def peak_mb() -> float | None:
    """The peak memory of this process, or of the largest that it ran; None if unknown.

    The kernel's own count of this process is no use: it starts with the parent's.
    """
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    own = [float(line.split()[1]) for line in lines if line.startswith("VmHWM")]
    if not own:
        return None
    return max(own[0], resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024
