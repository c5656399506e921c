"""A video of a pendulum, drawn by its declared positions, as an animated GIF."""

import sys
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.wrappers import RenderCollection
from PIL import Image

import arkml.envs.gym  # noqa: F401  registers the guests

MODULE = sys.argv[1] if len(sys.argv) > 1 else "fixtures/guests/c_pendulum.wasm"
VIDEO = Path(sys.argv[2] if len(sys.argv) > 2 else "pendulum.gif")
SPEC = {
    "observations": [
        {"name": "tip", "shape": [2], "low": -1, "high": 1},
        {"name": "speed", "shape": [1]},
    ],
    "positions": [0, 1],
}

plain = gymnasium.make(
    "arkml/Guest-v0", module=MODULE, configure=(1, "{seed}"), spec=SPEC, render_mode="rgb_array"
)
env = RenderCollection(plain)
observation, _ = env.reset(seed=1)
for _ in range(120):
    push = np.sign(observation["speed"]).astype(np.float32)  # pumps energy into the swing
    observation, *_ = env.step(push)
frames = [Image.fromarray(picture) for picture in env.render()]
env.close()
frames[0].save(VIDEO, save_all=True, append_images=frames[1:], duration=1000 // 60, loop=0)
print(f"{len(frames)} pictures of {frames[0].width} x {frames[0].height} in {VIDEO.name}")
