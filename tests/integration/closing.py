"""
A process that makes, uses and closes hosts one after another.

Usage: python -m tests.integration.closing COUNT. After 2 and after COUNT hosts it prints a line:
KiB of address space and of resident memory, mappings, open descriptors.
"""

import sys

from tests.integration.closing_counts import taken
from tests.integration.command_line import GUESTS
from tests.integration.guest_text import ACTOR

from arkml import GuestEnv, Host


def use_a_host():
    with Host() as host:
        guest = host.load(ACTOR)
        guest.call("open")
        guest.call("step", 100)
        fleet = host.fleet(ACTOR, 3)
        fleet.call("open")
        with GuestEnv(GUESTS / "c_pendulum.wasm", configure=(1, "{seed}"), host=host) as env:
            env.reset(1)
            env.step([[0.5]])


for number in range(1, int(sys.argv[1]) + 1):
    use_a_host()
    if number in (2, int(sys.argv[1])):
        print(*taken())
