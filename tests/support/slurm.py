"""A Slurm of one node on this machine: its controller, its node, and jobs that are submitted to it."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "munged")
_FOLDERS = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))

CONFIG = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=0
MinJobAge=300
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} Features=icelake State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """Return why no Slurm can be started here; '' if one can."""
    absent = [name for name in PROGRAMS if _where(name) is None]
    if absent:
        return f"Slurm is not installed: no {', '.join(absent)} (Debian: slurm-wlm, munge)"
    return (
        "" if os.geteuid() == 0 else "a node of Slurm starts jobs as their user, which needs root"
    )


def _where(name):
    return shutil.which(name, path=_FOLDERS)


def _free_port():
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


class Slurm:
    """A running Slurm; its files are in ``folder``."""

    def __init__(self, folder, cpus=8):
        self.folder = Path(folder)
        self._cpus = cpus
        self._daemons = []

    def __enter__(self):
        for name in ("state", "spool"):
            (self.folder / name).mkdir(parents=True)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for daemon in reversed(self._daemons):
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()
            daemon.wait()

    def _start(self):
        # munged takes a short path of its socket, and a folder that only its user writes to
        self.folder.chmod(0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        socket_path = self.folder / "munge.socket"
        self._daemon(
            "munged",
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--socket={socket_path}",
            f"--pid-file={self.folder}/munged.pid",
            f"--log-file={self.folder}/munged.log",
            f"--seed-file={self.folder}/munged.seed",
        )
        self._until(socket_path.exists, "munged")
        host = socket.gethostname().partition(".")[0]
        config = CONFIG.format(
            host=host,
            folder=self.folder,
            cpus=self._cpus,
            controller_port=_free_port(),
            node_port=_free_port(),
        )
        (self.folder / "slurm.conf").write_text(config)
        self._daemon("slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))
        self._daemon("slurmd", "-D", "-f", str(self.folder / "slurm.conf"), "-N", host)
        self._until(lambda: "idle" in self.ask("sinfo", "--noheader", "--format=%T"), "the node")

    def _daemon(self, name, *words):
        with (self.folder / f"{name}.out").open("wb") as log:
            command = [_where(name), *words]
            self._daemons.append(
                subprocess.Popen(command, stdout=log, stderr=log, env=self.environ, cwd=self.folder)
            )

    def _until(self, happened, what, seconds=60):
        until = time.monotonic() + seconds
        while not happened():
            ended = [d.args[0] for d in self._daemons if d.poll() is not None]
            if ended or time.monotonic() > until:
                logs = "\n".join(p.read_text("utf-8", "replace") for p in self.folder.glob("*.out"))
                raise RuntimeError(f"{what} did not start; ended: {ended}\n{logs[-4000:]}")
            time.sleep(0.2)

    @property
    def environ(self):
        return os.environ | {"PATH": _FOLDERS, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def ask(self, *command):
        """Return what a command of Slurm prints; '' if it fails."""
        done = subprocess.run(
            command, env=self.environ, capture_output=True, text=True, check=False, timeout=60
        )
        return done.stdout if done.returncode == 0 else ""

    def submit(self, folder, *words, **variables):
        """Submit a job from a folder; return its number."""
        done = subprocess.run(
            ["sbatch", "--parsable", *words],
            env=self.environ | variables,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def wait(self, job, seconds=120):
        """Wait until a job, or all tasks of an array, have ended."""
        until = time.monotonic() + seconds
        while self.ask(
            "squeue", "--noheader", "--states=PENDING,RUNNING,COMPLETING", f"--jobs={job}"
        ):
            assert time.monotonic() < until, self.ask("scontrol", "show", "job", job)
            time.sleep(0.2)
