"""The machine that is measured: what it is called, its memory, and how fast that is read."""

from __future__ import annotations

import platform
import resource
import sys
import time
from pathlib import Path

import psutil
import torch


def device_name(device: str) -> str:
    """Name of the card, or the number of CPU threads."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device).replace(" ", "-")
    return f"cpu-{torch.get_num_threads()}-threads"


def processor(device: str) -> str:
    """Name of the card or of the CPU: figures of two are not put into one table."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    path = Path("/proc/cpuinfo")  # of Linux, which names the model on some processors only
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def memory(device: str) -> int:
    """Bytes of memory that the device has."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_properties(device).total_memory
    return psutil.virtual_memory().total


def free_memory(device: str) -> int:
    """Bytes of it that a process can still have."""
    return torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else psutil.virtual_memory().available


def peak_memory() -> int:
    """Most bytes of main memory that this process ever held."""
    unit = 1 if sys.platform == "darwin" else 1024  # of `ru_maxrss`
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def copy_bandwidth(device: str) -> float:
    """Bytes read per second by a large sum, the best of several: what a decode step does with weights and cache."""
    source = torch.ones((1 << 30) // 4 if device.startswith("cuda") else (1 << 28) // 4, device=device)
    best = 0.0
    for _ in range(8):
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        started = time.perf_counter()
        source.sum().item()
        best = max(best, source.nbytes / (time.perf_counter() - started))
    del source
    if device.startswith("cuda"):
        torch.cuda.empty_cache()  # configurations run in other processes
    return best
