"""Every guest of fixtures/guests, doing what its README says."""

import logging

import numpy as np
import onnxruntime
import pytest
from tests.integration.guest_text import GUESTS, POINTMASS, ROOT

from arkml.errors import CmdletFailed, GuestError, GuestTrap
from arkml.guests.guest import calls_of
from arkml.runtime.wasi.linking import WasiGrant

ARK = GUESTS / "ark_api"


@pytest.fixture
def said(caplog):
    """The lines that guests log from now on."""
    caplog.set_level(logging.DEBUG, "arkml.guest")
    return lambda: [r.getMessage() for r in caplog.records if r.name.startswith("arkml.guest")]


@pytest.mark.parametrize("version", ["016", "017"])
@pytest.mark.parametrize("seed", [0, 7])
def test_the_inference_cmdlets_pass_all_their_checks(make_host, said, version, seed):
    guest = make_host(seed=seed).load(ARK / f"cmdlet_infer_{version}.wasm")
    guest.run_cmdlet("infer all", budget=None)

    assert said()[-1] == "all checks passed"
    assert calls_of(guest).services.live_handles == 0
    assert calls_of(guest).services.live_futures == 0
    assert guest.failure is None


@pytest.mark.parametrize("version", ["016", "017"])
def test_the_inference_cmdlets_notice_that_a_deterministic_host_draws_no_noise(make_host, version):
    guest = make_host(deterministic=True).load(ARK / f"cmdlet_infer_{version}.wasm")
    guest.run_cmdlet("infer det", budget=None)
    with pytest.raises(CmdletFailed, match="epsilon is not standard normal"):
        guest.run_cmdlet("infer stochastic", budget=None)


@pytest.mark.parametrize(
    ("version", "part"),
    [("016", part) for part in ("det", "stochastic", "cervo", "bad")]
    + [("017", part) for part in ("det", "stochastic", "cervo", "over", "bad", "runtime")],
)
def test_the_inference_cmdlets_pass_each_check_alone(host, said, version, part):
    guest = host.load(ARK / f"cmdlet_infer_{version}.wasm")
    guest.run_cmdlet(f"infer {part}", budget=None)

    assert said()
    assert calls_of(guest).services.live_handles == 0


@pytest.mark.parametrize("version", ["016", "017"])
def test_the_inference_cmdlets_fail_and_panic_with_their_words(host, version):
    guest = host.load(ARK / f"cmdlet_infer_{version}.wasm")
    with pytest.raises(CmdletFailed, match="wrong words here") as failed:
        guest.run_cmdlet("fail wrong words here")
    with pytest.raises(GuestTrap, match="bad words here") as panicked:
        guest.run_cmdlet("panic bad words here")

    assert failed.value.status != 0
    assert "lib.rs" in panicked.value.panic
    assert f"cmdlet_infer_{version}.wasm panicked" in str(panicked.value)


@pytest.mark.parametrize("version", ["016", "017"])
def test_the_inference_cmdlets_have_a_help(host, version):
    assert "infer" in host.load(ARK / f"cmdlet_infer_{version}.wasm").help()


def test_the_module_run_guest_packs_a_model(host):
    guest = host.load(ARK / "module_run_016.wasm")
    reply = guest.invoke("transform", POINTMASS)

    assert reply.status == 0
    assert reply.data[:8] == b"CRVO\0\0\0\x01"
    assert reply.data[8:] == POINTMASS


def test_the_module_run_guest_tells_both_lengths(host):
    reply = host.load(ARK / "module_run_016.wasm").invoke("lengths", POINTMASS)

    assert reply.status == 0
    assert np.frombuffer(reply.data, "<u4").tolist() == [len(POINTMASS), len(POINTMASS) + 8]


def test_the_training_cmdlet_fails_cleanly_without_a_hive(host):
    guest = host.load(ARK / "cmdlet_train_016.wasm")
    with pytest.raises(CmdletFailed) as error:
        guest.run_cmdlet("localhost 12356 100", budget=None)

    assert error.value.status == 1
    assert guest.failure is None
    assert calls_of(guest).services.live_futures == 0


def test_the_training_applet_fails_cleanly_without_a_hive(host):
    guest = host.load(ARK / "applet_train_016.wasm")
    for _ in range(20):
        guest.update()

    assert guest.call("status") == 2
    assert guest.return_slice
    assert guest.failure is None
    assert calls_of(guest).services.live_futures == 0


def test_the_training_applet_takes_its_configuration(host):
    guest = host.load(ARK / "applet_train_016.wasm")

    assert guest.invoke("configure", b"localhost 12356 10 trial").status == 0
    assert guest.call("status") == 0
    assert guest.invoke("configure", b"nonsense").status != 0


@pytest.mark.parametrize("version", ["016", "017"])
def test_real_guests_tell_what_they_need(host, version):
    info = host.load(ARK / f"cmdlet_infer_{version}.wasm").info

    assert info.takes_bytes
    assert info.crate_version.startswith(f"0.{version[1:]}.")
    assert "ark-ml-v4" in {api.module for api in info.required}


def test_the_newer_guest_counts_its_allocations(host):
    guest = host.load(ARK / "cmdlet_infer_017.wasm")
    guest.run_cmdlet("infer det", budget=None)
    count, size, frees, freed = guest.allocations()

    assert count >= frees > 0
    assert size >= freed > 0
    assert host.load(ARK / "cmdlet_infer_016.wasm").allocations() is None


# Guests of our own.


@pytest.mark.parametrize("guest_file", ["c_applet.wasm", "as_applet.wasm"])
def test_applets_play(host, guest_file, said):
    guest = host.load(GUESTS / guest_file)
    for _ in range(120):
        guest.update()

    assert guest.call("status") == 0
    assert guest.call("frames") == 120
    assert any(line.startswith("frame ") for line in said())
    assert not guest.statistics.errors


@pytest.mark.parametrize("guest_file", ["c_applet.wasm", "as_applet.wasm"])
def test_applets_take_another_policy(host, guest_file):
    guest = host.load(GUESTS / guest_file)

    assert guest.invoke("configure", b"no model").status == 5
    assert guest.invoke("configure", POINTMASS).status == 0
    guest.update()
    assert calls_of(guest).services.live_handles == 1


def test_the_c_applet_takes_packed_policies_and_other_crowds(host):
    guest = host.load(GUESTS / "c_applet.wasm")
    packed = b"CRVO\0\0\0\x01" + POINTMASS

    assert guest.invoke("configure", packed).status == 0
    assert guest.call("resize", 65) == 5
    assert guest.call("resize", 64) == 0
    for _ in range(51):
        guest.update()
    assert guest.call("episodes") == 64
    assert guest.statistics.rows == 64 * 51


def test_the_rust_cmdlet_checks_every_answer(host, said):
    guest = host.load(GUESTS / "rust_cmdlet.wasm")
    guest.run_cmdlet()
    guest.run_cmdlet("evaluate 64")

    assert said()[-2:] == [
        "10 agents: all answers are right",
        "64 agents: all answers are right",
    ]
    with pytest.raises(CmdletFailed, match="65 is no number of agents"):
        guest.run_cmdlet("evaluate 65")


def test_the_wasi_command_runs(make_host):
    out = []
    host = make_host(wasi=WasiGrant(arguments=("command", "5"), stdout=out.append))

    assert host.load(GUESTS / "wasi_command.wasm").run_command() == 5
    assert b"argument 5" in b"".join(out)


@pytest.mark.parametrize("features", [8, 64, 256])
@pytest.mark.parametrize("agents", [1, 64, 1500])
def test_the_benchmark_guest_gets_what_onnxruntime_computes(host, features, agents):
    path = ROOT / "fixtures" / "policies" / f"mlp_f{features}_a3.onnx"
    model = path.read_bytes()
    guest = host.load(GUESTS / "bench_guest.wasm")
    guest.write_memory(guest.call("alloc_model", len(model)), model)
    assert guest.call("setup", agents, features, 3, len(model)) == 0
    for _ in range(3):
        assert guest.call("frame") == 0
    session = onnxruntime.InferenceSession(model)
    rows = floats(guest, "features_ptr", agents * features).reshape(agents, features)
    (wanted, *_) = session.run(["actions"], {session.get_inputs()[0].name: rows})

    found = floats(guest, "actions_ptr", agents * 3).reshape(agents, 3)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


def floats(guest, name, count):
    return np.frombuffer(guest.read_memory(guest.call(name) & 0xFFFF_FFFF, 4 * count), "<f4")


def test_the_probes_of_the_benchmark_guest_get_the_right_codes(host):
    model = (ROOT / "fixtures" / "policies" / "mlp_f8_a3.onnx").read_bytes()
    guest = host.load(GUESTS / "bench_guest.wasm")
    guest.write_memory(guest.call("alloc_model", len(model)), model)
    guest.call("setup", 4, 8, 3, len(model))

    assert [guest.call("probe", kind) for kind in range(10)] == [6, 5, 5, 5, 5, 6, 5, 5, 6, 5]
    assert guest.statistics.errors == {"INVALID_ARGUMENTS": 7, "NOT_FOUND": 3}


def test_every_compiled_guest_is_used_here_or_named_in_a_readme():
    told = (GUESTS / "README.md").read_text() + (ARK / "README.md").read_text()

    for path in GUESTS.rglob("*.wasm"):
        assert path.stem in told, path.name


def test_no_guest_leaves_a_trace_in_the_next(make_host):
    host = make_host(wasi=WasiGrant())
    for path in sorted(GUESTS.rglob("*.wasm")):
        if path.name in {"wasi_command.wasm", "c_cart.wasm", "c_plugin.wasm"}:
            continue  # a command, and guests that import functions of a game
        guest = host.load(path)
        if "ark_applet_update" in guest.module.functions:
            for _ in range(4):
                try:
                    guest.update()
                except GuestError:
                    break
        guest.close()

    guest = host.load(GUESTS / "rust_cmdlet.wasm")
    assert guest.run_cmdlet("evaluate 64") == b""
