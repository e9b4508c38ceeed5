"""A sweep on a real Slurm of one node with two slots, started on this machine's loopback.

    python -m experiments.slurm

Needs root, slurmctld, slurmd, the client commands and munge (`make slurm` installs them with apt).
A sweep of two cells in two pieces each runs through Hydra's launcher of Slurm jobs; one job is
killed, the same command completes it, and the texts are held against a run without Slurm. The
daemons end with the program.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from streaming_asr.errors import UserError
from streaming_asr.events.log import read_log
from streaming_asr.terminal import exit_status

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo", "munged")
SWEEP = (
    *("-m", "method=offline,whisperrt", "model=mini", "data=mini", "chunk=300ms", "limit=4"),
    *("tracker=none", "threads=1"),
)
ON_SLURM = (
    *("hydra/launcher=slurm", "hydra.launcher.partition=main", "pieces=2"),
    *("hydra.launcher.gpus_per_node=null", "hydra.launcher.cpus_per_task=1"),
    *("hydra.launcher.mem_gb=4", "hydra.launcher.timeout_min=10"),
)
PATIENCE_S = 900

CONFIGURATION = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory_mb} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def main() -> int:
    """Run it and return the exit status: 0 where the completed sweep equals the one without."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        raise UserError(
            f"no Slurm to start here (missing: {', '.join(missing) or 'root'}); as root: apt-get "
            "install --no-install-recommends slurmctld slurmd slurm-client munge"
        )
    # A script's shell starts its background with SIGINT ignored, and the sweep would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, cluster(Path(folder)):
        work = Path(folder) / "work"
        killed(work)
        completed = sweep(work, *ON_SLURM)
        if completed.wait(PATIENCE_S):
            raise UserError("the sweep was not completed by the same command; see above")
        if sweep(work, "name=unbroken").wait(PATIENCE_S):
            raise UserError("the sweep without Slurm failed; see above")
        return compare(work / "outputs" / "default", work / "outputs" / "unbroken")


@contextmanager
def cluster(folder: Path) -> Iterator[None]:
    """Start munge and Slurm with everything they write in `folder`; end them by their pid files."""
    for name in ("state", "spool", "work"):
        (folder / name).mkdir()
    folder.chmod(0o755)  # munge's clients go through it
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    configuration = folder / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(
            host=socket.gethostname().split(".")[0],
            folder=folder,
            port=free_port(),
            node_port=free_port(),
            cpus=min(len(os.sched_getaffinity(0)), 2),
            memory_mb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4 // 2**20,
        )
    )
    os.environ["SLURM_CONF"] = str(configuration)
    munged = ["munged", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munged += [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
    try:
        for command in (munged, ["slurmctld"], ["slurmd"]):
            subprocess.run(command, check=True, timeout=PATIENCE_S)
        until("no node is idle", lambda: "idle" in answer("sinfo", "--noheader", "-o", "%t"))
        yield
    finally:
        for name in ("slurmd.pid", "slurmctld.pid", "munge.pid"):
            with suppress(OSError, ValueError):
                pid = int((folder / name).read_text())
                os.kill(pid, signal.SIGTERM)
                # Its last writes are done before the folder goes.
                until(f"process {pid} has not ended", lambda pid=pid: not psutil.pid_exists(pid))


def sweep(work: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start the sweep in `work`."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, "-m", "streaming_asr.run", *SWEEP, *options]
    return subprocess.Popen(command, cwd=work, env=environment)


def killed(work: Path) -> None:
    """Run the sweep and kill the first of its jobs that runs."""
    running = sweep(work, *ON_SLURM)
    until("no job runs", lambda: bool(jobs("RUNNING")))
    job = jobs("RUNNING")[0]
    subprocess.run(["scancel", "--signal=KILL", job], check=True, timeout=PATIENCE_S)
    print(f"killed job {job}", flush=True)
    until("jobs are left", lambda: not jobs("RUNNING,PENDING"))
    running.send_signal(signal.SIGINT)  # without sacct the launcher waits for a killed job forever
    running.wait(PATIENCE_S)


def jobs(states: str) -> list[str]:
    return answer("squeue", "--noheader", "-r", "-t", states, "-o", "%i").split()


def compare(ours: Path, unbroken: Path) -> int:
    """Return 0 where every cell has the same texts as without Slurm, else 1."""
    cells = sorted(path.parent.name for path in unbroken.glob("*/metrics.json"))
    same = [name for name in cells if texts(ours / name) == texts(unbroken / name)]
    print(f"{len(same)} of {len(cells)} cells, killed and completed on Slurm, equal those without")
    return int(not cells or len(same) < len(cells))


def texts(cell: Path) -> list[tuple[str, list[list[str]]]] | None:
    if not (cell / "metrics.json").is_file():
        return None
    log = read_log(cell / "events.jsonl")
    return [(each.utt, [step.committed for step in each.steps]) for each in log.utterances]


def answer(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.stdout


def until(problem: str, is_true: Callable[[], bool]) -> None:
    """Wait until it is true. Raises UserError after PATIENCE_S."""
    end = time.monotonic() + PATIENCE_S
    while not is_true():
        if time.monotonic() > end:
            raise UserError(f"{problem} after {PATIENCE_S} s")
        time.sleep(0.5)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    sys.exit(exit_status(main))
