"""One process per rank on this machine: the command starts itself once for each."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import torch


def launch(processes: int) -> int | None:
    """Run this command again once per rank, and return the exit status of the first that failed, 0
    where none did.

    Return None where this process is itself the training: with one process, or under torchrun or
    `accelerate launch` (RANK is set). Ctrl-C ends all ranks, with 130."""
    if processes <= 1 or "RANK" in os.environ:
        return None
    import socket

    with socket.socket() as probe:  # a port that is free now
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {
        **os.environ,
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "ACCELERATE_USE_CPU": "true" if not torch.cuda.is_available() else "false",
    }
    command = [sys.executable, *sys.orig_argv[1:]]
    ranks = [
        subprocess.Popen(command, env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(processes)
    ]
    try:
        is_running = True
        status = 0
        while is_running and not status:
            time.sleep(0.5)
            codes = [rank.poll() for rank in ranks]
            is_running = None in codes
            status = next((code for code in codes if code), 0)
    except KeyboardInterrupt:
        status = 130
    for rank in ranks:
        if status:  # else the others would wait for the gradients of the one that failed
            rank.terminate()
        rank.wait()
    return status
