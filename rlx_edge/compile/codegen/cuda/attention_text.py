"""The C++ of attention in one kernel, filled in as ``template_text``; fragments as in ``mma_text``.

A warp keeps 16 queries as fragments. Of a tile of keys it has all scores, so the weights go from
accumulators straight into fragments: in f16 two tiles of eight scores are a fragment of sixteen, in
tf32 the order of keys inside a fragment is the accumulators' own.
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
static __device__ __forceinline__ float power_of_two(float x)
{
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
"""
QUERY_WORD = {
    "tf32": "as_tf32(row < queries ? q_slice[row * $depth + word] : 0.0f)",
    "fp16": "row < queries ? as_halves(q_slice[row * $depth + 2 * word],\n"
    "              q_slice[row * $depth + 2 * word + 1]) : 0u",
}
WEIGHTS = {
    "tf32": """\
        const unsigned a[4] = {
            as_tf32(score[step][0]), as_tf32(score[step][2]),
            as_tf32(score[step][1]), as_tf32(score[step][3])};
        const unsigned* from = v_tile + (step * 8 + member * 2) * $v_stride + group;
        const int next = $v_stride;
""",
    "fp16": """\
        const unsigned a[4] = {
            as_halves(score[2 * step][0], score[2 * step][1]),
            as_halves(score[2 * step][2], score[2 * step][3]),
            as_halves(score[2 * step + 1][0], score[2 * step + 1][1]),
            as_halves(score[2 * step + 1][2], score[2 * step + 1][3])};
        const unsigned* from = v_tile + (step * 8 + member) * $v_stride + group;
        const int next = 4 * $v_stride;
""",
}
ATTENTION = """\
$head
{
  __shared__ __align__(16) unsigned k_tile[$key_words];
  __shared__ __align__(16) unsigned v_tile[$value_words];
$pointers\
  const int queries = words.queries, keys = words.keys;
  const int row_tiles = (queries + $rows - 1) / $rows, tile_count = words.slices * row_tiles;
  const int group = threadIdx.x % 32 / 4, member = threadIdx.x % 4;
  const int warp_row = threadIdx.x / 32 * 16;
  for (int tile = blockIdx.x; tile < tile_count; tile += gridDim.x) {
    const int row_first = tile % row_tiles * $rows, slice = tile / row_tiles;
    const float* __restrict__ q_slice = q + (long long)slice * queries * $depth;
    const float* __restrict__ k_slice = k + (long long)slice * keys * $depth;
    const float* __restrict__ v_slice = v + (long long)slice * keys * $width;
$bias_slice\
    unsigned query[$depth_steps][4];
    #pragma unroll
    for (int step = 0; step < $depth_steps; ++step)
      #pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int row = row_first + warp_row + group + c % 2 * 8;
        const int word = step * 8 + member + c / 2 * 4;
        query[step][c] = $query_word;
      }
    float most[2] = {-infinity_f32(), -infinity_f32()}, sum[2] = {0.0f, 0.0f};
    float total[$width_tiles][4];
    #pragma unroll
    for (int j = 0; j < $width_tiles; ++j)
      #pragma unroll
      for (int c = 0; c < 4; ++c) total[j][c] = 0.0f;
    for (int first = 0; first < $stop; first += $keys) {
      __syncthreads();
      #pragma unroll 1
      for (int item = threadIdx.x; item < $depth / 2 * ($keys / 4); item += $threads) {
        const int column = item % ($keys / 4) * 4, pair = item / ($keys / 4);
        const float* row = k_slice + (long long)pair * 2 * keys + first + column;
        const int left = keys - first - column;
        float4 even = make_float4(0.0f, 0.0f, 0.0f, 0.0f), odd = even;
        if (left > 0) { even.x = row[0]; odd.x = row[keys]; }
        if (left > 1) { even.y = row[1]; odd.y = row[keys + 1]; }
        if (left > 2) { even.z = row[2]; odd.z = row[keys + 2]; }
        if (left > 3) { even.w = row[3]; odd.w = row[keys + 3]; }
$keep_k\
      }
      #pragma unroll 1
      for (int item = threadIdx.x; item < $keys / 2 * ($width / 4); item += $threads) {
        const int column = item % ($width / 4) * 4, pair = item / ($width / 4);
        const int row = first + pair * 2;
        const float* from = v_slice + (long long)row * $width + column;
        float4 even = make_float4(0.0f, 0.0f, 0.0f, 0.0f), odd = even;
        if (row < keys) even = *(const float4*)from;
        if (row + 1 < keys) odd = *(const float4*)(from + $width);
$keep_v\
      }
      __syncthreads();
      float score[$key_tiles][4];
      #pragma unroll
      for (int j = 0; j < $key_tiles; ++j)
        #pragma unroll
        for (int c = 0; c < 4; ++c) score[j][c] = 0.0f;
      #pragma unroll
      for (int step = 0; step < $depth_steps; ++step)
        #pragma unroll
        for (int j = 0; j < $key_tiles; ++j) {
          const unsigned* from = k_tile + (step * 8 + member) * $k_stride + j * 8 + group;
          const unsigned b[2] = {from[0], from[4 * $k_stride]};
          $multiply(score[j], query[step], b);
        }
      #pragma unroll
      for (int j = 0; j < $key_tiles; ++j)
        #pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int column = first + j * 8 + member * 2 + c % 2;
          const int row = row_first + warp_row + group + c / 2 * 8;
          float x = score[j][c] * $scale;
$bias\
          score[j][c] = $unseen ? -infinity_f32() : x * 1.44269504f;
        }
      #pragma unroll
      for (int half = 0; half < 2; ++half) {
        float largest = most[half];
        #pragma unroll
        for (int j = 0; j < $key_tiles; ++j)
          largest = fmaxf(largest, fmaxf(score[j][half * 2], score[j][half * 2 + 1]));
        largest = row_most(largest);
        // A row without any key yet: what is below is 2 to -infinity.
        const float base = largest == -infinity_f32() ? 0.0f : largest;
        const float shrink = power_of_two(most[half] - base);
        most[half] = largest;
        float added = 0.0f;
        #pragma unroll
        for (int j = 0; j < $key_tiles; ++j)
          #pragma unroll
          for (int odd = 0; odd < 2; ++odd) {
            const float weight = power_of_two(score[j][half * 2 + odd] - base);
            score[j][half * 2 + odd] = weight;
            added = added + weight;
          }
        sum[half] = fmaf(sum[half], shrink, added);
        #pragma unroll
        for (int j = 0; j < $width_tiles; ++j) {
          total[j][half * 2] = total[j][half * 2] * shrink;
          total[j][half * 2 + 1] = total[j][half * 2 + 1] * shrink;
        }
      }
      #pragma unroll
      for (int step = 0; step < $weight_steps; ++step) {
$weights\
        #pragma unroll
        for (int j = 0; j < $width_tiles; ++j) {
          const unsigned b[2] = {from[j * 8], from[j * 8 + next]};
          $multiply(total[j], a, b);
        }
      }
    }
    #pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float whole = row_sum(sum[half]);
      const int row = row_first + warp_row + group + half * 8;
      #pragma unroll
      for (int j = 0; j < $width_tiles; ++j)
        #pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          if (row >= queries) continue;
          const int column = j * 8 + member * 2 + odd;
          out[((long long)slice * queries + row) * $width + column] = $result;
        }
    }
  }
}
"""
BIAS_SLICE = """\
    const float* __restrict__ bias_slice = bias
        + (long long)(slice / words.bias_repeat % words.bias_count) * words.bias_slice;
"""
BIAS = """\
          if (row < queries && column < keys)
            x = x + bias_slice[(long long)row * words.bias_row + column];
"""
