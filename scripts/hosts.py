"""Hosts with links between them: network namespaces of this machine. They need root, `ip` and `tc`."""

import os
import subprocess


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Hosts:
    """Hosts 1 to `count` with a switch between them. They are gone when the `with` block ends."""

    def __init__(self, count):
        self.count = count
        self.prefix = f"pipewright-{os.getpid()}-"
        self.switch = self.prefix + "switch"

    def __enter__(self):
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "bridge0", "mtu", "9000", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge0", "up")
        for number in range(1, self.count + 1):
            host, port = self.name(number), f"port{number}"
            ip("netns", "add", host)
            peer = ["peer", "name", port, "mtu", "9000", "netns", self.switch]
            ip("-n", host, "link", "add", "eth0", "mtu", "9000", "type", "veth", *peer)
            ip("-n", host, "addr", "add", self.address(number) + "/24", "dev", "eth0")
            ip("-n", host, "link", "set", "lo", "up")
            ip("-n", host, "link", "set", "eth0", "up")
            # The usual one of Linux, whatever this machine has.
            route = ["10.78.0.0/24", "dev", "eth0", "src", self.address(number), "congctl", "cubic"]
            ip("-n", host, "route", "replace", *route, "proto", "kernel", "scope", "link")
            ip("-n", self.switch, "link", "set", port, "master", "bridge0")
            ip("-n", self.switch, "link", "set", port, "up")
        return self

    def __exit__(self, *_):
        for name in [self.switch, *map(self.name, range(1, self.count + 1))]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def name(self, number):
        return f"{self.prefix}{number}"

    @staticmethod
    def address(number):
        return f"10.78.0.{number}"

    def links(self, rate, far=()):
        """Gives both ends of each link this rate. `far`: what `netem` does to what a host sends."""
        # A burst passes at once: as small as its timer allows.
        burst = max(16_000, rate * 125)
        for number in range(1, self.count + 1):
            for name, device in [(self.name(number), "eth0"), (self.switch, f"port{number}")]:
                tc = ["tc", "-n", name, "qdisc"]
                subprocess.run([*tc, "del", "dev", device, "root"], capture_output=True)
                limit = ["tbf", "rate", f"{rate}mbit", "burst", str(burst), "limit", "1mb"]
                subprocess.run([*tc, "add", "dev", device, "root", "handle", "1:", *limit], check=True)
                if far and device == "eth0":
                    netem = ["netem", *far, "limit", "10000"]
                    subprocess.run([*tc, "add", "dev", device, "parent", "1:1", *netem], check=True)

    def connect(self, number, connected):
        """Plugs in a host's cable at the switch, or pulls it out."""
        ip("-n", self.switch, "link", "set", f"port{number}", "up" if connected else "down")

    def heal(self, rate):
        """Plugs in all cables, at this rate."""
        for number in range(1, self.count + 1):
            self.connect(number, True)
        self.links(rate)

    def has_netem(self):
        netem = ["tc", "-n", self.name(1), "qdisc", "add", "dev", "eth0", "root", "netem", "delay", "1ms"]
        return subprocess.run(netem, capture_output=True).returncode == 0
