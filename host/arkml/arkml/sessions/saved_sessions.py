"""The host's side of a guest at one time: its handles, and the sessions behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from arkml.abi.codes import SnapshotFormat
from arkml.errors import AbiError, StateRefused
from arkml.policies.agents import AgentTable, SavedAgents, agents_of
from arkml.policies.demands import Snapshot
from arkml.sessions.handles import SavedHandles
from arkml.sessions.session import Session, TrainingSession, Widths
from arkml.sessions.session_handlers import open_inference
from arkml.sessions.state import GuestState


@dataclass(frozen=True, slots=True)
class SavedSession:
    """
    One session, without the rows in its queue.

    Attributes:
        index: Its slot in the handle table.
        key: The number of keys that its guest had before.
        training: True for a session of a run.
        widths: The numbers of features and actions that the guest asked for.
        opened_with: The model that it was opened with and its format, None if it cannot be opened
            anew.
        non_finite_actions: Actions that were sent as zeros.
        agents: Its agents, None with a policy that keeps none.

    """

    index: int
    key: int
    training: bool
    widths: Widths
    opened_with: tuple[Snapshot, SnapshotFormat] | None
    non_finite_actions: int
    agents: SavedAgents | None


class SavedServices(NamedTuple):
    """
    The handles of a guest, its sessions, the keys that it has used, and its debug contexts.

    `contexts` are the names and values that its log lines end with.
    """

    handles: SavedHandles
    sessions: tuple[SavedSession, ...]
    keys: int
    contexts: tuple[tuple[str, str], ...] = ()


def save_services(guest: GuestState) -> SavedServices:
    """Return a copy of the host's side of a guest between calls. Raises StateRefused."""
    if brains := len(guest.brains):
        raise StateRefused(
            f"{guest.name} has {brains} objects of ark-ml-inference-v0, which cannot be saved"
        )
    if futures := len(guest.futures):
        raise StateRefused(
            f"{guest.name} has {futures} futures, which cannot be saved: try again once it has"
            " taken or dropped them"
        )
    sessions = tuple(_saved(guest, handle, item) for handle, item in guest.handles)
    return SavedServices(guest.handles.save(), sessions, guest.keys.place, guest.log.contexts)


def load_services(guest: GuestState, saved: SavedServices) -> None:
    """
    Give a guest these sessions and no others.

    Sessions that it has are kept, and those of inference that it has not are opened. Raises
    StateRefused before anything has changed if the guest lacks a session of a run, or if agents
    remember more or fewer numbers; and if a session cannot be opened, after which the guest has
    none.
    """
    if len(saved.handles.generations) > guest.limits.handles:
        raise StateRefused(
            f"{guest.name}: the state has {len(saved.handles.generations):,} handles, over the"
            f" limit of {guest.limits.handles:,} (Limits.handles)"
        )
    present = {guest.handles.index(handle): item for handle, item in guest.handles}
    kept = {
        one.index: present[one.index]
        for one in saved.sessions
        if _is_same(guest, present.get(one.index), one)
    }
    for one in saved.sessions:
        _require(guest, kept.get(one.index), one)
    for index, item in present.items():
        if index not in kept:
            item.close()
    sessions: dict[int, Session] = dict(kept)
    guest.handles.load(saved.handles, sessions)
    for one in saved.sessions:
        if one.index not in sessions:
            sessions[one.index] = _opened(guest, saved.handles, one)
            guest.handles.load(saved.handles, sessions)
    guest.keys.place = saved.keys
    guest.log.contexts = saved.contexts
    for one in saved.sessions:
        session = sessions[one.index]
        session.non_finite_actions = one.non_finite_actions
        agents = agents_of(session.policy)
        if agents is not None and one.agents is not None:
            try:
                agents.load(session.key, one.agents)
            except AbiError as error:
                raise StateRefused(f"{guest.name}: {error}") from error


def _saved(guest: GuestState, handle: int, item: Any) -> SavedSession:
    if not isinstance(item, Session):
        raise StateRefused(f"{guest.name} has a {type(item).__name__}, which cannot be saved")
    agents = agents_of(item.policy)
    return SavedSession(
        guest.handles.index(handle),
        item.key - guest.keys.first,
        isinstance(item, TrainingSession),
        item.widths,
        item.opened_with,
        item.non_finite_actions,
        None if agents is None else agents.save(item.key),
    )


def _is_same(guest: GuestState, item: object, saved: SavedSession) -> bool:
    """Return whether a session of the guest is the saved one, or was opened as that was."""
    if not isinstance(item, Session) or item.key - guest.keys.first != saved.key:
        return False
    if item.widths != saved.widths or isinstance(item, TrainingSession) != saved.training:
        return False
    if item.opened_with is None or saved.opened_with is None:
        return item.opened_with is saved.opened_with
    (ours, our_format), (theirs, their_format) = item.opened_with, saved.opened_with
    return (ours.digest, our_format) == (theirs.digest, their_format)


def _require(guest: GuestState, session: Session | None, saved: SavedSession) -> None:
    if session is not None:
        _require_width(guest, agents_of(session.policy), saved)
    elif saved.opened_with is None:
        raise StateRefused(
            f"{guest.name} lacks a session of a run that the state has: restore the guest that the"
            " state is of, or run this one until it has started its training"
        )


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
