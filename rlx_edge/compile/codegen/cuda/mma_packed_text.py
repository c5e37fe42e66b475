"""The C++ of contractions with packed weights on matrix units, filled in as ``template_text``.

Rows of operand A are pixels, or rows of a matrix, whose columns are channels of one tap. A round
takes four fours of channels: of one tap, so that the next round finds most pixels in the
first-level cache, or of neighbouring taps where channels do not come in sixteens. Several rounds
are on their way to shared memory at a time. There a row has its fours of input in an order of its
own, as ``turn`` says, so that neither copies nor fragments meet a bank twice. Sums go through
shared memory to the threads that store four columns at a time.
"""

from __future__ import annotations

START = """\
$head
{
  unsigned* const tiles = shared_words<$shared_words>();
$pointers\
"""
CONV_SIZES = """\
  const int height = words.height, width = words.width, n = words.n;
  const int channels = words.channels, blocks = words.blocks, slices = words.slices;
  const int rows = words.images * height * width;
"""
MATMUL_SIZES = """\
  const int n = words.n, channels = words.k, blocks = (channels + 3) / 4, slices = 1;
  const int rows = words.m;
"""
WALK = """\
  const int wide = (n + $lanes - 1) / $lanes * $lanes;
  const int each = (channels + $lanes - 1) / $lanes * ($lanes / 4);
  const int row_tiles = (rows + $rows - 1) / $rows, column_tiles = (n + $columns - 1) / $columns;
  const int tile_count = slices * row_tiles * column_tiles;
  const int all_rounds = ($taps * each + 3) / 4;
  const bool one_tap = each % 4 == 0;
$splits\
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int group = lane / 4, member = lane % 4;
  const int warp_row = warp / ($columns / $warp_columns) * $warp_rows;
  const int warp_column = warp % ($columns / $warp_columns) * $warp_columns;
  const int b_row = threadIdx.x / $b_quads, b_quad = threadIdx.x % $b_quads;
  for (int tile = blockIdx.x; tile < tile_count * splits; tile += gridDim.x) {
    const int split = $split_of, outputs = $outputs_of;
    const int column_first = outputs % column_tiles * $columns;
    const int row_first = outputs / column_tiles % row_tiles * $rows;
    const int slice = outputs / column_tiles / row_tiles % slices;
    const int split_rounds = (all_rounds + splits - 1) / splits, first = split * split_rounds;
    const int rounds = lesser_integer<int>(split_rounds, all_rounds - first);
"""
CONV_PLACE = """\
    // This thread copies fours of channels of one pixel.
    const float* a_from = a;
    const int a_row = row_first + threadIdx.x % $rows;
    if (a_row < rows) {
      const int x = a_row % width, y = a_row / width % height, image = a_row / width / height;
      a_from = a + words.a_origin + slice * words.a_slice + image * words.a_image
          + y * words.a_row + x * words.a_pixel;
    }
"""
MATMUL_PLACE = """\
    // This thread copies one four of a round of several rows.
    const int a_row = row_first + threadIdx.x / 4;
    const float* const a_from = a + (long long)a_row * channels;
"""
ROUNDS = """\
    int quad_now = first * 4, tap_now = first % $taps, block_now = first / $taps * 4;
    const int b_depth = $taps * each * 4;
    const $b_type* const b_from = (const $b_type*)$weights
        + ((long long)slice * wide + column_first + b_row) * b_depth + b_quad * $b_elements;
    const auto fetch = [&](int stage) {
      unsigned* const a_tile = tiles + stage * $stage_words;
      unsigned* const b_tile = a_tile + $rows * 16;
      if (one_tap) {
        const int tap = tap_now;
$near\
        #pragma unroll
        for (int i = 0; i < $a_each; ++i) {
          const int row = $a_row, block = block_now + $a_quad;
          unsigned* to = a_tile + row * 16 + ($a_quad ^ turn(row)) * 4;
          const bool there = row_first + row < rows && block < blocks;
$copy_a\
        }
      } else {
        #pragma unroll
        for (int i = 0; i < $a_each; ++i) {
          const int row = $a_row, tap = (quad_now + $a_quad) / each;
          const int block = (quad_now + $a_quad) % each;
          unsigned* to = a_tile + row * 16 + ($a_quad ^ turn(row)) * 4;
          const bool there = row_first + row < rows && tap < $taps && block < blocks;
$near\
$copy_a\
        }
      }
      const int b_at = one_tap ? (tap_now * each + block_now) * 4 : quad_now * 4;
      #pragma unroll
      for (int i = 0; i < $b_each; ++i) {
        const int row = b_row + i * $b_step;
        const bool there = column_first + row < wide && b_at + b_quad * $b_elements < b_depth;
        const $b_type* from = b_from + (long long)i * $b_step * b_depth + b_at;
        copy_sixteen(b_tile + $b_place, there ? from : (const $b_type*)b, there);
      }
      quad_now += 4;
      tap_now = tap_now + 1 == $taps ? 0 : tap_now + 1;
      block_now += tap_now == 0 ? 4 : 0;
    };
    float total[$m_tiles][$n_tiles][4];
    #pragma unroll
    for (int i = 0; i < $m_tiles; ++i)
      #pragma unroll
      for (int j = 0; j < $n_tiles; ++j)
        #pragma unroll
        for (int c = 0; c < 4; ++c) total[i][j][c] = 0.0f;
    #pragma unroll
    for (int stage = 0; stage < $stages - 1; ++stage) {
      if (stage < rounds) fetch(stage);
      close_copies();
    }
    int now = 0, next = $stages - 1;
    for (int round = 0; round < rounds; ++round) {
      wait_copies<$stages - 2>();
      __syncthreads();
      const unsigned* const a_tile = tiles + now * $stage_words + warp_row * 16;
      const unsigned* const b_tile = tiles + now * $stage_words + $rows * 16;
$load\
      // The next copies start while fragments are on their way.
      if (round + $stages - 1 < rounds) fetch(next);
      close_copies();
$step\
      now = now + 1 == $stages ? 0 : now + 1;
      next = next + 1 == $stages ? 0 : next + 1;
    }
    wait_copies<0>();
    __syncthreads();
    float* const sums = (float*)tiles;
"""
CHUNKS = """\
    #pragma unroll
    for (int chunk = 0; chunk < $m_tiles; chunk += $join) {
"""
WRITE_SUMS = """\
      #pragma unroll
      for (int i = 0; i < $join; ++i)
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = warp / ($columns / $warp_columns) * ($join * 16) + i * 16 + half * 8
              + group;
          #pragma unroll
          for (int j = 0; j < $n_tiles; ++j) {
            const float* from = total[chunk + i][j] + half * 2;
            float* to = sums + row * ($columns + 4) + warp_column + j * 8 + member * 2;
            *(float2*)to = make_float2(from[0], from[1]);
          }
        }
"""
OWN_SUMS = """\
      __syncthreads();
      #pragma unroll
      for (int step = 0; step < $steps; ++step) {
$at_step\
        if (row >= rows || column >= n) continue;
        const float4 four_sums = *(const float4*)(sums + at_row * ($columns + 4) + at_column);
$finish\
      }
      __syncthreads();
    }
  }
}
"""
CONV_STEPS = """\
      const int at_row = threadIdx.x % $join_rows;
      const int row = row_first + at_row / ($join * 16) * $warp_rows + chunk * 16
          + at_row % ($join * 16);
      const int x = row % width, y = row / width % height, image = row / width / height;
"""
CONV_STEP = """\
        const int at_column = (threadIdx.x / $join_rows + step * ($threads / $join_rows)) * 4;
        const int column = column_first + at_column;
"""
MATMUL_STEP = """\
        const int item = threadIdx.x + step * $threads, at_row = item / ($columns / 4);
        const int row = row_first + at_row / ($join * 16) * $warp_rows + chunk * 16
            + at_row % ($join * 16);
        const int at_column = item % ($columns / 4) * 4, column = column_first + at_column;
"""
AHEAD = """\
      #pragma unroll
      for (int step = 0; step < $steps; ++step) {
$at_step\
        if (row >= rows || column >= n) continue;
$fours\
      }
"""
"""Operands of the output's shape are read before the sums are there."""
CLUSTER_SUMS = """\
      join_cluster();
      #pragma unroll
      for (int step = 0; step < $steps; ++step) {
$at_step\
        if (row >= rows || column >= n) continue;
        const float* const here = sums + at_row * ($columns + 4) + at_column;
        float4 four_sums = of_peer(here, 0);
        #pragma unroll
        for (int peer = 1; peer < splits; ++peer) {
          const float4 next = of_peer(here, peer);
          four_sums = make_float4(four_sums.x + next.x, four_sums.y + next.y,
              four_sums.z + next.z, four_sums.w + next.w);
        }
$finish\
      }
      join_cluster();
    }
  }
}
"""
"""The workgroups of a cluster have parts of the same sums; each adds up some of them."""
ONE_CHUNK = """\
    {
      const int chunk = 0;
"""
CLUSTER_CONV_STEP = """\
        const int item = (split * $steps + step) * $threads + threadIdx.x;
        const int at_row = item % $rows, at_column = item / $rows * 4;
        const int row = row_first + at_row, column = column_first + at_column;
        const int x = row % width, y = row / width % height, image = row / width / height;
"""
CLUSTER_MATMUL_STEP = """\
        const int item = (split * $steps + step) * $threads + threadIdx.x;
        const int at_row = item / ($columns / 4), at_column = item % ($columns / 4) * 4;
        const int row = row_first + at_row, column = column_first + at_column;
"""
_CONV = START + CONV_SIZES + WALK + CONV_PLACE + ROUNDS
_MATMUL = START + MATMUL_SIZES + WALK + MATMUL_PLACE + ROUNDS
_OWN = "$ahead" + WRITE_SUMS + OWN_SUMS
_CLUSTER = ONE_CHUNK + "$ahead" + WRITE_SUMS + CLUSTER_SUMS
CONV = _CONV + CHUNKS + CONV_STEPS + _OWN
MATMUL = _MATMUL + CHUNKS + _OWN
CLUSTER_CONV = _CONV + _CLUSTER
CLUSTER_MATMUL = _MATMUL + _CLUSTER
ONE_SPLIT = """\
  const int splits = $cluster;
"""
SPLITS = """\
  const int splits = greater_integer<int>(
      lesser_integer<int>(
          lesser_integer<int>($split_groups / tile_count, $most_splits),
          all_rounds / $least_rounds),
      1);
"""
CONV_NEAR = """\
          const float* const near = a_from + tap / $kernel_columns * words.a_tap_row
              + tap % $kernel_columns * words.a_tap_column;
"""
MATMUL_NEAR = """\
          const float* const near = a_from;
"""
COPY_BLOCK = """\
          copy_near(to, there ? near + block * words.a_plane : a, there);
"""
COPY_PLANES = """\
          const int left = there ? channels - block * 4 : 0;
          const float* const from = near + block * 4 * words.a_plane;
          #pragma unroll
          for (int c = 0; c < 4; ++c)
            copy_four(to + c, c < left ? from + c * words.a_plane : a, c < left);
"""
COPY_FOUR = """\
          copy_near(to, there ? near + i * $a_step * channels + block * 4 : a, there);
"""
COPY_SINGLE = """\
          const int left = there ? channels - block * 4 : 0;
          const float* const from = near + i * $a_step * channels + block * 4;
          #pragma unroll
          for (int c = 0; c < 4; ++c) copy_four(to + c, c < left ? from + c : a, c < left);
"""
LOADS = {
    "tf32": """\
      unsigned a_part[2][$m_tiles][4], b_part[2][$n_tiles][2];
      const auto load = [&](int step) {
        const int a_four = (step * 2 + lane / 16) ^ turn(lane % 8);
        const int b_four = (step * 2 + lane / 8 % 2) ^ turn(lane % 8);
        #pragma unroll
        for (int i = 0; i < $m_tiles; ++i)
          load_matrices(a_part[step][i], a_tile + (i * 16 + lane % 16) * 16 + a_four * 4);
        #pragma unroll
        for (int j = 0; j < $n_tiles; j += 2)
          load_matrices(b_part[step][j],
              b_tile + (warp_column + (j + lane / 16) * 8 + lane % 8) * 16 + b_four * 4);
      };
      load(0);
""",
    "fp16": """\
      unsigned b_part[$n_tiles][2];
      float2 a_fours[$m_tiles][4];
      {
        const int low = (member / 2 ^ turn(group)) * 4 + member % 2 * 2;
        const int high = ((member / 2 + 2) ^ turn(group)) * 4 + member % 2 * 2;
        #pragma unroll
        for (int i = 0; i < $m_tiles; ++i) {
          const float* from = (const float*)a_tile + (i * 16 + group) * 16;
          a_fours[i][0] = *(const float2*)(from + low);
          a_fours[i][1] = *(const float2*)(from + 128 + low);
          a_fours[i][2] = *(const float2*)(from + high);
          a_fours[i][3] = *(const float2*)(from + 128 + high);
        }
        const int b_four = lane / 8 % 2 ^ lane % 8 / 4;
        #pragma unroll
        for (int j = 0; j < $n_tiles; j += 2)
          load_matrices(b_part[j],
              b_tile + (warp_column + (j + lane / 16) * 8 + lane % 8) * 8 + b_four * 4);
      }
""",
}
"""The fragments of a round, or of its first step."""
STEPS = {
    "tf32": """\
      load(1);
      #pragma unroll
      for (int step = 0; step < 2; ++step) {
        #pragma unroll
        for (int i = 0; i < $m_tiles; ++i)
          #pragma unroll
          for (int c = 0; c < 4; ++c)
            a_part[step][i][c] = as_tf32(__uint_as_float(a_part[step][i][c]));
        #pragma unroll
        for (int i = 0; i < $m_tiles; ++i)
          #pragma unroll
          for (int j = 0; j < $n_tiles; ++j)
            multiply_tf32(total[i][j], a_part[step][i], b_part[step][j]);
      }
""",
    "fp16": """\
      #pragma unroll
      for (int i = 0; i < $m_tiles; ++i) {
        unsigned a_part[4];
        #pragma unroll
        for (int c = 0; c < 4; ++c) a_part[c] = as_halves(a_fours[i][c].x, a_fours[i][c].y);
        #pragma unroll
        for (int j = 0; j < $n_tiles; ++j) multiply_fp16(total[i][j], a_part, b_part[j]);
      }
""",
}
"""The products of a round: two steps of eight channels, or one of sixteen."""
B_PLACES = {
    "tf32": "row * 16 + (b_quad ^ turn(row)) * 4",
    "fp16": "row * 8 + (b_quad ^ row / 4 % 2) * 4",
}
"""Where sixteen bytes of a row of weights lie."""
TOTAL = """\
        const float total[1][4] = {{four_sums.x, four_sums.y, four_sums.z, four_sums.w}};
        const int i = 0;
"""
FINISH = (
    TOTAL
    + """\
$store\
"""
)
KEEP = """\
        float4* const parts = (float4*)at<float>(arena, words.scratch);
        const long long here = (long long)split * rows + row;
        parts[(here * slices + slice) * (wide / 4) + column / 4] = four_sums;
"""
"""What follows the sums: the epilogue, or another kernel that adds up parts."""
MATMUL_FOURS = """\
        const int place = row * n + column;
        float four[4];
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float acc = total[i][j];
$epilogue\
          four[j] = $result;
        }
        *(float4*)(out + place) = make_float4(four[0], four[1], four[2], four[3]);
"""
MATMUL_SINGLE = """\
        const int place = row * n + column;
        for (int j = 0; j < 4; ++j) {
          if (column + j >= n) break;
          const float acc = total[i][j];
$epilogue\
          out[place + j] = $result;
        }
"""
MATMUL_PARTS = """\
$head
{
$pointers\
  const float4* __restrict__ from = at<const float4>(arena, words.scratch);
  const int n = words.n, channels = words.k, rows = words.m;
  const int wide = (n + $lanes - 1) / $lanes * $lanes;
  const int each = (channels + $lanes - 1) / $lanes * ($lanes / 4);
  const int tile_count = ((rows + $rows - 1) / $rows) * ((n + $columns - 1) / $columns);
  const int all_rounds = (each + 3) / 4;
$splits\
  const int quads = wide / 4;
  for (int item = blockIdx.x * $threads + threadIdx.x; item < rows * quads;
       item += gridDim.x * $threads) {
    const int row = item / quads, column = item % quads * 4;
    if (column >= n) continue;
    float4 four_sums = from[item];
    for (int split = 1; split < splits; ++split) {
      const float4 next = from[(long long)split * rows * quads + item];
      four_sums = make_float4(four_sums.x + next.x, four_sums.y + next.y, four_sums.z + next.z,
          four_sums.w + next.w);
    }
$finish\
  }
}
"""
"""The parts of a product's sums added up, and the epilogue."""
