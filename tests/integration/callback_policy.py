"""A policy that calls a function, and a session that it answers."""

from tests.integration.guest_text import ACTION, ACTOR, HANDLE

from arkml.guests.guest import calls_of

FAKE_ACTION = 7.0


class CallbackPolicy:
    """A policy that calls a function for each batch and answers FAKE_ACTION."""

    num_features, num_actions = 2, 1

    def __init__(self, act):
        self._act = act
        self.forgotten = []

    def act(self, batch):
        self._act(batch)
        batch.actions[:] = FAKE_ACTION

    def forget(self, key):
        self.forgotten.append(key)


def answered_by(guest, act):
    """Let a guest of ACTOR use a session that `act` answers."""
    policy = CallbackPolicy(act)
    handle = calls_of(guest).services.sessions.open_inference(policy, 2, 1)
    guest.write_memory(HANDLE, handle.to_bytes(8, "little"))
    return policy


def assert_works(guest):
    """Assert that a guest of ACTOR acts correctly in a new session."""
    assert guest.call("open") == 0
    assert guest.call("step", 5) == 0
    assert [guest.call("action", row) for row in range(5)] == [ACTION] * 5
    assert guest.call("close") == 0


def assert_host_works(host):
    """Assert that a new guest of the host acts correctly."""
    with host.load(ACTOR) as guest:
        assert_works(guest)
