"""Generated CUDA on the CPU: the kernels compiled as C++ with a shim, one thread after another.

The shim runs the threads of a workgroup as fibers that change places at every ``__syncthreads``, so
tiles and reductions in shared memory run as written. Arithmetic is the CPU's, one rounding an
operation: what comes out must be the interpreter's bits.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from rlx_edge.compile.backends import Code
from rlx_edge.compile.codegen.cuda.attention_packed_text import FUNCTIONS as COPY_FUNCTIONS
from rlx_edge.compile.codegen.cuda.attention_text import FUNCTIONS as ATTENTION_FUNCTIONS
from rlx_edge.compile.codegen.cuda.emit import emit_source
from rlx_edge.compile.codegen.cuda.mma_text import FUNCTIONS as MATRIX_FUNCTIONS
from rlx_edge.compile.targets.cuda import ADDRESS_UNIT, CudaTarget
from rlx_edge.compile.workgroups import groups
from rlx_edge.gpu_workers.cuda.dnn import Convolution, Shape, parse_routine
from rlx_edge.ir.kernel import LoopKernel, generalize
from rlx_edge.ir.program import Program
from rlx_edge.ir.types import DType
from rlx_edge.runtime.buffers import Bytes, memory_range
from rlx_edge.runtime.records import records
from rlx_edge.runtime.units import Array, copy_in, copy_out

FENCE = 256
"""Bytes around buffers that must keep their contents."""
SHIM = r"""
#include <cmath>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <vector>
#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(x) __attribute__((aligned(x)))
struct dim3 { unsigned x = 1, y = 1, z = 1; };
struct __align__(16) float4 { float x, y, z, w; };
struct __align__(8) float2 { float x, y; };
static float2 make_float2(float x, float y) { return {x, y}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static dim3 threadIdx, blockIdx, blockDim, gridDim;
template <typename T, typename F> static T bits(F x) { T y; memcpy(&y, &x, sizeof y); return y; }
static int __float_as_int(float x) { return bits<int>(x); }
static unsigned __float_as_uint(float x) { return bits<unsigned>(x); }
static float __int_as_float(int x) { return bits<float>(x); }
static float __uint_as_float(unsigned x) { return bits<float>(x); }
static long long __double_as_longlong(double x) { return bits<long long>(x); }
static double __longlong_as_double(long long x) { return bits<double>(x); }
static float __fsqrt_rn(float x) { return sqrtf(x); }
static double __dsqrt_rn(double x) { return sqrt(x); }

static std::vector<ucontext_t> fibers;
static std::vector<char*> stacks;
static std::vector<bool> ended;
static unsigned current;
static void (*body)(void*);
static void* argument;
// A context is entered once; after that jumps change places, which take no system call.
struct Place { jmp_buf at; };
static std::vector<Place> places;
static Place home;
static void __syncthreads()
{
  if (_setjmp(places[current].at) == 0) _longjmp(home.at, 1);
}
static void trampoline()
{
  body(argument);
  ended[current] = true;
  _longjmp(home.at, 1);
}

// Matrix units: a warp's threads lay their fragments open, each computes its own sums.
struct __align__(16) uint4 { unsigned x, y, z, w; };
struct __align__(8) uint2 { unsigned x, y; };
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static unsigned as_tf32(float x) { return (bits<unsigned>(x) + 0x1000u) & ~0x1fffu; }
static unsigned as_halves(float low, float high)
{
  _Float16 pair[2] = {(_Float16)low, (_Float16)high};
  unsigned y;
  memcpy(&y, pair, 4);
  return y;
}
static float part_of(unsigned word, int at, bool halves)
{
  if (!halves) return bits<float>(word);
  _Float16 pair[2];
  memcpy(pair, &word, 4);
  return (float)pair[at];
}
static unsigned a_open[1024][4], b_open[1024][2];
static void multiply(float* d, const unsigned* a, const unsigned* b, bool halves)
{
  const unsigned me = current, warp = me / 32 * 32, group = me % 32 / 4, member = me % 4;
  memcpy(a_open[me], a, sizeof a_open[me]);
  memcpy(b_open[me], b, sizeof b_open[me]);
  __syncthreads();
  for (int c = 0; c < 4; ++c)
    for (int word = 0; word < 8; ++word)
      for (int at = 0; at < (halves ? 2 : 1); ++at) {
        const unsigned left = a_open[warp + group * 4 + word % 4][word / 4 * 2 + c / 2];
        const unsigned column = member * 2 + c % 2;
        const unsigned right = b_open[warp + column * 4 + word % 4][word / 4];
        d[c] += part_of(left, at, halves) * part_of(right, at, halves);
      }
  __syncthreads();
}
static const unsigned* words_open[1024];
static void load_matrices(unsigned* d, const unsigned* row)
{
  const unsigned me = current, warp = me / 32 * 32;
  words_open[me] = row;
  __syncthreads();
  for (int m = 0; m < 4; ++m) d[m] = words_open[warp + m * 8 + me % 32 / 4][me % 4];
  __syncthreads();
}
static void copy_sixteen(void* to, const void* from, bool there)
{
  there ? memcpy(to, from, 16) : memset(to, 0, 16);
}
static void copy_near(void* to, const void* from, bool there) { copy_sixteen(to, from, there); }
static void copy_four(void* to, const void* from, bool there)
{
  there ? memcpy(to, from, 4) : memset(to, 0, 4);
}
static void close_copies() {}
template <int groups> static void wait_copies() {}
// A workgroup of a cluster has shared memory of its own.
static unsigned cluster_size = 1;
static const unsigned MOST = 16;
template <int count> static unsigned (*all_words())[count]
{
  static __align__(16) unsigned words[MOST][count];
  return words;
}
static char* own_words;
static size_t words_size;
template <int count> static unsigned* shared_words()
{
  own_words = (char*)all_words<count>();
  words_size = sizeof(unsigned) * count;
  return all_words<count>()[blockIdx.x % cluster_size];
}
static unsigned arrived, meetings;
static void join_cluster()
{
  const unsigned now = meetings;
  if (++arrived == fibers.size()) {
    arrived = 0;
    ++meetings;
  }
  while (meetings == now) __syncthreads();
}
static float4 of_peer(const float* at, int peer)
{
  const size_t offset = ((const char*)at - own_words) % words_size;
  return *(const float4*)(own_words + peer * words_size + offset);
}
static int turn(int row) { return row / 2 % 2 * 2 + row / 4 % 2; }
static void multiply_tf32(float* d, const unsigned* a, const unsigned* b)
{
  multiply(d, a, b, false);
}
static void multiply_fp16(float* d, const unsigned* a, const unsigned* b)
{
  multiply(d, a, b, true);
}

static const unsigned short* rows_open[1024];
static void load_turned(unsigned* into, const unsigned short* row)
{
  const unsigned me = current, warp = me / 32 * 32, group = me % 32 / 4, member = me % 4;
  rows_open[me] = row;
  __syncthreads();
  for (int tile = 0; tile < 4; ++tile) {
    const unsigned short* const* from = rows_open + warp + tile * 8 + member * 2;
    into[tile] = from[0][group] | (unsigned)from[1][group] << 16;
  }
  __syncthreads();
}
static void copy_ahead(void* into, const void* from) { memcpy(into, from, 16); }
static void copies_done() {}

static float opened[1024];
static float beside(float x, unsigned mask)
{
  opened[threadIdx.x] = x;
  __syncthreads();
  const float y = opened[threadIdx.x ^ mask];
  __syncthreads();
  return y;
}
static float row_most(float x)
{
  x = fmaxf(x, beside(x, 1));
  return fmaxf(x, beside(x, 2));
}
static float row_sum(float x)
{
  x = x + beside(x, 1);
  return x + beside(x, 2);
}
static float lanes_most(float x, unsigned lanes)
{
  for (unsigned bit = 1; bit < lanes; bit *= 2) x = fmaxf(x, beside(x, bit));
  return x;
}
static float lanes_sum(float x, unsigned lanes)
{
  for (unsigned bit = 1; bit < lanes; bit *= 2) x = x + beside(x, bit);
  return x;
}
static bool warp_any(bool x)
{
  const unsigned warp = threadIdx.x / 32 * 32;
  opened[threadIdx.x] = x;
  __syncthreads();
  bool any = false;
  for (unsigned lane = 0; lane < 32; ++lane) any = any || opened[warp + lane] != 0;
  __syncthreads();
  return any;
}
static float power_of_two(float x) { return exp2f(x); }

static void run_group(unsigned each, bool together)
{
  const unsigned first_block = blockIdx.x, threads = each * cluster_size;
  if (!together) {
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) body(argument);
    return;
  }
  const size_t size = 64 << 10;
  fibers.assign(threads, ucontext_t());
  places.assign(threads, Place());
  ended.assign(threads, false);
  while (stacks.size() < threads) stacks.push_back((char*)malloc(size));
  for (unsigned i = 0; i < threads; ++i) {
    getcontext(&fibers[i]);
    fibers[i].uc_stack.ss_sp = stacks[i];
    fibers[i].uc_stack.ss_size = size;
    fibers[i].uc_link = nullptr;
    makecontext(&fibers[i], trampoline, 0);
  }
  static bool running, first;
  first = running = true;
  while (running) {
    running = false;
    for (current = 0; current < threads; ++current) {
      if (ended[current]) continue;
      threadIdx.x = current % each;
      blockIdx.x = first_block + current / each;
      if (_setjmp(home.at) == 0) {
        if (first) setcontext(&fibers[current]);
        _longjmp(places[current].at, 1);
      }
      running = running || !ended[current];
    }
    first = false;
  }
  blockIdx.x = first_block;
}
template <typename Kernel, typename Words>
static void run(Kernel kernel, unsigned threads, bool together, unsigned cluster, unsigned groups,
                char* arena, const int* data)
{
  struct Call { Kernel kernel; char* arena; Words words; } call{kernel, arena, {}};
  memcpy(&call.words, data, sizeof(Words));
  argument = &call;
  body = [](void* at) { Call* c = (Call*)at; c->kernel(c->arena, c->words); };
  gridDim.x = groups;
  blockDim.x = threads;
  cluster_size = cluster;
  for (blockIdx.x = 0; blockIdx.x < groups; blockIdx.x += cluster) run_group(threads, together);
  cluster_size = 1;
}
"""


def code_of(program: Program) -> Code:
    """What the emitter made for a program."""
    return Code(program.code, program.entries)


def namespaced(code: Code, number: int) -> str:
    """The source in a namespace of its own, so that several can be one file."""
    text = code.data.decode("utf-8").replace('extern "C" __global__', "__global__")
    for functions in (MATRIX_FUNCTIONS, ATTENTION_FUNCTIONS, COPY_FUNCTIONS):
        text = text.replace(functions, "")
    return f"namespace p{number} {{\n{text}}}\n"


class HostModule:
    """Sources compiled into one library."""

    def __init__(self, codes: Sequence[Code], folder: Path, optimize: str = "-O1") -> None:
        parts = [SHIM]
        for number, code in enumerate(codes):
            text = namespaced(code, number)
            parts += [text, _dispatcher(code, number, text)]
        source, library = folder / "kernels.cpp", folder / "kernels.so"
        source.write_text("\n".join(parts), encoding="utf-8")
        flags = ["-std=c++17", optimize, "-w", "-ffp-contract=off", "-fno-strict-aliasing"]
        command = ["g++", *flags, "-fwrapv", "-shared", "-fPIC", "-o", library, source]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr[:3000]
        self._library = ctypes.CDLL(str(library))

    def launcher(self, number: int) -> Any:
        function = self._library[f"launch{number}"]
        pointer = ctypes.c_void_p
        function.argtypes = [ctypes.c_int, ctypes.c_uint, pointer, pointer]
        function.restype = None
        return function


def _dispatcher(code: Code, number: int, text: str) -> str:
    lines = [
        f'extern "C" void launch{number}(int kernel, unsigned groups, char* arena,',
        "                            const int* words)",
        "{",
        "  switch (kernel) {",
    ]
    for position, entry in enumerate(code.entries):
        if entry.library:
            continue
        match = re.search(rf"\b{entry.name}\(.*?\n}}\n", text, re.DOTALL)
        assert match is not None
        waits = "__syncthreads" in match[0] or "__shared__" in match[0]
        together = "true" if waits else "false"
        found = re.search(rf"__cluster_dims__\((\d+)[^\n]*\n{entry.name}\(", text)
        cluster = found[1] if found else "1"
        name, words = f"p{number}::{entry.name}", f"p{number}::K{position}"
        lines.append(
            f"    case {position}: run<decltype(&{name}), {words}>"
            f"(&{name}, {entry.threads}, {together}, {cluster}, groups, arena, words); break;"
        )
    return "\n".join([*lines, "  }", "}", ""])


class HostCudaUnit:
    """``ExecutionUnit`` over a program of a ``HostModule``; memory around the arena is watched.

    ``way`` is taken of every choice that has it, else the first one.
    """

    FENCE = 4096

    def __init__(
        self, module: HostModule, number: int, grid: int | None = None, way: int = 0
    ) -> None:
        self._way = way
        self._skipped: set[int] = set()
        self.device = "cuda:0"
        self.address_space = ADDRESS_UNIT << 32
        self._launch = module.launcher(number)
        self._grid = grid
        self._program: Program | None = None
        self._block: Bytes = np.zeros(0, np.uint8)
        self._memory: Bytes = np.zeros(0, np.uint8)

    @property
    def size(self) -> int:
        return len(self._memory)

    def load(self, program: Program) -> None:
        self._program = program
        for choice in program.choices:
            taken = choice.way(self._way if self._way < choice.ways else 0)
            self._skipped |= set(range(choice.starts[0], choice.starts[-1])) - set(taken)

    def grow(self, nbytes: int) -> None:
        if nbytes <= self.size:
            return
        block = np.full(nbytes + 2 * self.FENCE + 64, 0xA5, np.uint8)
        start = -block.ctypes.data % 64 + self.FENCE
        memory = block[start : start + nbytes]
        memory[: self.size] = self._memory
        self._block, self._memory = block, memory

    def upload(self, address: int, data: Array) -> None:
        copy_in(self, address, data)

    def download(self, address: int, dtype: DType, shape: tuple[int, ...]) -> Array:
        return copy_out(self, address, dtype, shape)

    def launch(self, begin: int, end: int) -> None:
        program = self._program
        assert program is not None
        plan = program.plan
        words = self._memory[plan.block_address :].view(np.int32)[: len(plan.words)]
        arena = self._memory.ctypes.data
        found = records(words, plan.block_address, program.entries, begin, end)
        for launch, record in enumerate(found, begin):
            if launch in self._skipped:
                continue
            entry = program.entries[record.kernel]
            if entry.library and record.groups > 0:
                run = self._convolve if entry.library.startswith("cudnn:") else self._multiply
                run(entry.library, record.words)
            if entry.library:
                continue
            count = record.groups if self._grid is None else min(record.groups, self._grid)
            if count > 0:
                data = np.ascontiguousarray(record.words)
                self._launch(record.kernel, count, arena, data.ctypes.data)
        first = self._memory.ctypes.data - self._block.ctypes.data
        fences = (self._block[:first], self._block[first + self.size :])
        assert all((fence == 0xA5).all() for fence in fences), "a kernel wrote outside the arena"

    def _convolve(self, routine: str, words: Array) -> None:
        """A convolution by numpy, f32; input and weights are of the type that the routine wants."""
        parsed = parse_routine(routine)
        numbers = [int(word) for word in words[parsed.slots :]]
        item = Convolution(parsed, Shape(*numbers[:6]))
        kind = np.dtype("f2" if parsed.precision == "fp16" else "f4")
        weights, scratch = (
            ADDRESS_UNIT * int(word) for word in words[[parsed.weights, parsed.slots - 1]]
        )
        images, channels, height, width = item.input
        outputs, inner, *taps = item.weights
        memory = self._memory
        x = memory[scratch + item.result_bytes :].view(kind)[: prod(item.input)]
        w = memory[weights:].view(kind)[: prod(item.weights)]
        x = x.reshape(images, height, width, channels).astype("f4")
        w = w.reshape(outputs, *taps, inner).astype("f4")
        _, _, high, wide = item.result
        y = memory[scratch:].view("f4")[: prod(item.result)].reshape(images, high, wide, outputs)
        y[...] = 0
        groups, each = channels // inner, outputs // (channels // inner)
        for row, column in np.ndindex(*taps):
            first, left = row * parsed.dilation[0], column * parsed.dilation[1]
            rows = slice(first, first + (high - 1) * parsed.stride[0] + 1, parsed.stride[0])
            columns = slice(left, left + (wide - 1) * parsed.stride[1] + 1, parsed.stride[1])
            for group in range(groups):
                part = x[:, rows, columns, group * inner : (group + 1) * inner]
                own = slice(group * each, (group + 1) * each)
                y[..., own] += part @ w[own, row, column].T

    def _multiply(self, routine: str, words: Array) -> None:
        """The product of numpy, f32."""
        places, (slices, m, n, k, a_slice, b_slice) = words[:3].astype(int), words[-6:].astype(int)
        out, a, b = (self._memory[ADDRESS_UNIT * place :].view("f4") for place in places)
        for slice in range(slices):
            left = a[slice * a_slice :][: m * k].reshape(m, k)
            right = b[slice * b_slice :][: k * n].reshape(k, n)
            out[slice * m * n :][: m * n] = (left @ right).reshape(-1)

    def synchronize(self) -> None:
        """Launches have ended when they return."""

    def require(self, address: int, nbytes: int) -> None:
        self.bytes_at(address, nbytes)

    def bytes_at(self, address: int, nbytes: int) -> Bytes:
        if address < 0 or nbytes < 0 or address + nbytes > self.size:
            raise memory_range(address, nbytes, self.size)
        return self._memory[address : address + nbytes]

    def free(self, address: int, nbytes: int) -> None:
        """Places come from the memory plan: nothing to take back."""

    def close(self) -> None:
        self._memory = self._block = np.zeros(0, np.uint8)


def run_loop_kernels(
    cases: Sequence[tuple[LoopKernel, Sequence[Array]]], folder: Path
) -> list[Array]:
    """What each kernel, whose sizes are constants, leaves in its first buffer; fails if it writes
    anywhere else."""
    generic = [generalize(kernel) for kernel, _ in cases]
    forms = [groups(kernel, arguments) for kernel, arguments in generic]
    code = emit_source([kernel for case in forms for kernel, _ in case], CudaTarget())
    launch = HostModule([code], folder).launcher(0)
    results: list[Array] = []
    number = 0
    for (_, arguments), launches, (_, buffers) in zip(generic, forms, cases, strict=True):
        places, size = [], FENCE
        for buffer in buffers:
            places.append(size)
            size += -(-buffer.nbytes // ADDRESS_UNIT) * ADDRESS_UNIT + FENCE
        block = np.full(size + ADDRESS_UNIT, 0xA5, np.uint8)
        arena = block[-block.ctypes.data % ADDRESS_UNIT :][:size]
        for place, buffer in zip(places, buffers, strict=True):
            arena[place : place + buffer.nbytes] = (
                np.ascontiguousarray(buffer).reshape(-1).view("u1")
            )
        before = arena.copy()
        words = np.array(
            [*(place // ADDRESS_UNIT for place in places), *(dim.value for dim in arguments)],
            np.int64,
        ).astype(np.int32)
        for _, count in launches:
            if count.value > 0:
                launch(number, count.value, arena.ctypes.data, words.ctypes.data)
            number += 1
        own = slice(places[0], places[0] + buffers[0].nbytes)
        results.append(arena[own].copy().view(buffers[0].dtype).reshape(buffers[0].shape))
        before[own] = arena[own]
        assert (before == arena).all(), "a kernel wrote outside its result"
    return results
