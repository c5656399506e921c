"""Hooks of schemathesis: requests are for a run and a session that are there, every other time."""

import itertools
import json
import os
from pathlib import Path

import schemathesis

CONTENT_TYPE = "application/x-arkml-rows"

NAMED = {501, 503, 507}
"""The statuses from 500 on that a hive answers with: it cannot do it now."""

_turns = itertools.count()
_live = {"run_id": os.environ["ARKML_RUN"], "sid": os.environ["ARKML_SID"]}
_count = Path(os.environ["ARKML_COUNT"])


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    """Put ids that are there in the place of those that were made up, but for requests to end."""
    operation = context.operation
    is_final = operation.method.lower() == "delete" or operation.path.endswith(("/stop", "/leave"))
    if path_parameters and next(_turns) % 2 and not is_final:
        return {name: _live.get(name, value) for name, value in path_parameters.items()}
    return path_parameters


@schemathesis.hook
def map_query(context, query):
    """Let no poll wait, which would take its time and find nothing."""
    is_poll = context.operation.path.endswith("/policy")
    return {**query, "wait": "0"} if is_poll and query and "wait" in query else query


@schemathesis.serializer("application/wasm", CONTENT_TYPE)
def as_bytes(context, value):
    """Send any value as the bytes of a module, or of rows."""
    del context
    return value if isinstance(value, bytes) else json.dumps(value, default=str).encode()


@schemathesis.check
def only_named_errors(context, response, case):
    """Refuse an answer that says a bug of the hive, or a refusal without a sentence."""
    del context
    with _count.open("ab") as file:  # a byte for each request
        file.write(b".")
    status = response.status_code
    assert status < 500 or status in NAMED, f"{status}: {response.text[:300]}"
    if status >= 400 and case.method.upper() != "HEAD":
        assert response.json()["error"], f"{status} without a sentence"
