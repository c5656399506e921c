"""The WASI shim: wasm code between a guest and wasmtime's WASI that bounds and replaces calls."""

from __future__ import annotations

from collections.abc import Iterator

from arkml.runtime.module.imports import WASI_MODULE

OURS = "arkml-wasi"
"""Import module of the calls that the host answers, which suspend the guest."""
CHOSEN = "chosen"
"""Import module of the `VIRTUAL` calls: the host's in an environment, else wasmtime's."""
VIRTUAL = ("clock_time_get", "random_get")
FREE = "free"
"""Name of the exported global with the number of descriptors that the guest may still open."""

LONGEST_PATH = 4096  # bytes, as on Linux; wasmtime copies a path before it is refused
RANDOM_PIECE = 1 << 20  # bytes, after which the guest may be interrupted
WRITE_MOST = 4 << 20  # bytes of one write to a file, of which wasmtime makes a copy
_FAULT, _TOO_MANY_FILES, _NAME_TOO_LONG = 21, 33, 37  # WASI's `fault`, `mfile`, `nametoolong`
_NO_ENTRY, _NOT_SUPPORTED = 44, 58  # WASI's `noent`, `notsup`

_STAT_WORDS, _FILE_TYPE = 8, 16  # size of WASI's `filestat` in 8 bytes, and where its type is
_DIRECTORY, _REGULAR_FILE, _SYMBOLIC_LINK = 3, 4, 7  # file types
_OPENS = ("path_open", "path_filestat_set_times")  # what wasmtime opens without regard to its type

# Their parameters, and those that hold the length of a path.
_PATHS = {
    "path_create_directory": ("i32 i32 i32", (2,)),
    "path_filestat_get": ("i32 i32 i32 i32 i32", (3,)),
    "path_filestat_set_times": ("i32 i32 i32 i32 i64 i64 i32", (3,)),
    "path_link": ("i32 i32 i32 i32 i32 i32 i32", (3, 6)),
    "path_open": ("i32 i32 i32 i32 i32 i64 i64 i32 i32", (3,)),
    "path_readlink": ("i32 i32 i32 i32 i32 i32", (2,)),
    "path_remove_directory": ("i32 i32 i32", (2,)),
    "path_rename": ("i32 i32 i32 i32 i32 i32", (2, 5)),
    "path_symlink": ("i32 i32 i32 i32 i32", (1, 4)),
    "path_unlink_file": ("i32 i32 i32", (2,)),
}
_FILE_WRITES = {"fd_write": "i32 i32 i32 i32", "fd_pwrite": "i32 i32 i32 i64 i32"}
_WAITING = {
    "poll_oneoff": "i32 i32 i32 i32 i64",
    "sched_yield": "",
    "fd_read": "i32 i32 i32 i32",
    "fd_write": _FILE_WRITES["fd_write"],
}

SHADOWED = (*_WAITING, *VIRTUAL, "fd_pwrite", "fd_close", "fd_renumber", *_PATHS)
"""The WASI calls that the shim exports in the place of wasmtime's."""
WAITING = tuple(_WAITING)


def _imported(module: str, name: str, label: str, params: str) -> str:
    kind = f"(param {params}) (result i32)" if params else "(result i32)"
    return f'(import "{module}" "{name}" (func ${label} {kind}))'


def _imports() -> Iterator[str]:
    yield '(import "arkml" "memory" (memory 0))'
    for name, params in _WAITING.items():
        yield _imported(OURS, name, name, params)
    yield _imported(CHOSEN, "clock_time_get", "clock", "i32 i64 i32")
    yield _imported(CHOSEN, "random_get", "random", "i32 i32")
    yield _imported(WASI_MODULE, "fd_read", "file.fd_read", _WAITING["fd_read"])
    for name, params in _FILE_WRITES.items():
        yield _imported(WASI_MODULE, name, f"file.{name}", params)
    yield _imported(WASI_MODULE, "fd_close", "file.fd_close", "i32")
    yield _imported(WASI_MODULE, "fd_renumber", "file.fd_renumber", "i32 i32")
    for name, (params, _) in _PATHS.items():
        yield _imported(WASI_MODULE, name, f"file.{name}", params)


def _file_write(name: str, params: str) -> str:
    """Return a wrapper of a call that shortens a long buffer while wasmtime writes it."""
    arguments = " ".join(f"(local.get {index})" for index in range(len(params.split())))
    call = f"(call $file.{name} {arguments})"
    return f"""
(func $short.{name} (param {params}) (result i32)
    (local $at i32) (local $size i32) (local $error i32)
  (if (i32.eqz (local.tee $at (call $long_buffer (local.get 1) (local.get 2))))
    (then (return {call})))
  (local.set $size (i32.load align=1 (local.get $at)))
  (if (call $is_outside (i32.load align=1 (i32.sub (local.get $at) (i32.const 4)))
      (i64.extend_i32_u (local.get $size)))
    (then (return (i32.const {_FAULT}))))
  (i32.store align=1 (local.get $at) (i32.const {WRITE_MOST}))
  (local.set $error {call})
  (i32.store align=1 (local.get $at) (local.get $size))
  (local.get $error))"""


def _path_call(name: str, params: str, lengths: tuple[int, ...]) -> str:
    """
    Return a wrapper of a call that refuses long paths, and pipes and devices if it opens the path.

    `path_open` takes one of `FREE`.
    """
    arguments = " ".join(f"(local.get {index})" for index in range(len(params.split())))
    checks = "".join(
        f"(if (i32.gt_u (local.get {index}) (i32.const {LONGEST_PATH}))"
        f" (then (return (i32.const {_NAME_TOO_LONG}))))"
        for index in lengths
    )
    call = f"(call $file.{name} {arguments})"
    if name == "path_open":
        checks += f"(if (i32.eqz (global.get $free)) (then (return (i32.const {_TOO_MANY_FILES}))))"
    if name in _OPENS:
        checks += (
            "(if (local.tee $error (call $unopenable"
            " (local.get 0) (local.get 1) (local.get 2) (local.get 3)))"
            " (then (return (local.get $error))))"
        )
    if name == "path_open":
        call = (
            f"(if (local.tee $error {call}) (then (return (local.get $error))))"
            " (global.set $free (i32.sub (global.get $free) (i32.const 1))) (i32.const 0)"
        )
    return (
        f'(func (export "{name}") (param {params}) (result i32) (local $error i32) {checks} {call})'
    )


def _unopenable() -> str:
    """
    Return a function of a path, which returns 0 if it may be opened or is not there, else an error.

    Opening a pipe blocks until another process opens it, too, and reading a device may block.
    """
    saved = range(4, 4 + _STAT_WORDS)
    save = " ".join(
        f"(local.set {local} (i64.load offset={8 * word} align=1 (i32.const 0)))"
        for word, local in enumerate(saved)
    )
    restore = " ".join(
        f"(i64.store offset={8 * word} align=1 (i32.const 0) (local.get {local}))"
        for word, local in enumerate(saved)
    )
    return f"""
(func $unopenable (param i32 i32 i32 i32) (result i32)
    (local {"i64 " * _STAT_WORDS}) (local $error i32) (local $type i32)
  (if (i32.eqz (memory.size)) (then (return (i32.const {_FAULT}))))
  {save}
  (local.set $error (call $file.path_filestat_get
    (local.get 0) (local.get 1) (local.get 2) (local.get 3) (i32.const 0)))
  (local.set $type (i32.load8_u (i32.const {_FILE_TYPE})))
  {restore}
  (if (i32.eq (local.get $error) (i32.const {_NO_ENTRY})) (then (return (i32.const 0))))
  (if (local.get $error) (then (return (local.get $error))))
  (if (i32.or (i32.eq (local.get $type) (i32.const {_REGULAR_FILE}))
      (i32.or (i32.eq (local.get $type) (i32.const {_DIRECTORY}))
        (i32.eq (local.get $type) (i32.const {_SYMBOLIC_LINK}))))
    (then (return (i32.const 0))))
  (i32.const {_NOT_SUPPORTED}))"""


# Files and directories stay with wasmtime, because they never block for long. Nothing else is
# opened; wasmtime itself refuses a link that is not followed. Of a list of buffers it writes
# the first that is not empty: `$long_buffer` returns the address of its size, if that is over the
# limit, else 0. poll_oneoff reads the guest's clock into the memory of the first event. A
# descriptor that is closed, or whose number another one takes, may be opened again. Random bytes
# that end outside of the memory are refused here: wasmtime draws them before it looks there.
_CALLS = f"""
(global $free (export "{FREE}") (mut i32) (i32.const 0))
(func $release (global.set $free (i32.add (global.get $free) (i32.const 1))))
(func (export "poll_oneoff") (param i32 i32 i32 i32) (result i32) (local $error i32)
  (if (local.tee $error (call $clock (i32.const 1) (i64.const 0) (local.get 1)))
    (then (return (local.get $error))))
  (call $poll_oneoff (local.get 0) (local.get 1) (local.get 2) (local.get 3)
    (i64.load align=1 (local.get 1))))
(func (export "sched_yield") (result i32) (call $sched_yield))
(func (export "fd_read") (param i32 i32 i32 i32) (result i32)
  (if (result i32) (local.get 0)
    (then (call $file.fd_read (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
    (else (call $fd_read (local.get 0) (local.get 1) (local.get 2) (local.get 3)))))
(func (export "fd_write") (param i32 i32 i32 i32) (result i32)
  (if (result i32) (i32.gt_u (local.get 0) (i32.const 2))
    (then (call $short.fd_write (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
    (else (call $fd_write (local.get 0) (local.get 1) (local.get 2) (local.get 3)))))
(func (export "fd_pwrite") (param i32 i32 i32 i64 i32) (result i32)
  (call $short.fd_pwrite
    (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4)))
(func $long_buffer (param $list i32) (param $count i32) (result i32)
  (if (call $is_outside (local.get $list)
      (i64.shl (i64.extend_i32_u (local.get $count)) (i64.const 3)))
    (then (return (i32.const 0))))
  (loop $next
    (if (i32.eqz (local.get $count)) (then (return (i32.const 0))))
    (if (i32.eqz (i32.load offset=4 align=1 (local.get $list)))
      (then
        (local.set $list (i32.add (local.get $list) (i32.const 8)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next))))
  (select (i32.add (local.get $list) (i32.const 4)) (i32.const 0)
    (i32.gt_u (i32.load offset=4 align=1 (local.get $list)) (i32.const {WRITE_MOST}))))
(func $is_outside (param $start i32) (param $size i64) (result i32)
  (i64.gt_u (i64.add (i64.extend_i32_u (local.get $start)) (local.get $size))
    (i64.shl (i64.extend_i32_u (memory.size)) (i64.const 16))))
(func (export "fd_close") (param i32) (result i32) (local $error i32)
  (if (local.tee $error (call $file.fd_close (local.get 0)))
    (then (return (local.get $error))))
  (call $release) (i32.const 0))
(func (export "fd_renumber") (param i32 i32) (result i32) (local $error i32)
  (if (local.tee $error (call $file.fd_renumber (local.get 0) (local.get 1)))
    (then (return (local.get $error))))
  (if (i32.ne (local.get 0) (local.get 1)) (then (call $release)))
  (i32.const 0))
(func (export "clock_time_get") (param i32 i64 i32) (result i32)
  (call $clock (local.get 0) (local.get 1) (local.get 2)))
(func (export "random_get") (param i32 i32) (result i32) (local $error i32)
  (if (call $is_outside (local.get 0) (i64.extend_i32_u (local.get 1)))
    (then (return (i32.const {_FAULT}))))
  (loop $next
    (if (i32.gt_u (local.get 1) (i32.const {RANDOM_PIECE}))
      (then
        (if (local.tee $error (call $random (local.get 0) (i32.const {RANDOM_PIECE})))
          (then (return (local.get $error))))
        (local.set 0 (i32.add (local.get 0) (i32.const {RANDOM_PIECE})))
        (local.set 1 (i32.sub (local.get 1) (i32.const {RANDOM_PIECE})))
        (br $next))))
  (call $random (local.get 0) (local.get 1)))"""


def _text() -> str:
    calls = [
        _unopenable(),
        *(_file_write(name, params) for name, params in _FILE_WRITES.items()),
        *(_path_call(name, *described) for name, described in _PATHS.items()),
    ]
    return "\n".join(["(module", *_imports(), '(export "memory" (memory 0))', _CALLS, *calls, ")"])


SHIM = _text()
"""The module as wasm text."""
