"""Two nodes of a Ray cluster on this machine. Prints their address; `kill` on stdin kills the second one.

Given a port, it also serves clients there (`ray://`).
"""

import socket
import subprocess
import sys
import time

from ray.cluster_utils import Cluster


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    node = cluster.add_node(num_cpus=1)
    server = None
    if len(sys.argv) > 1:
        where = [f"--address={cluster.address}", "--host=127.0.0.1", f"--port={sys.argv[1]}"]
        server = subprocess.Popen([sys.executable, "-m", "ray.util.client.server", *where])
        while not answers(int(sys.argv[1])):
            time.sleep(0.2)
    print(cluster.address, flush=True)
    try:
        for line in sys.stdin:
            if line.strip() == "kill":
                cluster.remove_node(node, allow_graceful=False)
                print("killed", flush=True)
    finally:
        if server is not None:
            server.kill()
            server.wait()
        cluster.shutdown()
