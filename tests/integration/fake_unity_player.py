"""
A player for tests: two agents that report what they were told to do.

The observation of an agent is its id, the number of the step and the sum of its last action,
which is its reward as well. Agent 0 ends in step 2 and goes on as agent 2; agent 1 ends in step 3
and goes on under its id. The behavior Late appears in step 2. Messages of channel 7 are sent back.
"""

import argparse
import json
import os
import signal
import struct
import sys
import uuid
from pathlib import Path

import grpc

from arkml.envs.llapi.communicator_objects.agent_info_pb2 import AgentInfoProto
from arkml.envs.llapi.communicator_objects.brain_parameters_pb2 import (
    ActionSpecProto,
    BrainParametersProto,
)
from arkml.envs.llapi.communicator_objects.command_pb2 import RESET
from arkml.envs.llapi.communicator_objects.observation_pb2 import ObservationProto
from arkml.envs.llapi.communicator_objects.unity_message_pb2 import UnityMessageProto
from arkml.envs.llapi.communicator_objects.unity_rl_initialization_output_pb2 import (
    UnityRLInitializationOutputProto,
)
from arkml.envs.llapi.communicator_objects.unity_to_external_pb2_grpc import (
    UnityToExternalProtoStub,
)
from arkml.envs.llapi.handshake import capabilities

BALL = "Ball?team=0"
LATE = "Late?team=1"
ECHO = uuid.UUID(int=7)


def arguments():
    parser = argparse.ArgumentParser(prefix_chars="-")
    parser.add_argument("--mlagents-port", type=int, required=True)
    parser.add_argument("-nographics", action="store_true")
    parser.add_argument("-batchmode", action="store_true")
    parser.add_argument("-logFile")
    parser.add_argument("--report")  # a file that gets what the player was told
    parser.add_argument("--api", default="1.5.0")
    parser.add_argument("--exit", type=int)  # end at once with this status
    parser.add_argument("--silent", action="store_true")  # never connect
    parser.add_argument("--stop-at", type=int, default=-1)  # report an error in this step
    parser.add_argument("--die-at", type=int, default=-1)
    parser.add_argument("--hang-at", type=int, default=-1)
    parser.add_argument("--stay", action="store_true")  # do not end when told
    parser.add_argument("--numbers", type=int, default=3)
    parser.add_argument("--bad", default="")
    return parser.parse_args()


def main():
    options = arguments()
    if options.exit is not None:
        sys.exit(options.exit)
    if options.silent:
        signal.pause()
    channel = grpc.insecure_channel(
        f"localhost:{options.mlagents_port}",
        options=[("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)],
    )
    try:
        play(options, UnityToExternalProtoStub(channel))
    except grpc.RpcError:
        sys.exit(3)
    if options.stay:
        signal.pause()


def play(options, stub):
    def call(message):
        message.header.status = message.header.status or 200
        return stub.Exchange(message, wait_for_ready=True)

    hello = UnityMessageProto()
    hello.unity_output.rl_initialization_output.CopyFrom(
        UnityRLInitializationOutputProto(
            name="Fake", communication_version=options.api, package_version="3.0.0",
            capabilities=capabilities(),
        )
    )  # fmt: skip
    told = call(hello).unity_input.rl_initialization_input
    report(options, told)
    answer = call(UnityMessageProto())
    step = 0
    while answer.header.status == 200:
        request = answer.unity_input.rl_input
        step = 0 if request.command == RESET else step + 1
        if step == options.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if step == options.hang_at:
            signal.pause()
        answer = call(output(options, request, step))


def report(options, told):
    if options.report:
        note = {
            "argv": sys.argv[1:],
            "seed": told.seed,
            "num_areas": told.num_areas,
            "version": told.communication_version,
            "pid": os.getpid(),
        }
        part = Path(options.report + ".part")
        part.write_text(json.dumps(note))
        part.rename(options.report)


def output(options, request, step):
    message = UnityMessageProto()
    if step == options.stop_at:
        message.header.status = 500
        return message
    reply = message.unity_output.rl_output
    agents = ball_agents(options, request, step)
    reply.agentInfos[BALL].value.extend(agents)
    brains = message.unity_output.rl_initialization_output.brain_parameters
    if step == 0:
        hybrid = ActionSpecProto(
            num_continuous_actions=2, num_discrete_actions=2, discrete_branch_sizes=[3, 2]
        )
        brains.append(BrainParametersProto(brain_name=BALL, action_spec=hybrid))
        brains.append(BrainParametersProto(brain_name="Nobody", action_spec=hybrid))
    if step == 2:
        spec = ActionSpecProto(num_continuous_actions=1)
        brains.append(BrainParametersProto(brain_name=LATE, action_spec=spec))
        reply.agentInfos[LATE].value.append(AgentInfoProto(id=9, observations=[numbers([1.0])]))
    reply.side_channel = b"cut off" if options.bad == "frame" else echoed(request.side_channel)
    return message


def echoed(block):
    """The frames of the channel ECHO; others are skipped, as players do."""
    frames = b""
    while block:
        size = 20 + struct.unpack_from("<i", block, 16)[0]
        if block[:16] == ECHO.bytes_le:
            frames += block[:size]
        block = block[size:]
    return frames


def ball_agents(options, request, step):
    sums = {0: 0.0, 1: 0.0}
    actions = request.agent_actions[BALL].value if BALL in request.agent_actions else []
    for agent, action in enumerate(actions):
        sums[agent] = sum(action.continuous_actions) + sum(action.discrete_actions)
    first = 0 if step < 3 else 2
    agents = [ball(options, first, step, sums[0]), ball(options, 1, step, sums[1])]
    if step == 2:
        agents[0].done = True
        agents.append(ball(options, 2, step, 0))
    if step == 3:
        agents[1].done = agents[1].max_step_reached = True
        agents.append(ball(options, 1, step, 0))
    return agents


def ball(options, agent, step, total):
    values = [agent, step, float("nan") if options.bad == "nan" else total]
    values += [0.0] * (options.numbers - 3)
    info = AgentInfoProto(id=agent, reward=total, observations=[numbers(values)])
    if agent == 1:
        info.action_mask.extend([True, False, False, False, False])
    return info


def numbers(values):
    return ObservationProto(
        shape=[len(values)], float_data=ObservationProto.FloatData(data=values), name="vector"
    )


if __name__ == "__main__":
    main()
