"""The hosts of examples/game_functions run modules that were made for others."""

import contextlib
import importlib.util
import logging
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from tests.integration.command_line import ENVIRONMENT, GUESTS, ROOT

import arkml

FOLDER = ROOT / "examples" / "game_functions"
CART, PLUGIN = GUESTS / "c_cart.wasm", GUESTS / "c_plugin.wasm"
RIGHT = 32


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def wasm4():
    return loaded("wasm4_console")


@pytest.fixture(scope="module")
def extism():
    return loaded("extism_plugins")


@pytest.fixture(scope="module")
def screen(wasm4):
    """Colors of the screen, 0 to 3, [160, 160], after three frames with a step to the right."""
    with wasm4.Console(str(CART)) as console:
        for buttons in (0, RIGHT, 0):
            console.frame(buttons)
        return np.asarray(console.picture())


@pytest.fixture
def make_plugin(extism):
    """Make the plug-in, with the function that it wants and some settings."""
    with contextlib.ExitStack() as stack:
        functions = {("extism:host/user", "shout"): bytes.upper}
        yield lambda **config: stack.enter_context(extism.Plugin(str(PLUGIN), functions, config))


def picture(rows):
    return np.array([[int(color) for color in row] for row in rows.split()])


ARROW = """
    00003000
    00003300
    33333330
    33333333
    33333330
    00003300
    00003000
    00000000"""


@pytest.mark.parametrize("name", ["wasm4_console", "extism_plugins"])
def test_it_prints_what_its_readme_says(name, tmp_path):
    section = (FOLDER / "README.md").read_text().split(f"## {name}.py\n")[1]
    command = section.split("    python ")[1].splitlines()[0].replace("cart.png", "{}")
    run = subprocess.run(
        [sys.executable, *command.format(tmp_path / "cart.png").split()],
        capture_output=True, text=True, cwd=ROOT, timeout=300, check=False, env=ENVIRONMENT,
    )  # fmt: skip

    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout == section.split("```text\n")[1].split("```")[0]


def test_a_rectangle_has_a_border_and_is_cut_at_the_edges(screen):
    assert (screen[10:18, 10:30] == np.pad(np.full((6, 18), 1), 1, constant_values=2)).all()
    assert (screen[:4, 151:] == 1).all()
    assert (screen[4, 150:] == 2).all()
    assert (screen[:5, 150] == 2).all()
    assert (screen[5, 150:] == 0).all()


def test_an_oval_is_even_on_both_sides(screen):
    oval = screen[10:21, 40:61]

    assert (oval == oval[::-1]).all()
    assert (oval == oval[:, ::-1]).all()
    assert oval[5].tolist() == [2, *[1] * 19, 2]
    assert (oval[0] == 2).sum() in range(5, 12)
    assert oval[0, 0] == 0


def test_lines_are_drawn_as_far_as_they_are_on_the_screen(screen):
    assert screen[30].tolist() == [3] * 7 + [0] * 153
    assert screen[31].tolist() == [0] * 150 + [3] * 10
    assert (screen[150:159, 5] == 3).all()
    assert all(screen[40 + step, step] == 3 for step in range(10))
    assert screen[44:62, 20].tolist()[1:-1] == [3] * 16
    assert (screen[70] == 3).all()
    assert (screen[60, 0], screen[50, 159]) == (3, 3)
    assert ((screen[50:61, 30:] == 3).sum(0) == 1).all()


def test_sprites_are_turned_and_their_transparent_color_leaves_what_is_there(screen):
    arrow = picture(ARROW)

    assert (screen[80:88, 1:9] == arrow).all()
    assert (screen[80:88, 20:28] == arrow[:, ::-1]).all()
    assert (screen[80:88, 40:48] == np.rot90(arrow)).all()
    assert (screen[80:88, 156:] == arrow[:, :4]).all()


def test_sprites_of_four_colors_and_parts_of_them(screen):
    squares = picture("0011 0011 2233 2233")

    assert (screen[80:84, 60:64] == squares).all()
    assert (screen[80:84, 70:74] == squares[::-1]).all()
    assert (screen[80:82, 80:82] == 3).all()


def test_text_is_drawn_until_its_end(screen):
    line = screen[120:128]

    assert set(line[:, 8:48].ravel()) == {0, 1}
    assert (line[:, 60:84] == 1).any()
    assert not line[:, 84:100].any()
    assert (screen[128:136, 8:48] == 1).any()
    assert (line[:, 100:124] == 1).any()


def test_a_cartridge_writes_its_screen_itself_and_keeps_a_disk(wasm4, screen):
    assert screen[159, 159] == 3
    with wasm4.Console(str(CART)) as console:
        for _ in range(300):
            console.frame()  # it traps if the disk has not the number of frames
        assert console.guest.failure is None


def test_an_address_outside_of_its_memory_ends_the_cartridge(wasm4):
    cart = b"""(module
      (import "env" "memory" (memory 1 1))
      (import "env" "trace" (func $trace (param i32)))
      (import "env" "blit" (func $blit (param i32 i32 i32 i32 i32 i32)))
      (func (export "update") (call $trace (i32.const -1)))
      (func (export "sprite")
        (call $blit (i32.const 65530) (i32.const 0) (i32.const 0) (i32.const 160) (i32.const 160)
          (i32.const 1))))"""
    for function in ("update", "sprite"):
        with wasm4.Console(cart) as console, pytest.raises(arkml.GameFunctionFailed) as error:
            console.guest.call(function)
        assert isinstance(error.value.__cause__, arkml.errors.InvalidArguments)


def test_the_picture_has_the_palette_of_the_cartridge(wasm4, tmp_path):
    with wasm4.Console(str(CART)) as console:
        console.frame()
        console.guest.write_memory(4 + 12, (0x112233).to_bytes(4, "little"))
        console.picture().save(tmp_path / "cart.png")
    with Image.open(tmp_path / "cart.png") as saved:
        assert saved.convert("RGB").getpixel((159, 159)) == (0x11, 0x22, 0x33)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000])
def test_a_plugin_gets_its_input_and_leaves_its_output(make_plugin, size):
    data = (bytes(range(256)) * 4)[:size]
    assert make_plugin().call("echo", data) == data


def test_variables_last_from_call_to_call(make_plugin):
    plugin = make_plugin()
    assert [plugin.call("count") for _ in range(3)] == [b"1", b"2", b"3"]


def test_a_plugin_reads_settings_asks_the_game_and_logs(extism, make_plugin, caplog):
    with caplog.at_level(logging.INFO, "plugins"):
        assert make_plugin(greeting="hi").call("greet") == b"HI"
    assert caplog.messages == ["greeting"]
    with pytest.raises(extism.PluginError, match="no greeting is set"):
        make_plugin().call("greet")


@pytest.mark.parametrize(
    ("function", "text"), [("fetch", "into the network"), ("wrong", "there is no block at 0x3039")]
)
def test_what_a_plugin_may_not_do_ends_it(make_plugin, function, text):
    with pytest.raises(arkml.GameFunctionFailed, match=text):
        make_plugin().call(function)


def test_a_plugin_without_the_functions_of_its_game_is_refused(extism):
    with pytest.raises(arkml.LinkError, match=r"extism:host/user\.shout"):
        extism.Plugin(str(PLUGIN))


@pytest.mark.parametrize(("status", "text"), [(0, None), (3, "_start returned 3")])
def test_a_plugin_that_is_a_program_is_started(extism, tmp_path, status, text):
    program = tmp_path / "program.wat"
    program.write_text(f"""(module
      (import "extism:host/env" "input_offset" (func $at (result i64)))
      (import "extism:host/env" "input_length" (func $length (result i64)))
      (import "extism:host/env" "output_set" (func $set (param i64 i64)))
      (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
      (memory (export "memory") 1)
      (func (export "_start")
        (call $set (call $at) (call $length)) (call $exit (i32.const {status}))))""")

    with extism.Plugin(str(program)) as plugin:
        if text is None:
            assert plugin.call("_start", b"ben") == b"ben"
        else:
            with pytest.raises(extism.PluginError, match=text):
                plugin.call("_start", b"ben")
