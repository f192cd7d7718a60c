"""Asks a router's health every 10 ms until its standard input ends; prints an empty line after the first answer and then
how long each later one took, as JSON. A process of its own, so that nothing but the router delays it."""
import json
import select
import sys
import time

from fault_cluster import api


def poll(address):
    seconds = []
    with api.Client(address) as client:
        assert client.health() == "SERVING"
        print(flush=True)
        while not select.select([sys.stdin], [], [], 0.01)[0]:
            began = time.monotonic()
            assert client.health() == "SERVING"
            seconds.append(time.monotonic() - began)
    return seconds


if __name__ == "__main__":
    json.dump(poll(sys.argv[1]), sys.stdout)
