"""The device table: what is there, and that looking opens no driver."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rlx_edge.cli.devices import _lines, sharing
from rlx_edge.devices import list_devices, resolve_device
from rlx_edge.ir.errors import DeviceError


def test_available_devices_resolve_and_others_say_why() -> None:
    for info in list_devices():
        if info.available:
            assert str(resolve_device(info.name)) == info.name
            assert info.engine
        else:
            with pytest.raises(DeviceError) as caught:
                resolve_device(info.name)
            assert info.note in str(caught.value) and "wasm:0, cpu:0" in str(caught.value)


def test_no_driver_is_opened() -> None:
    # covers R21
    code = (
        "import numpy as np; from pathlib import Path\n"
        "from rlx_edge import InferenceSession; from rlx_edge.devices import list_devices\n"
        "from tests.runtime import hand_made\n"
        "list_devices()\n"
        "session = InferenceSession(hand_made.module(), program=hand_made.program())\n"
        "session.run(None, hand_made.feeds(2))\n"
        "maps = Path('/proc/self/maps').read_text()\n"
        "assert 'libc.so' in maps or 'musl' in maps\n"
        "print([name for name in ('libcuda', 'libnvrtc', 'libvulkan') if name in maps])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_how_devices_pass_tensors() -> None:
    described = {
        "cuda": {"devices": [{"index": 0, "uuid": "aa"}]},
        "vulkan": {
            "devices": [
                {"index": 0, "uuid": "aa", "exports": True},
                {"index": 1, "uuid": "bb", "exports": True},
            ]
        },
    }
    assert {(row["one"], row["other"]): row["way"] for row in sharing(described)} == {
        ("cuda:0", "cpu:0"): "shared_arena",
        ("cuda:0", "vulkan:0"): "external_memory",
        ("cuda:0", "vulkan:1"): "copy",
        ("vulkan:0", "cpu:0"): "copy",
        ("vulkan:1", "cpu:0"): "copy",
    }
    assert list(sharing({"cuda": {"error": "no driver"}})) == []


def test_libraries_are_named_with_their_versions() -> None:
    found = {"devices": [], "libraries": {"cublas": "13.1.0", "cudnn": "not used: absent"}}
    assert list(_lines("cuda", found)) == ["cuda: cublas 13.1.0", "cuda: cudnn not used: absent"]
