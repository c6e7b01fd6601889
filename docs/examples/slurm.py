"""A Ray of Slurm jobs for one run of eval.py: a head on this machine, and by submitit a job for each node that judges.

    python docs/examples/slurm.py [OPTIONS] -- WORDS OF eval.py
    python docs/examples/slurm.py --nodes 4 --gpus 8 --cpus 64 -- mine/ --problem layernorm --device cuda

Each node is a job of its own, so that the run goes on where one is taken away. All machines need this environment, with
kernelgate's extra `cluster` and submitit, under the same path. `--local` starts the nodes here, without Slurm.
"""

import argparse
import contextlib
import getpass
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EVAL = Path(__file__).resolve().parents[2] / "eval.py"
RAY = (sys.executable, "-m", "ray.scripts.scripts")
QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}


def parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=0, help="of each node")
    parser.add_argument("--cpus", type=int, default=1, help="of each node")
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--partition", help="Slurm's, where it has no usual one")
    parser.add_argument("--port", type=int, default=6379)
    parser.add_argument("--folder", default="slurm_logs", help="of logs, on a disk that all machines see")
    parser.add_argument("--local", action="store_true", help="nodes on this machine, without Slurm")
    parser.add_argument("words", nargs="+", metavar="WORDS", help="eval.py's, behind --")
    return parser


def head_command(port):
    """A head that judges nothing, until it is ended."""
    none = ["--num-cpus", "0", "--num-gpus", "0", "--include-dashboard", "false"]
    return [*RAY, "start", "--head", "--port", str(port), *none, "--block"]


def node_command(address, cpus, gpus):
    """A node that judges, until it is ended or its head is."""
    has = ["--num-cpus", str(cpus), "--num-gpus", str(gpus)]
    return [*RAY, "start", "--address", address, *has, "--block"]


def node(command):
    """What a job does. Builds are kept on the node's own disk."""
    cache = Path(tempfile.gettempdir()) / f"kernelgate-{getpass.getuser()}"
    environment = {"KERNELGATE_CACHE": str(cache), **QUIET, **os.environ}
    return subprocess.run(command, env=environment).returncode


def submitted(options, address):
    """The jobs of all nodes."""
    import submitit

    executor = submitit.AutoExecutor(folder=options.folder, cluster="local" if options.local else "slurm")
    executor.update_parameters(
        name="kernelgate", timeout_min=options.minutes, gpus_per_node=options.gpus, cpus_per_task=options.cpus
    )
    if options.partition:
        executor.update_parameters(slurm_partition=options.partition)
    command = node_command(address, options.cpus, options.gpus)
    return [executor.submit(node, command) for _ in range(options.nodes)]


def wait_for(head, address):
    """Until the head answers."""
    host, port = address.split(":")
    while head.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection((host, int(port))).close()
            return
        time.sleep(0.5)
    sys.exit(f"The head ended with exit code {head.returncode}. Is the port {port} taken? --port gives another.")


def wait_for_a_node(address, jobs):
    """Until one is there that judges; the others come when Slurm has room for them."""
    import ray

    ray.init(address=address, log_to_driver=False)
    while not {"CPU", "GPU"} & ray.cluster_resources().keys():
        if all(job.done() for job in jobs):
            sys.exit(f"No node could be started: {jobs[0].stderr()}")
        time.sleep(2)
    ray.shutdown()


def main():
    options = parser().parse_args()
    import ray

    address = f"{ray.util.get_node_ip_address()}:{options.port}"
    head = subprocess.Popen(head_command(options.port), env={**os.environ, **QUIET}, stdout=subprocess.DEVNULL)
    jobs = []
    try:
        wait_for(head, address)
        jobs = submitted(options, address)
        wait_for_a_node(address, jobs)
        return subprocess.run([sys.executable, str(EVAL), *options.words, "--cluster", address]).returncode
    finally:
        for job in jobs:
            job.cancel()
        head.terminate()
        head.wait()


if __name__ == "__main__":
    sys.exit(main())
