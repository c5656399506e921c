"""`ark-time-v1`, declared once: the time of day."""

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
            "Nanoseconds since the Unix epoch.",
            returns=I64,
            outcome=Outcome.NONE,
        ),
        Function(
            "format_time_for_display",
            "Render a time for people.",
            (Param("ns_since_epoch", I64), Param("time_format", TimeFormat)),
            returns=Text(),
            outcome=Outcome.NONE,
        ),
    ),
)
