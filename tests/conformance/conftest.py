"""Hosts and guests for the conformance tests."""

import pytest
from tests.conformance import scripted_guest
from tests.conformance.checked_guest import CheckedGuest

from arkml import Host
from arkml.abi import wat
from arkml.abi.catalog import APIS


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
def make_checked(shared_host, proxy):
    """A factory of checked guests, which are closed at the end."""
    guests = []

    def make(**options):
        guests.append(shared_host.load(proxy))
        return CheckedGuest(guests[-1], **options)

    yield make
    for guest in guests:
        guest.close()


@pytest.fixture
def checked(make_checked):
    return make_checked()


@pytest.fixture(scope="session")
def script_program(shared_host):
    """The compiled scripted guest."""
    return shared_host.compile(scripted_guest.module(), name="scripted")


@pytest.fixture
def run(shared_host, script_program):
    """A new scripted guest."""
    guest = shared_host.load(script_program)
    yield scripted_guest.ScriptedGuest(guest)
    guest.close()
