"""Programs that run on several processes of this machine, over loopback, with an end in any case."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

# Seconds: far more than any of these programs takes, on a busy machine too. Only one that hangs is ended.
LONGEST = 20 * 60
# End a finished program without taking the interpreter down: Python 3.11 stops a thread that asks for its lock then, and in
# a thread of gloo's, C++ takes that for a fatal error.
END = """
import os, sys
sys.stdout.flush()
os._exit(0)
"""


def run(program: str, processes: int = 2, *arguments: str) -> list[str]:
    """What each process of a program prints. They meet at a file, so that no port has to be free."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "program.py")
        script.write_text(program + END)
        environment = {
            **os.environ,
            "WORLD_SIZE": str(processes),
            "MEETING": f"file://{folder}/meeting",
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        outs = [Path(folder, f"out{rank}") for rank in range(processes)]
        started = []
        for rank, out in enumerate(outs):
            with out.open("w") as file:
                command = [sys.executable, str(script), *arguments]
                environment["RANK"] = str(rank)
                started.append(subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT))
        try:
            codes = [each.wait(LONGEST) for each in started]
        finally:
            for each in started:
                if each.poll() is None:
                    each.send_signal(signal.SIGKILL)
                    each.wait()
        printed = [out.read_text() for out in outs]
    assert codes == [0] * processes, "\n".join(printed)
    return printed
