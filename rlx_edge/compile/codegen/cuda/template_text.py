"""The C++ that template kernels are filled in from; ``$name`` stands for what a kernel bakes in.

``SHARED``, ``CHAINS`` and a join are what matmul and conv2d have in common: tiles in shared memory,
loads that run one step ahead, and chains of products by four rows and four columns of a thread.
"""

from __future__ import annotations

POINTERS = """\
  float* __restrict__ out = at<float>(arena, words.out);
"""
SHARED = """\
  __shared__ __align__(16) float a_tile[$parts][$depth][$rows + $pad];
  __shared__ __align__(16) float b_tile[$parts][$depth][$columns];
"""
CHAINS = """\
    float total[4][4], chain[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j) total[i][j] = chain[i][j] = 0.0f;
    // All parts step together; part p has the p-th chain from base on.
    int base = 0, step = 0;
    float4 a_next[$a_each], b_next[$b_each];
    const auto fetch = [&]() {
      const int start = base + part * $chain, stop = lesser_integer<int>(start + $chain, k);
      const int first = start + step;
      #pragma unroll
      for (int each = 0; each < $a_each; ++each) {
        const int item = lane + each * $part_threads;
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
$load_a\
        a_next[each] = four;
      }
      #pragma unroll
      for (int each = 0; each < $b_each; ++each) {
        const int item = lane + each * $part_threads;
        const int column = item % ($columns / 4) * 4, at_k = first + item / ($columns / 4);
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
$load_b\
        b_next[each] = four;
      }
    };
    if (k > 0) fetch();
    while (base < k) {
      #pragma unroll
      for (int each = 0; each < $a_each; ++each) {
        const int item = lane + each * $part_threads;
        const int row = $a_row, quad = $a_quad;
        a_tile[part][quad * 4][row] = a_next[each].x;
        a_tile[part][quad * 4 + 1][row] = a_next[each].y;
        a_tile[part][quad * 4 + 2][row] = a_next[each].z;
        a_tile[part][quad * 4 + 3][row] = a_next[each].w;
      }
      #pragma unroll
      for (int each = 0; each < $b_each; ++each) {
        const int item = lane + each * $part_threads;
        *(float4*)&b_tile[part][item / ($columns / 4)][item % ($columns / 4) * 4] = b_next[each];
      }
      __syncthreads();
      const bool ended = step + $depth >= $chain || base + step + $depth >= k;
      step = ended ? 0 : step + $depth;
      base += ended ? $parts * $chain : 0;
      if (base < k) fetch();
      #pragma unroll
      for (int at = 0; at < $depth; ++at) {
        const float4 left = *(const float4*)&a_tile[part][at][row_at];
        const float4 right = *(const float4*)&b_tile[part][at][column_at];
        const float rows4[4] = {left.x, left.y, left.z, left.w};
        const float columns4[4] = {right.x, right.y, right.z, right.w};
        #pragma unroll
        for (int i = 0; i < 4; ++i)
          #pragma unroll
          for (int j = 0; j < 4; ++j) chain[i][j] = $step;
      }
      __syncthreads();
      if (ended) {
$join\
      }
    }
"""
STEP = "chain[i][j] + rows4[i] * columns4[j]"
FUSED_STEP = "fmaf(rows4[i], columns4[j], chain[i][j])"
"""Of a chain: product and sum rounded each, or once for both."""
JOIN_ONE = """\
        #pragma unroll
        for (int i = 0; i < 4; ++i)
          #pragma unroll
          for (int j = 0; j < 4; ++j) {
            total[i][j] = total[i][j] + chain[i][j];
            chain[i][j] = 0.0f;
          }
"""
JOIN_PARTS = """\
        #pragma unroll
        for (int i = 0; i < 4; ++i)
          #pragma unroll
          for (int j = 0; j < 4; ++j)
            if (part > 0) chains[part - 1][i * 4 + j][lane] = chain[i][j];
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 4; ++i)
          #pragma unroll
          for (int j = 0; j < 4; ++j) {
            if (part == 0) {
              total[i][j] = total[i][j] + chain[i][j];
              for (int other = 0; other < $parts - 1; ++other)
                total[i][j] = total[i][j] + chains[other][i * 4 + j][lane];
            }
            chain[i][j] = 0.0f;
          }
"""
MATMUL = (
    """\
$head
{
"""
    + SHARED
    + """\
$pointers\
  const int m = words.m, n = words.n, k = words.k;
  const int row_tiles = (m + $rows - 1) / $rows, column_tiles = (n + $columns - 1) / $columns;
  const int tiles = words.slices * row_tiles * column_tiles;
  const int part = threadIdx.x / $part_threads, lane = threadIdx.x % $part_threads;
  const int column_at = lane % ($columns / 4) * 4;
  const int row_at = lane / ($columns / 4) * 4;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int column_first = tile % column_tiles * $columns;
    const int row_first = tile / column_tiles % row_tiles * $rows;
    const int slice = tile / column_tiles / row_tiles;
    const float* __restrict__ a_slice = a + slice * words.a_slice;
    const float* __restrict__ b_slice = b + slice * words.b_slice;
"""
    + CHAINS
    + """\
    for (int i = 0; i < 4; ++i) {
      const int row = row_first + row_at + i;
      if (part > 0 || row >= m) break;
      for (int j = 0; j < 4; ++j) {
        const int column = column_first + column_at + j;
        if (column >= n) break;
        const int place = (slice * m + row) * n + column;
        const float acc = total[i][j];
$epilogue\
        out[place] = $result;
      }
    }
  }
}
"""
)
MATMUL_A = """\
        const int row = row_first + item / ($depth / 4), at_k = first + item % ($depth / 4) * 4;
        const float* from = a_slice + row * k + at_k;
"""
A_VECTOR = """\
        if (row < m && at_k < stop) four = *(const float4*)from;
"""
A_SINGLE = """\
        if (row < m && at_k < stop) four.x = from[0];
        if (row < m && at_k + 1 < stop) four.y = from[1];
        if (row < m && at_k + 2 < stop) four.z = from[2];
        if (row < m && at_k + 3 < stop) four.w = from[3];
"""
MATMUL_B = """\
        const float* from = b_slice + at_k * n + column_first + column;
        const int left = at_k < stop ? n - column_first - column : 0;
"""
B_VECTOR = """\
        if (left > 0) four = *(const float4*)from;
"""
B_SINGLE = """\
        if (left > 0) four.x = from[0];
        if (left > 1) four.y = from[1];
        if (left > 2) four.z = from[2];
        if (left > 3) four.w = from[3];
"""
# The tile of a workgroup, and where operand A has each of its rows.
PIXEL_ROWS = """\
    const int row_first = tile % row_tiles * $rows;
    const int column_first = tile / row_tiles % column_tiles * $columns;
    const int slice = tile / row_tiles / column_tiles;
    const float* __restrict__ b_slice = b + slice * k * b_row;
    for (int row = threadIdx.x; row < $rows; row += $threads) {
      const int pixel = row_first + row;
      const int x = pixel % width, y = pixel / width % height, image = pixel / width / height;
      a_at[row] = pixel >= pixels ? -1
          : words.a_origin + slice * words.a_slice + image * words.a_image + y * words.a_row
              + x * words.a_pixel;
    }
    __syncthreads();
"""

CONV = (
    """\
$head
{
"""
    + SHARED
    + """\
  __shared__ int a_at[$rows];
$pointers\
  const int height = words.height, width = words.width, n = words.n, b_row = words.b_row;
  const int pixels = words.images * height * width, k = words.blocks * $taps * 4;
  const int row_tiles = (pixels + $rows - 1) / $rows, column_tiles = (n + $columns - 1) / $columns;
  const int tiles = words.slices * row_tiles * column_tiles;
  const int part = threadIdx.x / $part_threads, lane = threadIdx.x % $part_threads;
  const int row_at = lane % ($rows / 4) * 4;
  const int column_at = lane / ($rows / 4) * 4;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
"""
    + PIXEL_ROWS
    + CHAINS
    + """\
    const int column = column_first + column_at;
    for (int i = 0; i < 4; ++i) {
      const int pixel = row_first + row_at + i;
      if (part > 0 || pixel >= pixels || column >= n) break;
      const int x = pixel % width, y = pixel / width % height, image = pixel / width / height;
$store\
    }
    __syncthreads();
  }
}
"""
)
CONV_A = """\
        const int from = a_at[item % $rows], at_k = first + item / $rows * 4;
        const unsigned quad = (unsigned)at_k / 4u;
        const int block = quad / ${taps}u, tap = quad % ${taps}u;
        const int tap_row = tap / $kernel_columns, tap_column = tap % $kernel_columns;
        const int there = from + tap_row * words.a_tap_row + tap_column * words.a_tap_column;
        if (from >= 0 && at_k < stop) {
"""
QUAD_LOAD = """\
          four = *(const float4*)(a + there + block * words.a_plane);
        }
"""
PLANES_LOAD = """\
          const int left = words.channels - block * 4;
          const float* plane = a + there + block * 4 * words.a_plane;
          four.x = plane[0];
          if (left > 1) four.y = plane[words.a_plane];
          if (left > 2) four.z = plane[2 * words.a_plane];
          if (left > 3) four.w = plane[3 * words.a_plane];
        }
"""
CONV_B = """\
        if (at_k < stop && column_first + column < b_row)
          four = *(const float4*)(b_slice + at_k * b_row + column_first + column);
"""
STORE_BLOCKED = """\
$fours\
      float four[4];
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int channel = slice * n + column + j;
        const float acc = total[i][j];
        four[j] = 0.0f;
        if (column + j < n) {
$epilogue\
          four[j] = $result;
        }
      }
      *(float4*)(out + $place) = make_float4(four[0], four[1], four[2], four[3]);
"""
STORE_PLANES = """\
      for (int j = 0; j < 4; ++j) {
        if (column + j >= n) break;
        const int channel = slice * n + column + j;
        const float acc = total[i][j];
$epilogue\
        out[$place] = $result;
      }
"""
DEPTHWISE = """\
$head
{
$pointers\
  const int height = words.height, width = words.width, channels = words.channels;
  const unsigned items = words.images * words.blocks * height * width;
  const int slice = 0;
  for (unsigned item = blockIdx.x * ${threads}u + threadIdx.x; item < items;
       item += gridDim.x * ${threads}u) {
    const int x = item % (unsigned)width;
    const unsigned lines = item / (unsigned)width;
    const int y = lines % (unsigned)height;
    const unsigned planes = lines / (unsigned)height;
    const int block = planes % (unsigned)words.blocks, image = planes / (unsigned)words.blocks;
    const float* from = a + words.a_origin + image * words.a_image + block * words.a_plane
        + y * words.a_row + x * words.a_pixel;
    const float* weights = b + block * $taps * 4;
    float chain[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    #pragma unroll 1
    for (int row = 0; row < $kernel_rows; ++row) {
      #pragma unroll
      for (int column = 0; column < $kernel_columns; ++column) {
        const int there = row * words.a_tap_row + column * words.a_tap_column;
        const float4 pixel = *(const float4*)(from + there);
        const float4 weight = *(const float4*)(weights + (row * $kernel_columns + column) * 4);
        chain[0] = chain[0] + pixel.x * weight.x;
        chain[1] = chain[1] + pixel.y * weight.y;
        chain[2] = chain[2] + pixel.z * weight.z;
        chain[3] = chain[3] + pixel.w * weight.w;
      }
    }
    float four[4];
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int channel = block * 4 + j;
      const float acc = chain[j];
      four[j] = 0.0f;
      if (channel < channels) {
$epilogue\
        four[j] = $result;
      }
    }
    *(float4*)(out + $place) = make_float4(four[0], four[1], four[2], four[3]);
  }
}
"""
