"""OpenSpiel's own search plays a game whose states are snapshots of a guest."""

import subprocess
from pathlib import Path

import numpy as np
import pyspiel
import pytest
from open_spiel.python.algorithms import mcts
from tools.arcade.compiler import GAMES, include_flags

from arkml import Host

pytestmark = pytest.mark.arcade
SOURCES = Path(__file__).parents[2] / "build" / "arcade" / "sources"
COLUMNS = range(7)
PLAYED = 100


class GuestState:
    """
    A state of Connect Four, as OpenSpiel's algorithms ask for one, held by a guest.

    All states of a game share one guest: it has the state that was used last, and goes back to
    another one by its snapshot.
    """

    _present = None  # the state that the guest has

    def __init__(self, guest, snapshot, moves=0):
        self._guest = guest
        self._snapshot = snapshot
        self._moves = moves

    def _enter(self):
        present = GuestState._present
        if present is not self:
            if present is not None:
                present._keep()
            self._guest.restore(self._snapshot)
            GuestState._present = self

    def _keep(self):
        if self._snapshot is None:
            self._snapshot = self._guest.snapshot()

    def clone(self):
        if GuestState._present is self:
            self._keep()
        return GuestState(self._guest, self._snapshot, self._moves)

    def apply_action(self, column):
        self._enter()
        self._guest.call("play_column", column)
        self._snapshot = None
        self._moves += 1

    def legal_actions(self, player=None):  # noqa: ARG002  as OpenSpiel's states
        self._enter()
        return [column for column in COLUMNS if self._guest.call("can_play", column)]

    def is_terminal(self):
        self._enter()
        return bool(self._guest.call("has_won") or self._moves == 42)

    def current_player(self):
        return pyspiel.PlayerId.TERMINAL if self.is_terminal() else self._moves % 2

    def is_chance_node(self):
        return False

    def returns(self):
        self._enter()
        last = (self._moves - 1) % 2
        won = self._guest.call("has_won")
        return [(1.0 if player == last else -1.0) * won for player in range(2)]


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """PufferLib's board as a guest, compiled like the games of the arcade."""
    source, path = Path(__file__).with_name("two_players.c"), tmp_path_factory.mktemp("boards")
    flags = ["--target=wasm32-wasi", "-mexec-model=reactor", "-O2", "-w"]
    folders = include_flags(GAMES / "connect4.c", SOURCES)
    command = ["clang", *flags, *folders, "-o", path / "board.wasm", source]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return path / "board.wasm"


def points(guest, empty, game, seed):
    """The points of OpenSpiel's search, which begins every other game, from a random player."""
    random = np.random.RandomState(seed)
    evaluator = mcts.RandomRolloutEvaluator(1, random)
    bot = mcts.MCTSBot(game, 2.0, 200, evaluator, random_state=random)
    state, mine = GuestState(guest, empty), seed % 2
    while not state.is_terminal():
        if state.current_player() == mine:
            state.apply_action(bot.step(state))
        else:
            state.apply_action(int(random.choice(state.legal_actions())))
    return (state.returns()[mine] + 1) / 2


def test_search_over_snapshots_beats_a_random_player(board):
    """With 200 simulations a move it takes 95 of 100 points at least, 0.5 for a draw."""
    game = pyspiel.load_game("connect_four")  # of which it asks the range of returns
    with Host() as host:
        guest = host.load(board)
        GuestState._present, empty = None, guest.snapshot()
        taken = [points(guest, empty, game, seed) for seed in range(PLAYED)]
    assert sum(taken) >= 0.95 * PLAYED


def test_the_guest_knows_the_rules(board):
    """Random games end in the move in which OpenSpiel's own Connect Four says so."""
    random = np.random.default_rng(1)
    game = pyspiel.load_game("connect_four")
    with Host() as host:
        guest = host.load(board)
        GuestState._present = None
        empty = guest.snapshot()
        for _ in range(50):
            ours, theirs = GuestState(guest, empty), game.new_initial_state()
            while not theirs.is_terminal():
                assert ours.legal_actions() == theirs.legal_actions()
                assert not ours.is_terminal()
                move = int(random.choice(theirs.legal_actions()))
                ours.apply_action(move)
                theirs.apply_action(move)
            assert ours.is_terminal()
            assert ours.returns() == theirs.returns()
