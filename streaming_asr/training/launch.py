"""One process per rank on this machine: the command starts itself once for each."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import torch


def launch(processes: int) -> int | None:
    """Start this very command once per process and return its exit status; None where it should
    just go on itself.

    For one process, or under torchrun or `accelerate launch` (RANK is set), nothing is to do."""
    if processes <= 1 or "RANK" in os.environ:
        return None
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
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
        subprocess.Popen(command, env={**common, "RANK": str(r), "LOCAL_RANK": str(r)})
        for r in range(processes)
    ]
    try:
        # a rank that fails would leave the others waiting for its gradients
        while all(p.poll() is None for p in ranks):
            time.sleep(0.5)
        failed = next((p.returncode for p in ranks if p.poll()), 0)
    except KeyboardInterrupt:
        failed = 130
    for p in ranks:
        if failed:
            p.terminate()
        p.wait()
    return failed or next((p.returncode for p in ranks if p.returncode), 0)
