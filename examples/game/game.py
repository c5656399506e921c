"""
A game of pygame-ce whose NPCs are guests: a crowd, and mods of strangers.

    pip install arkml pygame-ce
    python examples/game/game.py

The crowd follows the mouse; a click hits those near it. Mods that trap or spin are out, R loads
them again. S saves the crowd, and L brings it back, also in another game. One thread has the logic,
60 frames a second; the main thread draws the frame before.
"""

from __future__ import annotations

import argparse
import logging
import math
import threading
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, Queue
from typing import NamedTuple

import numpy as np
import pygame

from arkml import ArkmlError, Fleet, FleetSnapshot, Host, Limits

HERE = Path(__file__).parent
NPC = HERE.parents[1] / "fixtures" / "guests" / "c_npc.wasm"
MODS = sorted((HERE / "mods").glob("*.wat"))
FPS = 60
WIDTH, HEIGHT, SCALE = 960, 640, 160  # of the window, and pixels of a unit of the world
REACH, DAMAGE = 0.6, 0.4  # of a hit
COLORS = {"circles": "gold", "traps": "tomato", "spins": "orchid", "floods": "deepskyblue"}


def steer(seen: np.ndarray) -> np.ndarray:
    """Return the forces of NPCs, float32, [n, 2], by what they see; a trained model comes later."""
    return 2 * seen[:, :2] - 2 * seen[:, 2:]


class Input(NamedTuple):
    """What the player does: the point of the mouse, and what is to be done once."""

    x: float
    y: float
    hits: bool = False
    reloads: bool = False  # mods
    saves: bool = False
    loads: bool = False


class Picture(NamedTuple):
    """What is drawn of a frame: arrays of points, [n, 2], and of lives, [n]."""

    player: tuple[float, float]
    crowd: np.ndarray
    lives: np.ndarray
    mods: dict[str, np.ndarray]


class World:
    """The logic: the guests, stepped once a frame by one thread."""

    def __init__(self, host: Host, count: int, saved: Path) -> None:
        self.host = host
        self.saved = saved
        self.said: list[str] = []
        self.random = np.random.default_rng(0)
        self.crowd = host.fleet(NPC, count, name="npc")
        self.put(range(count))
        self.swapped = 0
        self.mods: dict[str, Fleet] = {}
        self.out: dict[str, str] = {}
        self.load_mods()

    def put(self, indices: Sequence[int]) -> None:
        """Put NPCs somewhere."""
        points = self.random.uniform(-2, 2, (len(indices), 2)).astype(np.float32)
        self.crowd.write("position", points, only=indices)

    def swap(self, index: int) -> None:
        """Swap an NPC for a new one, somewhere else."""
        self.crowd.replace(self.crowd.guests[index])
        self.put([index])
        self.swapped += 1

    def load_mods(self) -> None:
        """Load all mods anew, each a fleet of one guest."""
        for path in MODS:
            if (former := self.mods.pop(path.stem, None)) is not None:
                former.close()
            self.mods[path.stem] = self.host.fleet(path, 1, name=path.stem)

    def save(self) -> None:
        """Save the crowd; a file that cannot be written changes nothing."""
        try:
            self.crowd.snapshot().save(self.saved)
        except (OSError, ArkmlError) as error:
            self.said.append(f"not saved: {error}")
        else:
            self.said.append(f"saved, {self.where()}")

    def load(self) -> None:
        """Bring the crowd back as it was saved; a file that cannot be read changes nothing."""
        try:
            self.crowd.restore(FleetSnapshot.load(self.saved))
        except (OSError, ArkmlError) as error:
            self.said.append(f"not loaded: {error}")
        else:
            self.said.append(f"loaded, {self.where()}")

    def where(self) -> str:
        """Return where the crowd is, as a number that differs when anybody is elsewhere."""
        return f"crowd {zlib.crc32(self.crowd.read('position', np.float32, 2).tobytes()):08x}"

    def step(self, given: Input) -> Picture:
        """Play one frame and return what is to be seen of it."""
        if given.reloads:
            self.load_mods()
        if given.saves:
            self.save()
        if given.loads:
            self.load()
        player = np.array([given.x, given.y], np.float32)
        crowd = self.crowd
        crowd.write("player", np.tile(player, (len(crowd), 1)))
        if given.hits:
            distances = np.linalg.norm(crowd.read("position", np.float32, 2) - player, axis=1)
            crowd.call("hit", np.where(distances < REACH, DAMAGE, 0))
        for index in crowd.update():  # guests that failed
            self.swap(index)
        lives = crowd.read("life", np.float32)
        if not lives.all():  # one a frame, since making a guest takes a tenth of a millisecond
            self.swap(int(lives.argmin()))
        mods = {}
        for name, mod in list(self.mods.items()):
            mod.write("player", player[np.newaxis])
            for error in mod.update().values():
                self.out[name] = str(error).splitlines()[0]
                self.mods.pop(name).close()
            if name in self.mods:
                mods[name] = mod.read("position", np.float32, 2)[0]
        return Picture((given.x, given.y), crowd.read("position", np.float32, 2), lives, mods)


class Logic(threading.Thread):
    """The thread that steps the world and hands each frame to the one that draws."""

    def __init__(self, world: World, frames: int | None, fps: float) -> None:
        super().__init__(name="logic")
        self.pictures: Queue[Picture] = Queue(maxsize=1)  # so that neither runs ahead of the other
        self._given = Input(0, 0)
        self._giving = threading.Lock()
        self.ends = threading.Event()
        self._world, self._frames, self._pause = world, frames, 1 / fps if fps else 0.0

    def give(self, given: Input) -> None:
        """Take what the player does; what is to be done once stays until a frame has done it."""
        with self._giving:
            before = self._given
            self._given = Input(given.x, given.y, *map(max, given[2:], before[2:]))

    def take(self) -> Input:
        """Return what the player does in the next frame."""
        with self._giving:
            given, self._given = self._given, Input(self._given.x, self._given.y)
            return given

    def run(self) -> None:
        frame, due = 0, time.perf_counter()
        while not self.ends.is_set() and frame != self._frames:
            self.pictures.put(self._world.step(self.take()))
            frame += 1
            due = max(due + self._pause, time.perf_counter() - self._pause)
            time.sleep(max(0.0, due - time.perf_counter()))
        self.ends.set()


def draw(screen: pygame.Surface, picture: Picture) -> None:
    """Draw a frame."""
    screen.fill("gray10")
    for point, life in zip(picture.crowd, picture.lives, strict=True):
        gray = 90 + int(120 * life)
        pygame.draw.circle(screen, (gray, gray, gray) if life > 0 else "gray25", at(point), 3)
    for name, point in picture.mods.items():
        pygame.draw.circle(screen, COLORS.get(name, "white"), at(point), 8)
    pygame.draw.circle(screen, "limegreen", at(picture.player), 6)
    pygame.display.flip()


def at(point: np.ndarray | tuple[float, float]) -> tuple[int, int]:
    """Return the pixel of a point; what a guest says may be any number."""
    x, y = (min(max(float(value), -1e4), 1e4) if math.isfinite(value) else 1e4 for value in point)
    return round(WIDTH / 2 + SCALE * x), round(HEIGHT / 2 + SCALE * y)


def player_of(frame: int, *, is_demo: bool) -> Input:
    """Return what the player does: by mouse and keys or, for a demonstration, by itself."""
    if is_demo:
        angle = frame / FPS
        x, y = 0.5 * math.cos(angle), 0.5 * math.sin(angle)
        return Input(
            x, y, frame % 240 == 60, frame == 1_000, saves=frame == 100, loads=frame in (200, 280)
        )
    x, y = pygame.mouse.get_pos()
    events = pygame.event.get()
    if any(event.type == pygame.QUIT for event in events):
        raise KeyboardInterrupt
    keys = {event.key for event in events if event.type == pygame.KEYDOWN}
    return Input(
        (x - WIDTH / 2) / SCALE,
        (y - HEIGHT / 2) / SCALE,
        hits=any(event.type == pygame.MOUSEBUTTONDOWN for event in events),
        reloads=pygame.K_r in keys,
        saves=pygame.K_s in keys,
        loads=pygame.K_l in keys,
    )


def play(world: World, frames: int | None, fps: float, *, is_demo: bool) -> int:
    """Play until the window is closed, or for a number of frames; return the frames drawn."""
    screen = pygame.display.set_mode((WIDTH, HEIGHT))
    logic, drawn, shown = Logic(world, frames, fps), 0, -1
    logic.start()
    try:
        while not (logic.ends.is_set() and logic.pictures.empty()):
            if not is_demo or drawn != shown:  # once for each frame, also while none comes
                logic.give(player_of(drawn, is_demo=is_demo))
                shown = drawn
            try:
                picture = logic.pictures.get(timeout=0.1)
            except Empty:
                continue
            draw(screen, picture)
            drawn += 1
    except KeyboardInterrupt:
        pass
    finally:
        logic.ends.set()
        while logic.is_alive():  # it may wait for its picture to be taken
            if not logic.pictures.empty():
                logic.pictures.get()
            logic.join(0.01)
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--npcs", type=int, default=200)
    parser.add_argument("--frames", type=int, help="end after so many, played without a player")
    parser.add_argument("--saved", type=Path, default=Path("crowd.state"), help="file of S and L")
    parser.add_argument("--fps", type=float, default=FPS, help="0 plays as fast as it can")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    pygame.display.init()
    limits = Limits.game(fps=options.fps or FPS)
    with Host(limits=limits, policies={"npc": steer}) as host:
        world = World(host, options.npcs, options.saved)
        is_demo = options.frames is not None
        drawn = play(world, options.frames, options.fps, is_demo=is_demo)
        near = np.linalg.norm(world.crowd.read("position", np.float32, 2), axis=1) < 1
        print(f"{drawn} frames, {near.sum()} of {len(world.crowd)} NPCs near, {world.swapped} new")
        print(f"mods: {', '.join(world.mods)}")
        for why in world.out.values():
            print(f"out: {why}")
        for line in world.said:
            print(line)
        for guest, milliseconds, _ in world.crowd.slowest(3):
            print(f"slowest: {guest.name} {milliseconds:.3f} ms")
    pygame.quit()


if __name__ == "__main__":
    main()
