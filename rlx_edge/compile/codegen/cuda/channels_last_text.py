"""The C++ of kernels around a library's convolution, filled in as ``template_text``.

A workgroup takes pixels by fours of channels: shared memory turns them round, so that neighbours
read and write neighbours on both sides.
"""

from __future__ import annotations

SHARED = """\
  __shared__ __align__(16) float4 turned[$pixels][$quads + 1];
"""
INPUT = (
    """\
$head
{
"""
    + SHARED
    + """\
$pointers\
  const int height = (words.height - 1) * $row_stride + $row_reach;
  const int width = (words.width - 1) * $column_stride + $column_reach;
  const int each = (words.channels + $lanes - 1) / $lanes * ($lanes / 4);
  const int pixels = words.images * height * width, quads = words.slices * each;
  const int pixel_tiles = (pixels + $pixels - 1) / $pixels;
  const int tiles = pixel_tiles * ((quads + $quads - 1) / $quads);
  const int results = words.images * words.height * words.width * words.slices;
  $element* __restrict__ to = ($element*)(at<float>(arena, words.scratch)
      + (long long)results * ((words.n + $lanes - 1) / $lanes * $lanes));
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int pixel_first = tile % pixel_tiles * $pixels, first = tile / pixel_tiles * $quads;
    {
      const int pixel = pixel_first + threadIdx.x % $pixels;
      const int quad = first + threadIdx.x / $pixels;
      const int x = pixel % width, y = pixel / width % height, image = pixel / width / height;
      const int slice = quad / each, block = quad % each;
      const int there = words.a_origin + slice * words.a_slice + image * words.a_image
          + y * (words.a_row / $row_stride) + x * (words.a_pixel / $column_stride);
      float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (pixel < pixels && quad < quads && block < words.blocks) {
$load\
      turned[threadIdx.x % $pixels][threadIdx.x / $pixels] = four;
    }
    __syncthreads();
    const int pixel = pixel_first + threadIdx.x / $quads;
    const int quad = first + threadIdx.x % $quads;
    if (pixel < pixels && quad < quads) {
      const float4 four = turned[threadIdx.x / $quads][threadIdx.x % $quads];
      to[(long long)pixel * quads + quad] = $value;
    }
    __syncthreads();
  }
}
"""
)
ELEMENTS = {
    "relaxed": ("float4", "four"),
    "tf32": (
        "uint4",
        "make_uint4(as_tf32(four.x), as_tf32(four.y), as_tf32(four.z), as_tf32(four.w))",
    ),
    "fp16": ("uint2", "make_uint2(as_halves(four.x, four.y), as_halves(four.z, four.w))"),
}
"""What four channels are stored as, and how they become it."""
RESULT = (
    """\
$head
{
"""
    + SHARED
    + """\
$pointers\
  const float4* __restrict__ from = at<const float4>(arena, words.scratch);
  const int height = words.height, width = words.width, n = words.n;
  const int each = (n + $lanes - 1) / $lanes * ($lanes / 4);
  const int pixels = words.images * height * width, quads = words.slices * each;
  const int pixel_tiles = (pixels + $pixels - 1) / $pixels;
  const int tiles = pixel_tiles * ((quads + $quads - 1) / $quads);
$splits\
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int pixel_first = tile % pixel_tiles * $pixels, first = tile / pixel_tiles * $quads;
    const int pixel = pixel_first + threadIdx.x % $pixels;
    const int quad = first + threadIdx.x / $pixels;
    const int slice = quad / each, column = quad % each * 4;
    const int x = pixel % width, y = pixel / width % height, image = pixel / width / height;
    const bool stores = pixel < pixels && quad < quads && column < n;
$ahead\
    {
      const int pixel = pixel_first + threadIdx.x / $quads;
      const int quad = first + threadIdx.x % $quads;
      if (pixel < pixels && quad < quads) {
        const float4* part = from + (long long)pixel * quads + quad;
        float4 sum = *part;
        for (int split = 1; split < splits; ++split) {
          part += (long long)pixels * quads;
          const float4 next = *part;
          sum = make_float4(sum.x + next.x, sum.y + next.y, sum.z + next.z, sum.w + next.w);
        }
        turned[threadIdx.x / $quads][threadIdx.x % $quads] = sum;
      }
    }
    __syncthreads();
    if (stores) {
      const float4 sums = turned[threadIdx.x % $pixels][threadIdx.x / $pixels];
      const float total[1][4] = {{sums.x, sums.y, sums.z, sums.w}};
      const int i = 0;
$store\
    }
    __syncthreads();
  }
}
"""
)
SPLIT_SUMS = """\
  const int each_in = (words.channels + $lanes - 1) / $lanes * ($lanes / 4);
  const int all_rounds = ($taps * each_in + 3) / 4;
  const int tile_count = words.slices * ((pixels + $rows - 1) / $rows)
      * ((n + $columns - 1) / $columns);
"""
"""How many parts the sums have, as their kernel finds it."""
PACK = """\
$head
{
  $element* __restrict__ out = at<$element>(arena, words.out);
  const float* __restrict__ a = at<const float>(arena, words.a);
  const int each = (words.channels + $lanes - 1) / $lanes * ($lanes / 4);
  const int wide = (words.n + $lanes - 1) / $lanes * $lanes;
  const int quads = words.slices * wide * words.taps * each;
  for (int item = blockIdx.x * $threads + threadIdx.x; item < quads;
       item += gridDim.x * $threads) {
    const int channel = item % each * 4, tap = item / each % words.taps;
    const int output = item / each / words.taps % wide, slice = item / each / words.taps / wide;
    const int left = output < words.n ? words.channels - channel : 0;
    const float* from = a + (slice * words.n + output) * words.output_stride
        + channel * words.channel_stride + tap;
    float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (left > 0) four.x = from[0];
    if (left > 1) four.y = from[words.channel_stride];
    if (left > 2) four.z = from[2 * words.channel_stride];
    if (left > 3) four.w = from[3 * words.channel_stride];
    out[item] = $value;
  }
}
"""
