"""Changes of the policy that answers a host's guests while they run."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Event, RLock
from weakref import WeakKeyDictionary, WeakSet

from arkml.base.loggers import SafeLogger
from arkml.errors import ArkmlError, UsageError
from arkml.guests.call_loop import CallLoop
from arkml.guests.file_watch import FileWatch, watch
from arkml.limits import Limits
from arkml.policies.demands import PolicyOffer
from arkml.policies.describe import require_loadable
from arkml.policies.library import PolicyLibrary
from arkml.policies.model_cache import ModelCache
from arkml.policies.policy_files import PolicyFile
from arkml.policies.sources import Override, PolicySource
from arkml.runtime.call_guard import CallGuard, GuardedCalls

log = SafeLogger(__name__)

_WAITING = 2  # the first may have begun, the second takes the last offer


class PolicyChanges:
    """
    The policy that answers the guests of a host, or None, and its changes.

    A change is read, vetted and loaded on a thread, one after another. It is made for all guests or
    for none: each compiled form of the policy that a guest needs is ready before any guest gets it.
    The guests that share a policy library change together, before their next call, which does not
    wait.

    `lock` guards `override` and the demands of all libraries; no file is read and no model loaded
    while it is held.
    """

    def __init__(self, override: Override, models: ModelCache, limits: Limits) -> None:
        if isinstance(override, PolicyFile):
            require_loadable(override, models, limits)
        self.lock = RLock()
        self.override: Override = override
        """The policy of guests that are made from now on."""
        self._models = models
        self._limits = limits
        self._libraries: WeakKeyDictionary[PolicyLibrary, CallGuard | None] = WeakKeyDictionary()
        self._apart: WeakSet[PolicyLibrary] = WeakSet()  # with policies of their own
        self._watches: WeakKeyDictionary[object, Event] = WeakKeyDictionary()
        self._thread: ThreadPoolExecutor | None = None
        self._process = 0
        self._is_closed = False

    def follow(self, library: PolicyLibrary, call_guard: CallGuard | None = None) -> None:
        """
        Register a library, so that its policy changes between the calls that `call_guard` admits.
        """
        with self.lock:
            if call_guard is None or library in self._libraries:
                self._libraries[library] = call_guard

    def use(
        self, source: PolicySource, library: PolicyLibrary | None = None, *, is_watched: bool
    ) -> Future[None]:
        """
        Let a policy answer the guests of a library from their next call on.

        Without a library it answers all guests except guests whose library has a policy of its own.
        With `is_watched` its file is loaded again after each change, until the next call of `use`.
        Raises UsageError for a policy that is not a file, and once this object is closed.
        """
        if is_watched and source.path is None:
            raise UsageError(f"watch=True is for a policy file: the policy is {source.name}")
        target = self if library is None else library
        with self.lock:
            if (before := self._watches.pop(target, None)) is not None:
                before.set()
            file = None if source.path is None or not is_watched else FileWatch(source.path)
            future = self._submit(source, library)
            if file is not None:
                again = partial(_load_again, weakref.ref(self), source)
                self._watches[target] = watch(file, again, target)
        return future

    def close(self) -> None:
        """End the thread and the watches; loads in progress are dropped, waiting ones canceled."""
        with self.lock:
            self._is_closed = True
            for ended in self._watches.values():
                ended.set()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=False, cancel_futures=True)

    def _submit(self, source: PolicySource, library: PolicyLibrary | None) -> Future[None]:
        with self.lock:
            self._require_open()
            if self._thread is None or self._process != os.getpid():  # a fork has no threads
                self._process = os.getpid()
                self._thread = ThreadPoolExecutor(1, "arkml-policy")
            return self._thread.submit(self._change, source, library)

    def _require_open(self) -> None:
        if self._is_closed:
            raise UsageError("this host is closed")

    def _change(self, source: PolicySource, library: PolicyLibrary | None) -> None:
        """Load a policy and offer it, or raise and leave all as it is."""
        try:
            override = source.read(self._limits)
            if isinstance(override, PolicyFile):
                require_loadable(override, self._models, self._limits)
            self._offer(override, library, _Notice(source.name))
        except ArkmlError as error:
            if not self._is_closed:
                log.warning("policy %s is not used, the one before stays: %s", source.name, error)
            raise
        except Exception:
            log.exception("policy %s is not used, a bug of the host", source.name)
            raise
        log.info("policy %s answers from the next frame on", source.name)

    def _offer(self, override: Override, library: PolicyLibrary | None, notice: _Notice) -> None:
        """Meet the demands of all guests, and then make the offer to all at once."""
        offers: dict[PolicyLibrary, PolicyOffer] = {}
        while True:
            for one in self._targets(library):
                if one not in offers:
                    offers[one] = PolicyOffer(one.with_override(override), notice.give)
            with self.lock:
                self._require_open()
                targets = self._targets(library)
                unmet = [
                    (offers[one], demand)
                    for one in targets
                    if one in offers
                    for demand in one.demands.unmet(offers[one])
                ]
                if not unmet and all(one in offers for one in targets):
                    self._commit(override, library, {one: offers[one] for one in targets})
                    return
            for offer, demand in unmet:
                offer.meet(demand)

    def _targets(self, library: PolicyLibrary | None) -> list[PolicyLibrary]:
        """Return the libraries that a change is for."""
        if library is not None:
            return [library]
        with self.lock:
            return [one for one in self._libraries if one not in self._apart]

    def _commit(
        self,
        override: Override,
        library: PolicyLibrary | None,
        offers: Mapping[PolicyLibrary, PolicyOffer],
    ) -> None:
        """Have the offers taken before the next calls of their guests, and by guests to come."""
        for one, offer in offers.items():
            one.demands.offer(offer)
            call_guard = self._libraries[one]
            if call_guard is None:
                _take(weakref.ref(one), ())
            elif len(call_guard.waiting) < _WAITING:
                call_guard.waiting.append(partial(_take, weakref.ref(one)))
        if library is None:
            self.override = override
        else:
            self._apart.add(library)


class _Notice:
    """The line of the log about a change whose states begin as zeros, written once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_given = False

    def give(self) -> None:
        if not self._is_given:
            self._is_given = True
            log.warning(
                "policy %s has other recurrent states than the one before: they begin as zeros",
                self._name,
            )


def _take(reference: weakref.ref[PolicyLibrary], callers: Iterable[GuardedCalls]) -> None:
    """
    Let guests be answered by the policy that their library was offered last, on their thread.

    Called again after it was cut off, it makes the rest of the change.
    """
    library = reference()
    offer = None if library is None else library.demands.waiting()
    if library is None or offer is None:
        return
    assert isinstance(offer.loader, PolicyLibrary)
    library.become(offer.loader)
    for caller in callers:
        if isinstance(caller, CallLoop):
            caller.instance.use(offer)
    offer.moves.make()
    library.demands.take(offer)
    if not offer.moves.are_whole:
        offer.renewed()


def _load_again(
    reference: weakref.ref[PolicyChanges], source: PolicySource, target: object
) -> None:
    """Load a watched file again, for a library or for all guests."""
    changes = reference()
    if changes is not None:
        with suppress(UsageError, RuntimeError):  # closed meanwhile, or the interpreter ends
            changes._submit(source, target if isinstance(target, PolicyLibrary) else None)  # noqa: SLF001
