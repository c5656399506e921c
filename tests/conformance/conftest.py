"""Hosts and guests for the conformance tests."""

import pytest
from tests.conformance import driver
from tests.conformance.world import World

from arkml import Host
from arkml.abi.catalog import APIS
from arkml.abi.render import wat


@pytest.fixture(scope="session")
def shared_host():
    """A host for guests that need no settings of their own."""
    with Host() as host:
        yield host


@pytest.fixture(scope="session")
def proxy(shared_host):
    """The compiled proxy of every import."""
    return shared_host.compile(wat.proxy(APIS, pages=1).encode(), name="proxy")


@pytest.fixture
def make_world(shared_host, proxy):
    """Makes worlds, each with a guest of its own."""
    guests = []

    def make(**options):
        guests.append(shared_host.load(proxy))
        return World(guests[-1], **options)

    yield make
    for guest in guests:
        guest.close()


@pytest.fixture
def world(make_world):
    return make_world()


@pytest.fixture(scope="session")
def script_program(shared_host):
    """The compiled driver."""
    return shared_host.compile(driver.module(), name="driver")


@pytest.fixture
def run(shared_host, script_program):
    """A driver guest of its own."""
    guest = shared_host.load(script_program)
    yield driver.Driver(guest)
    guest.close()
