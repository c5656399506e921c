"""Table of `ark-time-v1`: the time of day."""

from __future__ import annotations

from arkml.abi.codes import TimeFormat
from arkml.abi.schema import I64, Api, Function, Outcome, Param, Text

TIME_V1 = Api(
    module="ark-time-v1",
    prefix="time",
    doc="The time of day.",
    id=0x6B95_7BE8_9952_68BE,
    enums=(TimeFormat,),
    functions=(
        Function(
            "time_utc",
            "Get the time in nanoseconds since the Unix epoch.",
            returns=I64,
            outcome=Outcome.NONE,
            leaves_nothing=True,
        ),
        Function(
            "format_time_for_display",
            "Render a time as text for display.",
            (Param("ns_since_epoch", I64), Param("time_format", TimeFormat)),
            returns=Text(),
            outcome=Outcome.NONE,
        ),
    ),
)
