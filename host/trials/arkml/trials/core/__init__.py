"""
One trial of Cogment's protocol as a state machine without I/O (decision 18).

Theory of operation
===================

A Trial sends nothing and waits for nothing. Its owner, `server/trial_task.py`, feeds it inputs:
`from_actor` and `from_environment` for messages, `lose_actor` and `lose_environment` for streams
that ended, `elapse` for the time. After each input the owner calls `take`, which returns the
outputs since the last call, for example "send this message to actor 2" or "open a stream to the
environment", and applies them in order. `deadline` says when to call `elapse` next. Inputs get
the time as `now`, in seconds of one steady clock; the machine itself reads a clock only for
timestamps.

The state follows the table TRIAL of `states.py`. A trial is INITIALIZING while hooks write its
parameters. `begin` takes them and makes it PENDING: actors with an address are called, actors of
the endpoint `cogment://client` join by themselves, and once all of them have arrived or are given
up, the environment is called (`actors.py`). Its first observations make the trial RUNNING.

A tick is one round. The environment sends one observation for each actor. The trial first sends
the rewards of the tick before, and then the observations; messages pass through at any time.
Each actor sends one action. When the last one is there, the environment gets all actions in one
message, and answers with the observations of the next tick. In place of a missing optional actor
the trial uses its `default_action`, or lists it as unavailable (`turn.py`). A hosted trial has
other rules (`hosted_turn.py`): its environment offers a stand-in action for each actor, so the tick
can end without any of them (decision 19).

A soft end is requested by `terminate` or by `max_steps`. A running trial becomes TERMINATING; one
that does not run yet first plays its tick 0. With the next complete set of actions the environment
gets LAST, and the observations that it answers with are the final ones. An environment can also
send LAST itself; then its next observations are final. Actors get LAST, then the final
observation, and acknowledge with LAST_ACK, as does the environment. After the last
acknowledgement the trial sends the remaining rewards and END, and is ENDED. Actors have 30 s and
the environment 60 s to do so; a late one turns this into a hard end: `cut` sends END with a reason
to all at once, without final observations.

Actors and the environment each have a Phase. A message that their table does not allow is a
breach of the protocol. It never raises from an input. A breach, a timeout or a lost stream of the
environment or of a required actor cuts the trial, and an optional actor is dropped; in a hosted
trial the stand-in of any lost actor takes over instead.
"""
