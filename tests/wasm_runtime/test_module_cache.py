"""Compiled modules on disk: found again, never trusted when damaged, bounded in size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import wasmtime

from rlx_edge.ir.errors import DeviceError
from rlx_edge.wasm_runtime import module_cache
from rlx_edge.wasm_runtime.engine import engine, engine_identity
from rlx_edge.wasm_runtime.module_cache import ModuleCache, cache_folder, module_key


def module(number: int) -> bytes:
    return bytes(
        wasmtime.wat2wasm(f'(module (func (export "f") (result i32) (i32.const {number})))')
    )


def call(compiled: wasmtime.Module) -> int:
    store = wasmtime.Store(engine())
    return int(wasmtime.Instance(store, compiled, []).exports(store)["f"](store))


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.cwasm"))


def test_the_second_time_is_a_hit(tmp_path: Path) -> None:
    cache = ModuleCache(tmp_path / "deep" / "cwasm")
    assert call(cache.module(module(5))) == 5
    assert (cache.statistics.misses, cache.statistics.hits) == (1, 0)
    again = ModuleCache(cache.folder)
    assert call(again.module(module(5))) == 5
    assert (again.statistics.misses, again.statistics.hits) == (0, 1)
    assert call(again.module(module(6))) == 6
    assert len(entries(tmp_path / "deep" / "cwasm")) == 2
    assert not list((tmp_path / "deep" / "cwasm").glob(".new-*"))
    assert (tmp_path / "deep" / "cwasm").stat().st_mode & 0o77 == 0


def test_without_a_folder_nothing_is_kept() -> None:
    cache = ModuleCache()
    assert call(cache.module(module(5))) == 5
    assert call(cache.module(module(5))) == 5
    assert cache.statistics.misses == 2


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "another module"])
def test_damaged_entries_are_compiled_again(tmp_path: Path, damage: str) -> None:
    ModuleCache(tmp_path).module(module(5))
    (entry,) = entries(tmp_path)
    data = bytearray(entry.read_bytes())
    if damage == "truncated":
        data = data[: len(data) // 2]
    elif damage == "flipped":
        data[len(data) // 2] ^= 0xFF
    elif damage == "empty":
        data = bytearray()
    else:
        data = module_cache.compile_module(module(9)).serialize()
    entry.unlink()
    entry.write_bytes(data)
    cache = ModuleCache(tmp_path)
    assert call(cache.module(module(5))) == 5
    assert (cache.statistics.damaged, cache.statistics.misses) == (1, 1)
    assert call(ModuleCache(tmp_path).module(module(5))) == 5
    assert len(entries(tmp_path)) == 1


def test_code_that_wasmtime_refuses(tmp_path: Path) -> None:
    """The hash is right, the bytes are no compiled module: as after an incompatible change."""
    import hashlib

    junk = b"no machine code"
    name = f"{module_key(module(5))}-{hashlib.sha256(junk).hexdigest()}.cwasm"
    (tmp_path / name).write_bytes(junk)
    cache = ModuleCache(tmp_path)
    assert call(cache.module(module(5))) == 5
    assert cache.statistics.damaged == 1


def test_an_unreadable_entry(tmp_path: Path) -> None:
    (tmp_path / f"{module_key(module(5))}-00.cwasm").mkdir()
    cache = ModuleCache(tmp_path)
    assert call(cache.module(module(5))) == 5
    assert cache.statistics.damaged == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this platform")
def test_a_pipe_in_place_of_an_entry_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"{module_key(module(5))}-00.cwasm")
    cache = ModuleCache(tmp_path)
    assert call(cache.module(module(5))) == 5
    assert cache.statistics.damaged == 1


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no file owners on this platform")
def test_entries_of_other_users_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ModuleCache(tmp_path).module(module(5))
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    cache = ModuleCache(tmp_path)
    assert call(cache.module(module(5))) == 5
    assert cache.statistics.hits == 0


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = ModuleCache(tmp_path / "file" / "cwasm")
    assert call(cache.module(module(5))) == 5
    assert cache.statistics.unwritable == 1


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module_cache.os, "replace", full)
    cache = ModuleCache(tmp_path)
    assert call(cache.module(module(5))) == 5
    assert cache.statistics.unwritable == 1
    assert list(tmp_path.iterdir()) == []


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = ModuleCache(tmp_path)
    for number in range(3):
        cache.module(module(number))
    for age, entry in enumerate(entries(tmp_path)):
        os.utime(entry, ns=(age * 10**9, age * 10**9))
    oldest = entries(tmp_path)[0]
    number = next(n for n in range(3) if oldest.name.startswith(module_key(module(n))))
    cache.module(module(number))  # a hit makes it the youngest
    room = sum(entry.stat().st_size for entry in entries(tmp_path))
    bounded = ModuleCache(tmp_path, size_limit=room)
    bounded.module(module(7))
    assert bounded.statistics.evicted == 1
    left = {entry.name.split("-")[0] for entry in entries(tmp_path)}
    assert module_key(module(number)) in left and module_key(module(7)) in left


def test_a_bound_below_one_module_keeps_the_newest(tmp_path: Path) -> None:
    cache = ModuleCache(tmp_path, size_limit=1)
    for number in range(3):
        assert call(cache.module(module(number))) == number
    assert [entry.name.split("-")[0] for entry in entries(tmp_path)] == [module_key(module(2))]


def test_a_mapped_module_survives_eviction_and_rewriting(tmp_path: Path) -> None:
    ModuleCache(tmp_path).module(module(5))
    mapped = ModuleCache(tmp_path).module(module(5))
    for entry in entries(tmp_path):
        entry.unlink()
    ModuleCache(tmp_path).module(module(5))
    assert call(mapped) == 5


def test_invalid_bytes_are_an_error_and_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(DeviceError) as caught:
        ModuleCache(tmp_path).module(b"\0asm\1\0\0\0\xff")
    assert caught.value.code == "wasm.invalid"
    assert list(tmp_path.iterdir()) == []


def test_the_key_covers_bytes_and_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module_key(module(1)) != module_key(module(2))
    assert "wasmtime" in engine_identity() and "cranelift_opt_level=speed" in engine_identity()
    before = module_key(module(1))
    monkeypatch.setattr(module_cache, "engine_identity", lambda: "another version")
    assert module_key(module(1)) != before


def test_where_the_folder_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE", "/somewhere")
    assert cache_folder() == Path("/somewhere/cwasm")
    monkeypatch.delenv("RLX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert cache_folder() == Path("/cache/rlx-edge/cwasm")


def test_many_processes_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from rlx_edge.wasm_runtime.module_cache import ModuleCache\n"
        "data = Path(sys.argv[2]).read_bytes()\n"
        "for _ in range(20): ModuleCache(Path(sys.argv[1]), size_limit=1).module(data)\n"
    )
    source = tmp_path / "module.wasm"
    source.write_bytes(module(5))
    command = [sys.executable, "-c", code, str(tmp_path / "cwasm"), str(source)]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]
    for process in started:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, b"")
    assert len(entries(tmp_path / "cwasm")) == 1
