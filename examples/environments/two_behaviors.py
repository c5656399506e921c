"""Agents of two behaviors, with choices that are masked, in one PettingZoo environment."""

import sys
from collections import defaultdict

from arkml.envs.pettingzoo_env import parallel_env

MODULE = sys.argv[1] if len(sys.argv) > 1 else "fixtures/guests/c_choosers.wasm"
PICKERS_AND_DRIVERS = 3

game = parallel_env(MODULE, configure=(2, PICKERS_AND_DRIVERS), max_cycles=200, spawn="show")
observations, infos = game.reset(seed=1)
spaces, returns = {}, defaultdict(float)
while game.agents:
    actions = {}
    for agent in game.agents:
        if agent not in spaces:  # it has joined
            spaces[agent] = game.action_space(agent)
            spaces[agent].seed(len(spaces))
        actions[agent] = spaces[agent].sample(infos[agent]["action_mask"])
    observations, rewards, terminations, truncations, infos = game.step(actions)
    for agent, reward in rewards.items():
        returns[agent.partition("/")[0]] += reward
for behavior, total in sorted(returns.items()):
    agents = sum(agent.startswith(f"{behavior}/") for agent in game.possible_agents)
    print(f"{behavior:8} {agents:3} agents   sum of rewards {total:8.2f}")
game.close()
