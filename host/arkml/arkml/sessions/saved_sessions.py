"""
Saved copies of the host's side of a guest: its handles, and the sessions and futures behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from arkml.abi.codes import SnapshotFormat
from arkml.errors import AbiError, StateRefused, Unavailable
from arkml.policies.agents import AgentTable, SavedAgents, agents_of
from arkml.policies.demands import Snapshot
from arkml.policies.training import TrainingPolicy
from arkml.sessions.futures import Future, ResultType
from arkml.sessions.handles import SavedHandles
from arkml.sessions.saved_brains import SavedBrains, load_brains, require_brains, save_brains
from arkml.sessions.session import Session, TrainingSession, Widths
from arkml.sessions.session_handlers import open_inference
from arkml.sessions.session_table import TrainingStart
from arkml.sessions.state import GuestState
from arkml.sessions.text import presentable

_SESSION_BYTES, _SLOT_BYTES = 512, 48  # what Python takes, by measurement
_RUN_BYTES = 64  # of the id of a run in a message


@dataclass(frozen=True, slots=True)
class SavedSession:
    """
    A copy of one session, without the rows in its queue.

    Attributes:
        index: The session's slot in the handle table.
        key: The number of keys that the guest had used before this session's key.
        run: The id of the session's run, empty for a training session without one; None for an
            inference session.
        widths: The numbers of features and actions that the guest asked for.
        opened_with: The model file, with its format, that the session was opened with; None if it
            cannot be opened again.
        agents: The agents, None with a policy that keeps none.
        others: The agents of rows whose actions the guest chose, by the kind of the rows.

    """

    index: int
    key: int
    run: str | None
    widths: Widths
    opened_with: tuple[Snapshot, SnapshotFormat] | None
    agents: SavedAgents | None
    others: Mapping[int, SavedAgents]


@dataclass(frozen=True, slots=True)
class SavedFuture:
    """
    One future, not copied: a result that arrives after saving belongs to the saved state, too.

    Attributes:
        index: The future's slot in the handle table.
        future: The future.

    """

    index: int
    future: Future[Any]


@dataclass(frozen=True)
class SavedServices:
    """
    The handles of a guest, with copies of the sessions and other objects behind them.

    Attributes:
        handles: The handles of sessions and futures.
        brains: The objects of `ark-ml-inference-v0`.
        sessions: The sessions.
        futures: The futures.
        keys: The number of keys that the guest has used.
        contexts: The names and values that its log lines end with.

    """

    handles: SavedHandles
    brains: SavedBrains
    sessions: tuple[SavedSession, ...]
    futures: tuple[SavedFuture, ...]
    keys: int
    contexts: tuple[tuple[str, str], ...]

    @cached_property
    def nbytes(self) -> int:
        """The bytes of the copy, without the models of sessions."""
        slots = len(self.handles.generations) + len(self.brains.handles.generations)
        size = _SLOT_BYTES * slots + self.brains.nbytes
        size += sum(_SESSION_BYTES + one.future.size for one in self.futures)
        size += sum(len(text) for context in self.contexts for text in context)
        for one in self.sessions:
            size += _SESSION_BYTES
            tables = (*one.others.values(), *filter(None, (one.agents,)))
            size += sum(column.nbytes for table in tables for column in table)
        return size

    @cached_property
    def models(self) -> tuple[Snapshot, ...]:
        """The model files that sessions and brains were opened with."""
        brains = tuple(one.opened_with[0] for one in self.brains.brains)
        opened = tuple(one.opened_with[0] for one in self.sessions if one.opened_with is not None)
        return opened + brains

    @cached_property
    def is_fleeting(self) -> bool:
        """
        Whether the state has parts that can change without a new revision number of the guest.

        These are brains, agents, and results that are still to come.
        """
        is_pending = any(not one.future.is_ready for one in self.futures)
        has_agents = any(one.agents is not None for one in self.sessions)
        return bool(self.brains.brains) or has_agents or is_pending

    @cached_property
    def has_runs(self) -> bool:
        """Whether a session belongs to a run, which only the guest that has it can restore."""
        return any(one.opened_with is None for one in self.sessions)


def save_services(guest: GuestState) -> SavedServices:
    """
    Return a copy of the host's side of a guest between calls. Raises StateRefused.

    The last copy that was saved or loaded is returned again if nothing has changed since.
    """
    if (same := _unchanged(guest)) is not None:
        return same
    sessions, futures = [], []
    for handle, item in guest.handles:
        if isinstance(item, Session):
            sessions.append(_saved(guest, handle, item))
        else:
            futures.append(SavedFuture(guest.handles.index(handle), item))
    saved = SavedServices(
        guest.handles.save(),
        save_brains(guest),
        tuple(sessions),
        tuple(futures),
        guest.keys.place,
        guest.log.contexts,
    )
    _keep(guest, saved)
    return saved


def require_loadable(guest: GuestState, saved: SavedServices) -> None:
    """
    Raise StateRefused for a state that cannot be loaded, as far as can be known beforehand.

    The reason may be a limit, a missing session of a run or a missing start of one, or recurrent
    states of another width than the present policy's.
    """
    if _unchanged(guest) is saved:
        return
    brains = len(saved.brains)
    usable = brains + len(saved.brains.handles.free)  # of slots, the others are used up
    objects = len(saved.sessions) + len(saved.futures) + brains
    if (handles := max(objects, usable, len(saved.handles.generations))) > guest.limits.handles:
        raise StateRefused(
            f"{guest.name}: the state has {handles:,} handles, over the limit of"
            f" {guest.limits.handles:,} (Limits.handles)"
        )
    if (futures := len(saved.futures)) > guest.limits.futures:
        raise StateRefused(
            f"{guest.name}: the state has {futures:,} futures, over the limit of"
            f" {guest.limits.futures:,} (Limits.futures)"
        )
    live = _kept_futures(guest, saved)
    for each in saved.futures:
        if each.future.type.has_effect and each.index not in live:
            raise StateRefused(
                f"{guest.name} lacks a {each.future.type.name} that the state waits for: restore"
                " the guest that the state is of, before it has taken it"
            )
    require_brains(guest, saved.brains)
    kept = _kept(guest, saved)
    for one in saved.sessions:
        if one.index in kept:
            _require_width(guest, agents_of(kept[one.index].policy), one)
        elif one.opened_with is None:
            run = f"the run {presentable(one.run, _RUN_BYTES)}" if one.run else "a run"
            raise StateRefused(
                f"{guest.name} lacks a session of {run} that the state has: restore the guest that"
                " the state is of, or run this one until it has started its training"
            )


def load_services(guest: GuestState, saved: SavedServices) -> bool:
    """
    Replace a guest's sessions and futures by saved ones that fit.

    Sessions and futures that the guest has already are kept, missing inference sessions are opened,
    and futures get the results that they had. Raises StateRefused if a session cannot be opened;
    the guest then has only some of them. Returns False if the guest is in this state already.
    """
    if _unchanged(guest) is saved:
        return False
    futures, sessions = _kept_futures(guest, saved), _kept(guest, saved)
    guest.futures.clear(futures.values())
    load_brains(guest, saved.brains)
    for handle, item in guest.handles:
        if isinstance(item, Session) and sessions.get(guest.handles.index(handle)) is not item:
            item.close()
    try:
        for each in saved.futures:
            if each.index not in futures:
                futures[each.index] = _again(guest, each.future)
    finally:  # a guest that fails now gives back what it got
        guest.handles.load(saved.handles, {**futures, **sessions})
        guest.futures.recount()
    for one in saved.sessions:
        if one.index not in sessions:
            sessions[one.index] = _opened(guest, saved.handles, one)
            guest.handles.load(saved.handles, {**futures, **sessions})
    guest.keys.place = saved.keys
    guest.log.contexts = saved.contexts
    try:
        for one in saved.sessions:
            _load_agents(sessions[one.index], one)
    except AbiError as error:
        raise StateRefused(f"{guest.name}: {error}") from error
    _keep(guest, saved)
    return True


def rejoin_runs(
    guest: GuestState, saved: SavedServices, start: Callable[[str], TrainingStart]
) -> None:
    """
    Open the training sessions of a saved state in a new guest, so that the state can be loaded.

    `start` returns the arguments for opening a session, given the id of its run. Raises AbiError.
    """
    sessions: dict[int, Session] = {}
    for one in saved.sessions:
        if one.run:
            guest.keys.place = one.key
            handle = guest.handles.handle_in(one.index, saved.handles)
            sessions[one.index] = guest.sessions.make_training(handle, start(one.run))
            guest.handles.load(saved.handles, sessions)


def _keep(guest: GuestState, saved: SavedServices) -> None:
    """Note that a guest has these services, unless these have parts that change unseen."""
    if not saved.is_fleeting:
        guest.as_saved = guest.revision.number, saved


def _unchanged(guest: GuestState) -> SavedServices | None:
    """Return the services that the guest has now, as they were saved or loaded, or None."""
    if guest.as_saved is None:
        return None
    revision, saved = guest.as_saved
    if revision != guest.revision.number:
        return None
    for item in guest.handles.items():
        # Of another policy than there was.
        if isinstance(item, Session) and agents_of(item.policy) is not None:
            return None
    assert isinstance(saved, SavedServices)
    return saved


def _kept(guest: GuestState, saved: SavedServices) -> dict[int, Session]:
    """Return the sessions of the guest that are also in the state, by their slots."""
    present, kept = dict(guest.handles), {}
    for one in saved.sessions:
        item = present.get(guest.handles.handle_in(one.index, saved.handles))
        if isinstance(item, Session) and _is_same(guest, item, one):
            kept[one.index] = item
    return kept


def _kept_futures(guest: GuestState, saved: SavedServices) -> dict[int, Future[Any]]:
    """Return the futures of the guest that are also in the state, by their slots."""
    present = dict(guest.handles)
    return {
        one.index: one.future
        for one in saved.futures
        if present.get(guest.handles.handle_in(one.index, saved.handles)) is one.future
    }


def _again(guest: GuestState, saved: Future[Any]) -> Future[Any]:
    """Return a future with the outcome of a saved one. Raises StateRefused."""
    future = Future(saved.type, guest.changes)
    match saved.outcome:
        case None:
            future.fail(lost(saved.type))
        case Exception() as error:
            future.fail(error)
        case (value,):
            if not guest.requests.keep(saved.size):
                raise StateRefused(
                    f"{guest.name}: a {saved.type.name} of {saved.size:,} bytes is over"
                    " Limits.guest_bytes"
                )
            future.resolve(value, partial(guest.requests.release, saved.size))
    return future


def lost(result: ResultType[Any]) -> Unavailable:
    """Return the error of a future whose request was unfinished when the state was saved."""
    return Unavailable(f"the {result.name} was pending in the state: a request is not repeated")


def _saved(guest: GuestState, handle: int, item: Session) -> SavedSession:
    agents = agents_of(item.policy)
    others = item.policy.others if isinstance(item.policy, TrainingPolicy) else {}
    return SavedSession(
        guest.handles.index(handle),
        item.key - guest.keys.first,
        _run_of(item),
        item.widths,
        item.opened_with,
        None if agents is None else agents.save(item.key),
        {kind: table.save(item.key) for kind, table in others.items()},
    )


def _load_agents(session: Session, saved: SavedSession) -> None:
    """Let a session have the agents of a state, and no others. Raises Unavailable."""
    policy = session.policy
    agents = agents_of(policy)
    if isinstance(policy, TrainingPolicy):
        policy.load(session.key, saved.agents, saved.others)
    elif agents is not None and saved.agents is not None:
        agents.load(session.key, saved.agents)
    elif agents is not None:  # the policy of then kept none
        agents.forget(session.key)


def _is_same(guest: GuestState, item: Session, saved: SavedSession) -> bool:
    """Return whether a session with the saved handle is the saved one, or was opened as it was."""
    if item.key - guest.keys.first != saved.key:
        return False
    if item.widths != saved.widths or _run_of(item) != saved.run:
        return False
    if item.opened_with is None or saved.opened_with is None:
        return item.opened_with is saved.opened_with
    (ours, our_format), (theirs, their_format) = item.opened_with, saved.opened_with
    return (ours.digest, our_format) == (theirs.digest, their_format)


def _run_of(item: Session) -> str | None:
    if not isinstance(item, TrainingSession):
        return None
    return "" if item.run is None else item.run.id


def _require_width(guest: GuestState, agents: AgentTable | None, saved: SavedSession) -> None:
    if agents is None or saved.agents is None:
        return
    width = saved.agents.state.shape[1]
    if width != agents.width:
        raise StateRefused(
            f"{guest.name}: agents of the state remember {width} numbers, those of the present"
            f" policy {agents.width}"
        )


def _opened(guest: GuestState, handles: SavedHandles, saved: SavedSession) -> Session:
    """Open a session of inference with the handle and the key that it had. Raises StateRefused."""
    assert saved.opened_with is not None
    snapshot, snapshot_format = saved.opened_with
    guest.keys.place = saved.key
    handle = guest.handles.handle_in(saved.index, handles)
    try:
        session = open_inference(guest, snapshot.data, snapshot_format, saved.widths, handle)
    except AbiError as error:
        raise StateRefused(f"{guest.name}: a session cannot be opened again: {error}") from error
    try:
        _require_width(guest, agents_of(session.policy), saved)
    except StateRefused:
        session.close()
        raise
    return session
