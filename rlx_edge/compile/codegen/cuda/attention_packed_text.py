"""The C++ of attention over keys and values that were rounded to f16 before, in scratch memory.

``PACK`` rounds them once for all workgroups: per slice ``depth`` rows of keys, then a row a value,
with zeros up to a whole number of tiles. ``ATTENTION`` has two tiles in shared memory that take
turns: one is copied without registers while the other is multiplied.
"""

from __future__ import annotations

from rlx_edge.compile.codegen.cuda.attention_text import (
    NO_SCORES,
    PLACE,
    SETUP,
    SLICES,
    SOFTMAX,
    STORE,
    TILES,
)

FUNCTIONS = """\
// Four 8 x 8 tiles of f16 whose rows lie in shared memory, turned round: lane i gives the address
// of row i % 8 of tile i / 8, and gets two neighbours of a column of each.
static __device__ __forceinline__ void load_turned(unsigned* into, const unsigned short* row)
{
  const unsigned address = (unsigned)__cvta_generic_to_shared(row);
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3]) : "r"(address) : "memory");
}
// 16 bytes to shared memory, which are there after copies_done().
static __device__ __forceinline__ void copy_ahead(void* into, const void* from)
{
  const unsigned address = (unsigned)__cvta_generic_to_shared(into);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(address), "l"(from) : "memory");
}
static __device__ __forceinline__ void copies_done()
{
  asm volatile("cp.async.wait_all;" : : : "memory");
}
"""
HALVES = """\
  unsigned short* __restrict__ halves = at<unsigned short>(arena, words.scratch);
"""
PACK = """\
$head
{
$pointers\
  const int keys = words.keys, heads = words.heads;
  const int padded = (keys + $pad - 1) / $pad * $pad;
  const bool whole_rows = keys % 4 == 0;
  const int rows_of_keys = $depth * (padded / 8), items = rows_of_keys + padded * ($width / 8);
  const long long count = (long long)words.slices * items;
  for (long long place = (long long)blockIdx.x * $threads + threadIdx.x; place < count;
       place += (long long)gridDim.x * $threads) {
    const int slice = place / items, item = place % items;
    float4 low, high;
    if (item < rows_of_keys) {
      const int row = item / (padded / 8), column = item % (padded / 8) * 8;
      const float* from = k + ((long long)slice * $depth + row) * keys + column;
      low = load_four(from, keys - column, whole_rows);
      high = load_four(from + 4, keys - column - 4, whole_rows);
    } else {
      const int row = (item - rows_of_keys) / ($width / 8);
      const int column = (item - rows_of_keys) % ($width / 8) * 8;
      const int head = slice % heads;
      const long long at_row = (long long)(slice - head) * keys + head + (long long)row * heads;
      const float* from = v + at_row * $width + column;
      low = load_four(from, keys - row, true);
      high = load_four(from + 4, keys - row, true);
    }
    *(uint4*)(halves + place * 8) = make_uint4(
        as_halves(low.x, low.y), as_halves(low.z, low.w),
        as_halves(high.x, high.y), as_halves(high.z, high.w));
  }
}
"""
ATTENTION = (
    """\
$head
{
  __shared__ __align__(16) unsigned short tiles[2][$depth * $k_stride + $step_keys * $v_stride];
$join_tile\
$pointers\
"""
    + TILES.replace("  const bool whole_rows = keys % 4 == 0;\n", "")
    + PLACE
    + """\
  const int padded = (keys + $pad - 1) / $pad * $pad;
  // Of a fragment: rows 0 to 7 and 8 to 15 of eight columns, then of the next eight.
  const int turned_row = threadIdx.x % 16, turned_column = threadIdx.x % 32 / 16 * 8;
"""
    + SLICES
    + """\
    const unsigned short* const k_halves = halves + (long long)slice * padded * ($depth + $width);
    const unsigned short* const v_halves = k_halves + (long long)padded * $depth;
    const auto copy = [&](int first) {
      unsigned short* const k_tile = tiles[first / $step_keys % 2];
      unsigned short* const v_tile = k_tile + $depth * $k_stride;
      #pragma unroll 4
      for (int item = threadIdx.x; item < $depth * ($step_keys / 8); item += $threads) {
        const int row = item / ($step_keys / 8), column = item % ($step_keys / 8) * 8;
        copy_ahead(k_tile + row * $k_stride + column,
            k_halves + (long long)row * padded + first + column);
      }
      #pragma unroll 4
      for (int item = threadIdx.x; item < $step_keys * ($width / 8); item += $threads) {
        const int row = item / ($width / 8), column = item % ($width / 8) * 8;
        copy_ahead(v_tile + row * $v_stride + column,
            v_halves + (long long)(first + row) * $width + column);
      }
    };
    const int stop = $stop;
    __syncthreads();
    if (stop > 0) copy(0);
"""
    + SETUP
    + """\
    for (int first = 0; first < stop; first += $step_keys) {
      copies_done();
      __syncthreads();
      if (first + $step_keys < stop) copy(first + $step_keys);
      const unsigned short* const k_tile = tiles[first / $step_keys % 2];
      const unsigned short* const v_tile = k_tile + $depth * $k_stride;
"""
    + NO_SCORES
    + """\
      #pragma unroll
      for (int step = 0; step < $depth_steps; ++step)
        #pragma unroll
        for (int j = 0; j < $key_tiles; j += 2) {
          __align__(16) unsigned b[4];
          load_turned(b, k_tile + (step * 16 + turned_row) * $k_stride + part * $keys + j * 8
              + turned_column);
          #pragma unroll
          for (int m = 0; m < $m_tiles; ++m) {
            multiply_fp16(score[m][j], query[m][step], b);
            multiply_fp16(score[m][j + 1], query[m][step], b + 2);
          }
        }
"""
    + SOFTMAX
    + """\
      #pragma unroll
      for (int step = 0; step < $weight_steps; ++step) {
        __align__(16) unsigned a[$m_tiles][4];
        #pragma unroll
        for (int m = 0; m < $m_tiles; ++m) {
          const float (*of)[4] = score[m];
$weights\
        }
        #pragma unroll
        for (int j = 0; j < $width_tiles; j += 2) {
          __align__(16) unsigned b[4];
          load_turned(b, v_tile + ((part * $weight_steps + step) * 16 + turned_row) * $v_stride
              + j * 8 + turned_column);
          #pragma unroll
          for (int m = 0; m < $m_tiles; ++m) {
            multiply_fp16(total[m][j], a[m], b);
            multiply_fp16(total[m][j + 1], a[m], b + 2);
          }
        }
      }
    }
"""
    + STORE
)
