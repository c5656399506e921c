"""Rows of the helpers for guests: entities in them, wide ones, and their spec in the source."""

import json
import re

import numpy as np
import pytest
from tests.compilers.building import ROOT, regenerate

from arkml import GuestTrap, Host, evaluate

GUEST_ABI = ROOT / "guest_abi"
GUIDE = (ROOT / "docs" / "guests.md").read_text()
CAPACITY, WIDTH = 3, 2
ROOM = {"name": "enemies", "shape": [CAPACITY, WIDTH]}
WANTED = {"behaviors": {"guard": {"observations": [ROOM]}}}

C = """
#define WITHOUT_GAME
#include "arkml_guest.h"

#define CAPACITY 3
SPEC_TEXT({"behaviors": {"guard": {"observations": [
    {"name": "enemies", "shape": [CAPACITY, 2]}
]}}});

static float part[9];

ARK_EXPORT("filled") float *filled(uint32_t count) {
    for (uint32_t i = 0; i < 9; i++) part[i] = 7.0f;
    Entities enemies = entities(part + 1, CAPACITY, 2);
    for (uint32_t i = 0; i < count; i++) {
        bool is_in = add_entity(&enemies, (const float[]){1.0f + i, -1.0f - i});
        if (is_in != (i < CAPACITY)) __builtin_trap();
    }
    return part;
}
"""
RUST = """
use arkml_guest::{guest, Entities, Game, Random, Step};

struct Guard;

impl Game<7, 1> for Guard {
    const NAME: &'static str = "guard";
    const EPISODE: u32 = 50;

    fn place(_: &mut Random) -> Self {
        Guard
    }

    fn observe(&self) -> [f32; 7] {
        [0.0; 7]
    }

    fn step(&mut self, _: [f32; 1], _: &mut Random) -> Step {
        Step { reward: 0.0, has_ended: false }
    }
}

guest!(
    Guard, features = 7, actions = 1, agents = 1,
    spec_text = br#"{"behaviors": {"guard": {"observations": [
        {"name": "enemies", "shape": [3, 2]}
    ]}}}"#
);

static mut PART: [f32; 9] = [0.0; 9];

#[no_mangle]
pub extern "C" fn filled(count: u32) -> *const f32 {
    let part = unsafe { &mut *std::ptr::addr_of_mut!(PART) };
    part.fill(7.0);
    let mut enemies = Entities::<2>::new(&mut part[1..8]);
    for i in 0..count {
        assert!(enemies.add([1.0 + i as f32, -1.0 - i as f32]) == (i < 3));
    }
    part.as_ptr()
}

#[no_mangle]
pub extern "C" fn uneven(length: u32) {
    Entities::<2>::new(&mut vec![0.0; length as usize]);
}
"""

WIDE_C = """
#define MAX_FEATURES 65536
#include "arkml_guest.h"

static void place(Agent *agent) { (void)agent; }
static void observe(const Agent *agent, float *features) {
    (void)agent;
    for (uint32_t i = 0; i < MAX_FEATURES; i++) features[i] = 1.0f;
}
static bool move(Agent *agent, const float *actions) {
    agent->reward = actions[0];
    return false;
}
static const Game GAME = {
    .name = {TEXT("wide")}, .features = MAX_FEATURES, .actions = 1, .agents = 2, .episode = 2,
    .place = place, .observe = observe, .move = move,
};
"""
WIDE_RUST = """
use arkml_guest::{guest, Game, Random, Step};

struct Wide;

impl Game<65536, 1> for Wide {
    const NAME: &'static str = "wide";
    const EPISODE: u32 = 2;

    fn place(_: &mut Random) -> Self {
        Wide
    }

    fn observe(&self) -> [f32; 65536] {
        [1.0; 65536]
    }

    fn step(&mut self, [action]: [f32; 1], _: &mut Random) -> Step {
        Step { reward: action, has_ended: false }
    }
}

guest!(Wide, features = 65536, actions = 1, agents = 2, spec_text = br#"{"behaviors": {}}"#);
"""


def built_in_c(source, compilers, folder):
    """The path of a guest in C, compiled from its text."""
    (folder / "guest.c").write_text(source)
    clang = compilers.command("clang")
    regenerate.run([*clang, "-o", str(folder / "guest.wasm"), str(folder / "guest.c")])
    return folder / "guest.wasm"


def built_in_rust(source, _compilers, folder):
    """The path of a guest in Rust, compiled from its text with the helper as a crate."""
    (folder / "guest.rs").write_text(source)
    kind = ["--edition", "2021", "--target", "wasm32-unknown-unknown", "-O", "-D", "warnings"]
    rustc = [regenerate.rust_compiler(), *kind, "-C", "linker=wasm-ld", "-C", "panic=abort"]
    helper = str(GUEST_ABI / "rust" / "arkml_guest.rs")
    regenerate.run([*rustc, "--crate-type", "rlib", "--out-dir", str(folder), helper])
    extern = ["--extern", f"arkml_guest={folder / 'libarkml_guest.rlib'}"]
    output = ["-o", str(folder / "guest.wasm"), str(folder / "guest.rs")]
    regenerate.run([*rustc, "--crate-type", "cdylib", *extern, *output])
    return folder / "guest.wasm"


BUILDERS = {"c": built_in_c, "rust": built_in_rust}
SOURCES = {"c": C, "rust": RUST}


@pytest.fixture(scope="module")
def guards(compilers, tmp_path_factory):
    """The guest of each language."""
    return {
        language: build(SOURCES[language], compilers, tmp_path_factory.mktemp(language))
        for language, build in BUILDERS.items()
    }


pytestmark = pytest.mark.compilers


@pytest.mark.parametrize("language", BUILDERS)
def test_a_spec_in_the_source_becomes_the_section_of_the_module(language, guards):
    with Host() as host:
        assert json.loads(host.load(guards[language]).info.spec) == WANTED


@pytest.mark.parametrize("count", [0, 1, CAPACITY, CAPACITY + 2])
@pytest.mark.parametrize("language", BUILDERS)
def test_entities_are_counted_with_zeros_behind_them_and_one_too_many_is_left_out(
    language, count, guards
):
    with Host() as host:
        guest = host.load(guards[language])
        at = guest.call("filled", count)
        with guest.memory() as memory:
            part = np.frombuffer(memory, np.float32, 9, at).tolist()
    there = [(1.0 + place, -1.0 - place) for place in range(min(count, CAPACITY))]
    room = np.zeros((CAPACITY, WIDTH))
    room[: len(there)] = np.reshape(there, (-1, WIDTH))

    assert part == [7.0, len(there), *room.ravel().tolist(), 7.0]


def test_a_part_whose_length_is_not_that_of_entities_panics_in_rust(guards):
    with Host() as host:
        guest = host.load(guards["rust"])
        guest.call("uneven", 5)

        with pytest.raises(GuestTrap, match="4 features are not 1 and some entities of 2"):
            guest.call("uneven", 4)


def to_the_first_coin(rows):
    return np.clip(5 * rows[:, 3:5], -1, 1)


def to_the_jewel(rows):
    """At full speed, and with light once it is near."""
    jewel = rows[:, 0]
    return np.stack([np.ones(len(rows)), abs(jewel) < 0.25, 1 + np.sign(jewel)], axis=1)


def test_the_thief_of_the_guide_gets_continuous_actions_and_then_choices(compilers, tmp_path):
    (source,) = re.findall(r"```c\n([^\n]*thief\..*?)```", GUIDE, re.DOTALL)
    guest = built_in_c(source, compilers, tmp_path)
    idle = evaluate(guest, lambda rows: [[0.0, 0.0, 1.0]] * len(rows), episodes=16)
    by_hand = evaluate(guest, to_the_jewel, episodes=16)

    assert idle.mean_return == pytest.approx(-0.5)
    assert by_hand.mean_return > 0.8
    assert by_hand.lengths.max() < 15


@pytest.mark.parametrize("language", BUILDERS)
def test_the_collector_of_the_guide_sees_its_coins(language, compilers, tmp_path):
    (source,) = re.findall(rf"```{language}\n([^\n]*collector\..*?)```", GUIDE, re.DOTALL)
    guest = BUILDERS[language](source, compilers, tmp_path)
    idle = evaluate(guest, lambda rows: 0 * rows[:, :2], episodes=16)
    by_hand = evaluate(guest, to_the_first_coin, episodes=16)

    assert idle.mean_return < 1.0
    assert by_hand.mean_return > 3.0
    assert (by_hand.returns == np.rint(by_hand.returns)).all()
    assert by_hand.lengths.max() < 100


@pytest.mark.parametrize(("language", "source"), [("c", WIDE_C), ("rust", WIDE_RUST)])
def test_a_row_of_65_536_features_is_pushed_and_answered_without_a_hive(
    language, source, compilers, tmp_path
):
    with Host() as host:
        guest = host.load(BUILDERS[language](source, compilers, tmp_path))
        for _ in range(9):
            guest.update()

        assert (guest.call("status"), guest.call("mode")) == (0, 2)
        assert (guest.call("episodes"), guest.call("mean_return")) == (6, 0.0)
