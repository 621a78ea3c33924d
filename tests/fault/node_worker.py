"""A pod agent that starts quickly: each life is a fork of a process that has everything loaded.

``node_worker.py SETTINGS``: a line on stdin starts a life, whose pid is printed; "ended CODE" follows.
The line is ``go``, or ``go before:put`` for a life that ends there; see `tests.fault.dying`.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from gaia_plugin.agent.pods.main import serve_pods
from gaia_plugin.agent.settings import read_settings
from tests.fault.dying import arm
from tests.support.folders import Folders


def main() -> None:
    settings = read_settings(**json.loads(sys.argv[1]))
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.close(0)
            for where in line.split()[1:]:
                arm(where)
            os._exit(serve_pods(settings, mounts=Folders()))
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"ended {os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
