"""The C++ of attention on matrix units, filled in as ``template_text``; fragments as in
``mma_text``.

A warp keeps 16 queries, or two times 16, as fragments. Of a tile of keys it has all scores, so the
weights go from accumulators straight into fragments: in f16 two tiles of eight scores are a
fragment of sixteen, in tf32 the order of keys inside a fragment is the accumulators' own. The next
tile's keys and values are on their way in registers meanwhile.
"""

from __future__ import annotations

FUNCTIONS = """\
// Of the four threads that share a row of scores.
static __device__ __forceinline__ float row_most(float x)
{
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
static __device__ __forceinline__ float row_sum(float x)
{
  x = x + __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
// Of a warp's threads whose numbers differ in bits of ``lanes - 1``.
static __device__ __forceinline__ float lanes_most(float x, int lanes)
{
  #pragma unroll
  for (int bit = 1; bit < lanes; bit *= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, bit));
  return x;
}
static __device__ __forceinline__ float lanes_sum(float x, int lanes)
{
  #pragma unroll
  for (int bit = 1; bit < lanes; bit *= 2) x = x + __shfl_xor_sync(0xffffffffu, x, bit);
  return x;
}
static __device__ __forceinline__ bool warp_any(bool x)
{
  return __any_sync(0xffffffffu, x) != 0;
}
static __device__ __forceinline__ float power_of_two(float x)
{
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
"""
LOAD_FOUR = """\
// Four neighbours of which the first ``left`` are there; ``whole`` if they start at 16 bytes.
static __device__ __forceinline__ float4 load_four(const float* from, int left, bool whole)
{
  float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (whole) {
    if (left > 0) four = *(const float4*)from;
    return four;
  }
  if (left > 0) four.x = from[0];
  if (left > 1) four.y = from[1];
  if (left > 2) four.z = from[2];
  if (left > 3) four.w = from[3];
  return four;
}
"""
"""A row of keys starts at a multiple of 16 bytes where their number is one of 4."""
QUERY_WORD = {
    "tf32": "as_tf32(row < queries ? q_slice[row * heads * $depth + word] : 0.0f)",
    "fp16": "row < queries ? as_halves(q_slice[row * heads * $depth + 2 * word],\n"
    "              q_slice[row * heads * $depth + 2 * word + 1]) : 0u",
}
WEIGHTS = {
    "tf32": """\
          *(uint4*)a[m] = make_uint4(
              as_tf32(of[step][0]), as_tf32(of[step][2]),
              as_tf32(of[step][1]), as_tf32(of[step][3]));
""",
    "fp16": """\
          *(uint4*)a[m] = make_uint4(
              as_halves(of[2 * step][0], of[2 * step][1]),
              as_halves(of[2 * step][2], of[2 * step][3]),
              as_halves(of[2 * step + 1][0], of[2 * step + 1][1]),
              as_halves(of[2 * step + 1][2], of[2 * step + 1][3]));
""",
}
VALUE_ROW = {"tf32": "member * 2", "fp16": "member"}
VALUE_NEXT = {"tf32": 1, "fp16": 4}
"""Rows of words: where a fragment starts, and from its first word to its second."""
TILES = """\
  const int queries = words.queries, keys = words.keys, heads = words.heads;
  const bool whole_rows = keys % 4 == 0;
  const int row_tiles = (queries + $rows - 1) / $rows, tile_count = words.slices * row_tiles;
"""
SLICES = """\
  for (int tile = blockIdx.x; tile < tile_count; tile += gridDim.x) {
    const int row_first = tile % row_tiles * $rows, slice = tile / row_tiles;
    // Rows of ``heads`` slices follow each other.
    const int head = slice % heads, before = slice - head;
    const float* __restrict__ q_slice = q + ((long long)before * queries + head) * $depth;
    const float* __restrict__ k_slice = k + (long long)slice * keys * $depth;
    const float* __restrict__ v_slice = v + ((long long)before * keys + head) * $width;
    float* __restrict__ out_slice = out + ((long long)before * queries + head) * $width;
$bias_slice\
"""
PLACE = """\
  const int group = threadIdx.x % 32 / 4, member = threadIdx.x % 4;
  const int part = $part, warp_row = threadIdx.x / 32 % $row_warps * $warp_rows;
"""
SETUP = """\
    unsigned query[$m_tiles][$depth_steps][4];
    float most[$m_tiles][2], sum[$m_tiles][2], total[$m_tiles][$width_tiles][4];
    #pragma unroll
    for (int m = 0; m < $m_tiles; ++m) {
      #pragma unroll
      for (int step = 0; step < $depth_steps; ++step)
        #pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int row = row_first + warp_row + m * 16 + group + c % 2 * 8;
          const int word = step * 8 + member + c / 2 * 4;
          query[m][step][c] = $query_word;
        }
      most[m][0] = most[m][1] = -infinity_f32();
      sum[m][0] = sum[m][1] = 0.0f;
      #pragma unroll
      for (int j = 0; j < $width_tiles; ++j)
        #pragma unroll
        for (int c = 0; c < 4; ++c) total[m][j][c] = 0.0f;
    }
"""
NO_SCORES = """\
      float score[$m_tiles][$key_tiles][4];
      #pragma unroll
      for (int m = 0; m < $m_tiles; ++m)
        #pragma unroll
        for (int j = 0; j < $key_tiles; ++j)
          #pragma unroll
          for (int c = 0; c < 4; ++c) score[m][j][c] = 0.0f;
"""
SOFTMAX = """\
$change_scores\
      if ($at_edge) {
        #pragma unroll
        for (int m = 0; m < $m_tiles; ++m)
          #pragma unroll
          for (int j = 0; j < $key_tiles; ++j)
            #pragma unroll
            for (int c = 0; c < 4; ++c) {
              const int column = first + part * $keys + j * 8 + member * 2 + c % 2;
              const int row = row_first + warp_row + m * 16 + group + c / 2 * 8;
              if ($unseen) score[m][j][c] = -infinity_f32();
            }
      }
      // Weights are powers of two of the distance from a base. It follows the largest score of a
      // row when that is past it by $growth in the exponent, and with it the sums.
      float largest[$m_tiles][2];
      bool grows = false;
      #pragma unroll
      for (int m = 0; m < $m_tiles; ++m)
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
          float top = most[m][half];
          #pragma unroll
          for (int j = 0; j < $key_tiles; ++j)
            top = fmaxf(top, fmaxf(score[m][j][half * 2], score[m][j][half * 2 + 1]));
          largest[m][half] = row_most(top);
          grows = grows || largest[m][half] * $factor > fmaf(most[m][half], $factor, $growth);
        }
      if (warp_any(grows)) {
        #pragma unroll
        for (int m = 0; m < $m_tiles; ++m)
          #pragma unroll
          for (int half = 0; half < 2; ++half) {
            // A row without any key yet: what is below is 2 to -infinity.
            const float top = largest[m][half];
            const float base = top == -infinity_f32() ? 0.0f : top * $factor;
            const float shrink = power_of_two(fmaf(most[m][half], $factor, -base));
            most[m][half] = top;
            sum[m][half] = sum[m][half] * shrink;
            #pragma unroll
            for (int j = 0; j < $width_tiles; ++j) {
              total[m][j][half * 2] = total[m][j][half * 2] * shrink;
              total[m][j][half * 2 + 1] = total[m][j][half * 2 + 1] * shrink;
            }
          }
      }
      #pragma unroll
      for (int m = 0; m < $m_tiles; ++m)
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
          float (*of)[4] = score[m];
          const float base = most[m][half] == -infinity_f32() ? 0.0f : most[m][half] * $factor;
          #pragma unroll
          for (int j = 0; j < $key_tiles; ++j)
            #pragma unroll
            for (int c = half * 2; c < half * 2 + 2; ++c) {
              of[j][c] = power_of_two(fmaf(of[j][c], $factor, -base));
              sum[m][half] = sum[m][half] + of[j][c];
            }
        }
"""
STORE = """\
$join\
    #pragma unroll
    for (int m = 0; m < $m_tiles; ++m)
      #pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float whole = row_sum(sum[m][half]), inverse = 1.0f / whole;
        const int row = row_first + warp_row + m * 16 + group + half * 8;
        if (row >= queries || part > 0) continue;
        float* into = out_slice + (long long)row * heads * $width + member * 2;
        #pragma unroll
        for (int j = 0; j < $width_tiles; ++j)
          #pragma unroll
          for (int odd = 0; odd < 2; ++odd) {
            const float value = total[m][j][half * 2 + odd];
            into[j * 8 + odd] = $result;
          }
      }
  }
}
"""
ATTENTION = (
    """\
$head
{
  __shared__ __align__(16) unsigned k_tile[$key_words];
  __shared__ __align__(16) unsigned v_tile[$value_words];
$join_tile\
$pointers\
"""
    + TILES
    + PLACE
    + SLICES
    + """\
    float4 k_next[$k_each][2], v_next[$v_each][2];
    const auto fetch = [&](int first) {
      #pragma unroll
      for (int each = 0; each < $k_each; ++each) {
        const int item = threadIdx.x + each * $threads;
        const int column = first + item % ($step_keys / 4) * 4, pair = item / ($step_keys / 4);
        const int left = pair < $depth / 2 ? keys - column : 0;
        const float* from = k_slice + (long long)pair * 2 * keys + column;
        k_next[each][0] = load_four(from, left, whole_rows);
        k_next[each][1] = load_four(from + keys, left, whole_rows);
      }
      #pragma unroll
      for (int each = 0; each < $v_each; ++each) {
        const int item = threadIdx.x + each * $threads;
        const int column = item % ($width / 4) * 4, row = first + item / ($width / 4) * 2;
        const float* from = v_slice + (long long)row * heads * $width + column;
        v_next[each][0] = load_four(from, keys - row, true);
        v_next[each][1] = load_four(from + heads * $width, keys - row - 1, true);
      }
    };
"""
    + SETUP
    + """\
    const int stop = $stop;
$fetch_first\
    for (int first = 0; first < stop; first += $step_keys) {
$fetch_now\
      __syncthreads();
      #pragma unroll
      for (int each = 0; each < $k_each; ++each) {
        const int item = threadIdx.x + each * $threads;
        const int column = item % ($step_keys / 4) * 4, pair = item / ($step_keys / 4);
        const float4 even = k_next[each][0], odd = k_next[each][1];
        if (pair >= $depth / 2) break;
$keep_k\
      }
      #pragma unroll
      for (int each = 0; each < $v_each; ++each) {
        const int item = threadIdx.x + each * $threads;
        const int column = item % ($width / 4) * 4, pair = item / ($width / 4);
        const float4 even = v_next[each][0], odd = v_next[each][1];
        if (pair >= $step_keys / 2) break;
$keep_v\
      }
      __syncthreads();
$fetch_next\
"""
    + NO_SCORES
    + """\
      #pragma unroll
      for (int step = 0; step < $depth_steps; ++step)
        #pragma unroll
        for (int j = 0; j < $key_tiles; ++j) {
          const unsigned* from
              = k_tile + (step * 8 + member) * $k_stride + part * $keys + j * 8 + group;
          const unsigned b[2] = {from[0], from[4 * $k_stride]};
          #pragma unroll
          for (int m = 0; m < $m_tiles; ++m) $multiply(score[m][j], query[m][step], b);
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
        const unsigned* from
            = v_tile + ((part * $weight_steps + step) * 8 + $value_row) * $v_stride + group;
        #pragma unroll
        for (int j = 0; j < $width_tiles; ++j) {
          const unsigned b[2] = {from[j * 8], from[j * 8 + $value_next * $v_stride]};
          #pragma unroll
          for (int m = 0; m < $m_tiles; ++m) $multiply(total[m][j], a[m], b);
        }
      }
    }
"""
    + STORE
)
JOIN_TILE = """\
  __shared__ float joined[$joined][$part_threads];
"""
JOIN = """\
    // What other warps have of the same rows, from other keys.
    const int lane = threadIdx.x % $part_threads;
    #pragma unroll
    for (int m = 0; m < $m_tiles; ++m)
      #pragma unroll
      for (int half = 0; half < 2; ++half) {
        float (*const theirs)[$part_threads]
            = joined + (part > 0 ? part - 1 : 0) * $joined_each + (m * 2 + half) * $joined_row;
        if (part > 0) {
          theirs[0][lane] = most[m][half];
          theirs[1][lane] = sum[m][half];
          #pragma unroll
          for (int j = 0; j < $width_tiles; ++j) {
            theirs[j * 2 + 2][lane] = total[m][j][half * 2];
            theirs[j * 2 + 3][lane] = total[m][j][half * 2 + 1];
          }
        }
      }
    __syncthreads();
    #pragma unroll 1
    for (int other = 1; part == 0 && other < $parts; ++other)
      #pragma unroll
      for (int m = 0; m < $m_tiles; ++m)
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
          float (*const theirs)[$part_threads]
              = joined + (other - 1) * $joined_each + (m * 2 + half) * $joined_row;
          const float largest = fmaxf(most[m][half], theirs[0][lane]);
          const float base = largest == -infinity_f32() ? 0.0f : largest * $factor;
          const float ours = power_of_two(fmaf(most[m][half], $factor, -base));
          const float other_share = power_of_two(fmaf(theirs[0][lane], $factor, -base));
          most[m][half] = largest;
          sum[m][half] = fmaf(sum[m][half], ours, theirs[1][lane] * other_share);
          #pragma unroll
          for (int j = 0; j < $width_tiles; ++j)
            #pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
              float& mine = total[m][j][half * 2 + odd];
              mine = fmaf(mine, ours, theirs[j * 2 + 2 + odd][lane] * other_share);
            }
        }
"""
BIAS_SLICE = """\
    const float* __restrict__ bias_slice = bias
        + (long long)(slice / words.bias_repeat % words.bias_count) * words.bias_slice;
"""
CHANGE_SCORES = """\
      #pragma unroll
      for (int m = 0; m < $m_tiles; ++m)
        #pragma unroll
        for (int j = 0; j < $key_tiles; ++j)
          #pragma unroll
          for (int c = 0; c < 4; ++c) {
            const int column = first + part * $keys + j * 8 + member * 2 + c % 2;
            const int row = row_first + warp_row + m * 16 + group + c / 2 * 8;
            float x = score[m][j][c] * $log_scale;
$bias\
            score[m][j][c] = x;
          }
"""
BIAS = """\
          if (row < queries && column < keys)
            x = fmaf(bias_slice[(long long)row * words.bias_row + column], $log_e, x);
"""
