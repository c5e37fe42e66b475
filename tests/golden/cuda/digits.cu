// first for %block1_weight_1.packed = pack
struct K0 { unsigned out, in1; int p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10; };
extern "C" __global__ void __launch_bounds__(256)
k0_loop6_lt_select(char* arena, const K0 words)
{
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ in1 = at<const float>(arena, words.in1);
  const int p0 = words.p0;
  const int p1 = words.p1;
  const int p2 = words.p2;
  const int p3 = words.p3;
  const int p4 = words.p4;
  const int p5 = words.p5;
  const int p6 = words.p6;
  const int p7 = words.p7;
  const int p8 = words.p8;
  const int p9 = words.p9;
  const int p10 = words.p10;
  const unsigned items = greater_integer<int>(p0, 0) * greater_integer<int>(p1, 0) * greater_integer<int>(p2, 0) * greater_integer<int>(p3, 0);
  for (unsigned item = blockIdx.x * 256u + threadIdx.x; item < items; item += gridDim.x * 256u) {
    const int l3 = item % (unsigned)p3;
    const unsigned item3 = item / (unsigned)p3;
    const int l2 = item3 % (unsigned)p2;
    const unsigned item2 = item3 / (unsigned)p2;
    const int l1 = item2 % (unsigned)p1;
    const unsigned item1 = item2 / (unsigned)p1;
    const int l0 = item1;
    const bool lt_ = l2 < 1;
    const float x1 = in1[l0 * p9 + lesser_integer<int>(0, l2) * p10 + lesser_integer<int>(15, l3) * p10 + l1];
    const float chosen = lt_ ? x1 : 0.0f;
    out[l0 * p5 + l1 * p6 + l2 * p7 + l3] = chosen;
  }
}

// first for %block2_weight_1 = rlxc::mul
struct K1 { unsigned out, in1, in2; int p0, p1, p2; };
extern "C" __global__ void __launch_bounds__(256)
k1_loop2_mul(char* arena, const K1 words)
{
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ in1 = at<const float>(arena, words.in1);
  const float* __restrict__ in2 = at<const float>(arena, words.in2);
  const int p0 = words.p0;
  const int p1 = words.p1;
  const int p2 = words.p2;
  const unsigned items = greater_integer<int>(p0, 0) * greater_integer<int>(p1, 0);
  for (unsigned item = blockIdx.x * 256u + threadIdx.x; item < items; item += gridDim.x * 256u) {
    const int l1 = item % (unsigned)p1;
    const unsigned item1 = item / (unsigned)p1;
    const int l0 = item1;
    const float x1 = in1[l0 * p2 + l1];
    const float x2 = in2[l0];
    const float mul_ = x1 * x2;
    out[l0 * p2 + l1] = mul_;
  }
}

// first for %block2_weight_1.packed = pack
struct K2 { unsigned out, in1; int p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13; };
extern "C" __global__ void __launch_bounds__(256)
k2_loop6_copy(char* arena, const K2 words)
{
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ in1 = at<const float>(arena, words.in1);
  const int p0 = words.p0;
  const int p1 = words.p1;
  const int p2 = words.p2;
  const int p3 = words.p3;
  const int p4 = words.p4;
  const int p5 = words.p5;
  const int p6 = words.p6;
  const int p7 = words.p7;
  const int p8 = words.p8;
  const int p9 = words.p9;
  const int p10 = words.p10;
  const int p11 = words.p11;
  const int p12 = words.p12;
  const int p13 = words.p13;
  const unsigned items = greater_integer<int>(p0, 0) * greater_integer<int>(p1, 0) * greater_integer<int>(p2, 0) * greater_integer<int>(p3, 0) * greater_integer<int>(p4, 0);
  for (unsigned item = blockIdx.x * 256u + threadIdx.x; item < items; item += gridDim.x * 256u) {
    const int l4 = item % (unsigned)p4;
    const unsigned item4 = item / (unsigned)p4;
    const int l3 = item4 % (unsigned)p3;
    const unsigned item3 = item4 / (unsigned)p3;
    const int l2 = item3 % (unsigned)p2;
    const unsigned item2 = item3 / (unsigned)p2;
    const int l1 = item2 % (unsigned)p1;
    const unsigned item1 = item2 / (unsigned)p1;
    const int l0 = item1;
    const float x1 = in1[l1 * p11 + lesser_integer<int>(15, l0 * 4 + l3) * p12 + lesser_integer<int>(l4, p10) * p13 + l2];
    out[l0 * p6 + l1 * p7 + l2 * p8 + l3 * p9 + l4] = x1;
  }
}

// first for %image_1 = border
struct K3 { unsigned out; int p0, p1, p2, p3; };
extern "C" __global__ void __launch_bounds__(256)
k3_loop2_fill(char* arena, const K3 words)
{
  float* __restrict__ out = at<float>(arena, words.out);
  const int p0 = words.p0;
  const int p1 = words.p1;
  const int p2 = words.p2;
  const int p3 = words.p3;
  const unsigned items = greater_integer<int>(p0, 0) * greater_integer<int>(p1, 0);
  for (unsigned item = blockIdx.x * 256u + threadIdx.x; item < items; item += gridDim.x * 256u) {
    const int l1 = item % (unsigned)p1;
    const unsigned item1 = item / (unsigned)p1;
    const int l0 = item1;
    out[l0 * p2 + lesser_integer<int>(7, greater_integer<int>((int)((unsigned)(l1 + 1) / (unsigned)2) - 6, -1)) * p3 + l1 + 8] = 0.0f;
  }
}

// first for %image_1 = rlxc::convert_layout
struct K4 { unsigned out, in1; int p0, p1, p2, p3, p4, p5, p6; };
extern "C" __global__ void __launch_bounds__(256)
k4_loop3_copy(char* arena, const K4 words)
{
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ in1 = at<const float>(arena, words.in1);
  const int p0 = words.p0;
  const int p1 = words.p1;
  const int p2 = words.p2;
  const int p3 = words.p3;
  const int p4 = words.p4;
  const int p5 = words.p5;
  const int p6 = words.p6;
  const unsigned items = greater_integer<int>(p0, 0) * greater_integer<int>(p1, 0) * greater_integer<int>(p2, 0);
  for (unsigned item = blockIdx.x * 256u + threadIdx.x; item < items; item += gridDim.x * 256u) {
    const int l2 = item % (unsigned)p2;
    const unsigned item2 = item / (unsigned)p2;
    const int l1 = item2 % (unsigned)p1;
    const unsigned item1 = item2 / (unsigned)p1;
    const int l0 = item1;
    const float x1 = in1[l0 * p5 + l1 * p6 + l2];
    out[l0 * p3 + l1 * p4 + l2 + 11] = x1;
  }
}

// first for %block1_relu = rlxc::fused_conv2d_relu
struct K5 { unsigned out, a, b, e0; int slices, images, height, width, n, channels, blocks, a_origin, a_slice, a_image, a_plane, a_row, a_pixel, a_tap_row, a_tap_column, b_row, out_origin, out_slice, out_image, out_plane, out_row; };
extern "C" __global__ void __launch_bounds__(128, 1)
k5_conv2d(char* arena, const K5 words)
{
  __shared__ __align__(16) float a_tile[1][16][64 + 0];
  __shared__ __align__(16) float b_tile[1][16][32];
  __shared__ int a_at[64];
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ a = at<const float>(arena, words.a);
  const float* __restrict__ b = at<const float>(arena, words.b);
  const float* __restrict__ e0 = at<const float>(arena, words.e0);
  const int height = words.height, width = words.width, n = words.n, b_row = words.b_row;
  const int pixels = words.images * height * width, k = words.blocks * 9 * 4;
  const int row_tiles = (pixels + 64 - 1) / 64, column_tiles = (n + 32 - 1) / 32;
  const int tiles = words.slices * row_tiles * column_tiles;
  const int part = threadIdx.x / 128, lane = threadIdx.x % 128;
  const int row_at = lane % (64 / 4) * 4;
  const int column_at = lane / (64 / 4) * 4;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int row_first = tile % row_tiles * 64;
    const int column_first = tile / row_tiles % column_tiles * 32;
    const int slice = tile / row_tiles / column_tiles;
    const float* __restrict__ b_slice = b + slice * k * b_row;
    for (int row = threadIdx.x; row < 64; row += 128) {
      const int pixel = row_first + row;
      const int x = pixel % width, y = pixel / width % height, image = pixel / width / height;
      a_at[row] = pixel >= pixels ? -1
          : words.a_origin + slice * words.a_slice + image * words.a_image + y * words.a_row
              + x * words.a_pixel;
    }
    __syncthreads();
    float total[4][4], chain[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j) total[i][j] = chain[i][j] = 0.0f;
    // All parts step together; part p has the p-th chain from base on.
    int base = 0, step = 0;
    float4 a_next[2], b_next[1];
    const auto fetch = [&]() {
      const int start = base + part * 108, stop = lesser_integer<int>(start + 108, k);
      const int first = start + step;
      #pragma unroll
      for (int each = 0; each < 2; ++each) {
        const int item = lane + each * 128;
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const int from = a_at[item % 64], at_k = first + item / 64 * 4;
        const unsigned quad = (unsigned)at_k / 4u;
        const int block = quad / 9u, tap = quad % 9u;
        const int tap_row = tap / 3, tap_column = tap % 3;
        const int there = from + tap_row * words.a_tap_row + tap_column * words.a_tap_column;
        if (from >= 0 && at_k < stop) {
          const int left = words.channels - block * 4;
          const float* plane = a + there + block * 4 * words.a_plane;
          four.x = plane[0];
          if (left > 1) four.y = plane[words.a_plane];
          if (left > 2) four.z = plane[2 * words.a_plane];
          if (left > 3) four.w = plane[3 * words.a_plane];
        }
        a_next[each] = four;
      }
      #pragma unroll
      for (int each = 0; each < 1; ++each) {
        const int item = lane + each * 128;
        const int column = item % (32 / 4) * 4, at_k = first + item / (32 / 4);
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (at_k < stop && column_first + column < b_row)
          four = *(const float4*)(b_slice + at_k * b_row + column_first + column);
        b_next[each] = four;
      }
    };
    if (k > 0) fetch();
    while (base < k) {
      #pragma unroll
      for (int each = 0; each < 2; ++each) {
        const int item = lane + each * 128;
        const int row = item % 64, quad = item / 64;
        a_tile[part][quad * 4][row] = a_next[each].x;
        a_tile[part][quad * 4 + 1][row] = a_next[each].y;
        a_tile[part][quad * 4 + 2][row] = a_next[each].z;
        a_tile[part][quad * 4 + 3][row] = a_next[each].w;
      }
      #pragma unroll
      for (int each = 0; each < 1; ++each) {
        const int item = lane + each * 128;
        *(float4*)&b_tile[part][item / (32 / 4)][item % (32 / 4) * 4] = b_next[each];
      }
      __syncthreads();
      const bool ended = step + 16 >= 108 || base + step + 16 >= k;
      step = ended ? 0 : step + 16;
      base += ended ? 1 * 108 : 0;
      if (base < k) fetch();
      #pragma unroll
      for (int at = 0; at < 16; ++at) {
        const float4 left = *(const float4*)&a_tile[part][at][row_at];
        const float4 right = *(const float4*)&b_tile[part][at][column_at];
        const float rows4[4] = {left.x, left.y, left.z, left.w};
        const float columns4[4] = {right.x, right.y, right.z, right.w};
        #pragma unroll
        for (int i = 0; i < 4; ++i)
          #pragma unroll
          for (int j = 0; j < 4; ++j) chain[i][j] = chain[i][j] + rows4[i] * columns4[j];
      }
      __syncthreads();
      if (ended) {
        #pragma unroll
        for (int i = 0; i < 4; ++i)
          #pragma unroll
          for (int j = 0; j < 4; ++j) {
            total[i][j] = total[i][j] + chain[i][j];
            chain[i][j] = 0.0f;
          }
      }
    }
    const int column = column_first + column_at;
    for (int i = 0; i < 4; ++i) {
      const int pixel = row_first + row_at + i;
      if (part > 0 || pixel >= pixels || column >= n) break;
      const int x = pixel % width, y = pixel / width % height, image = pixel / width / height;
      float four[4];
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int channel = slice * n + column + j;
        const float acc = total[i][j];
        four[j] = 0.0f;
        if (column + j < n) {
          const float e0_value = e0[channel];
          const float add_ = acc + e0_value;
          const bool lt_ = add_ < 0.0f;
          const float chosen = lt_ ? 0.0f : add_;
          four[j] = chosen;
        }
      }
      *(float4*)(out + words.out_origin + slice * words.out_slice + image * words.out_image + (column / 4) * words.out_plane + y * words.out_row + x * 4) = make_float4(four[0], four[1], four[2], four[3]);
    }
    __syncthreads();
  }
}

// first for %block1_pool = border
struct K6 { unsigned out; int p0, p1, p2, p3; };
extern "C" __global__ void __launch_bounds__(256)
k6_loop2_fill(char* arena, const K6 words)
{
  float* __restrict__ out = at<float>(arena, words.out);
  const int p0 = words.p0;
  const int p1 = words.p1;
  const int p2 = words.p2;
  const int p3 = words.p3;
  const unsigned items = greater_integer<int>(p0, 0) * greater_integer<int>(p1, 0);
  for (unsigned item = blockIdx.x * 256u + threadIdx.x; item < items; item += gridDim.x * 256u) {
    const int l1 = item % (unsigned)p1;
    const unsigned item1 = item / (unsigned)p1;
    const int l0 = item1;
    out[l0 * p2 + lesser_integer<int>(3, greater_integer<int>((int)((unsigned)(l1 + 4) / (unsigned)8) - 4, -1)) * p3 + l1 + 16] = 0.0f;
  }
}

// first for %block1_pool = rlxc::max_pool2d
struct K7 { unsigned out, in1; int p0, p1, p2, p3, p4, p5, p6, p7, p8, p9; };
extern "C" __global__ void __launch_bounds__(256)
k7_loop4_max(char* arena, const K7 words)
{
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ in1 = at<const float>(arena, words.in1);
  const int p0 = words.p0;
  const int p1 = words.p1;
  const int p2 = words.p2;
  const int p3 = words.p3;
  const int p4 = words.p4;
  const int p5 = words.p5;
  const int p6 = words.p6;
  const int p7 = words.p7;
  const int p8 = words.p8;
  const int p9 = words.p9;
  const unsigned items = greater_integer<int>(p0, 0) * greater_integer<int>(p1, 0) * greater_integer<int>(p2, 0) * 4;
  for (unsigned item = blockIdx.x * 256u + threadIdx.x; item < items; item += gridDim.x * 256u) {
    const int l3 = item % (unsigned)4;
    const unsigned item3 = item / (unsigned)4;
    const int l2 = item3 % (unsigned)p2;
    const unsigned item2 = item3 / (unsigned)p2;
    const int l1 = item2 % (unsigned)p1;
    const unsigned item1 = item2 / (unsigned)p1;
    const int l0 = item1;
    const float x1 = in1[l0 * p7 + l1 * p8 + l2 * p9 + l3];
    const float x12 = in1[l0 * p7 + l1 * p8 + l2 * p9 + l3 + p6];
    const float max_ = greater(x1, x12);
    const float x13 = in1[l0 * p7 + l1 * p8 + l2 * p9 + l3 + 4];
    const float x14 = in1[l0 * p7 + l1 * p8 + l2 * p9 + l3 + p6 + 4];
    const float max_2 = greater(x13, x14);
    const float max_3 = greater(max_, max_2);
    out[l0 * p3 + l1 * p4 + l2 * 4 + l3 + p5] = max_3;
  }
}

// first for %block2_relu = rlxc::fused_conv2d_relu
struct K8 { unsigned out, a, b, e0; int slices, images, height, width, n, channels, blocks, a_origin, a_slice, a_image, a_plane, a_row, a_pixel, a_tap_row, a_tap_column, b_row, out_origin, out_slice, out_image, out_plane, out_row; };
extern "C" __global__ void __launch_bounds__(128, 1)
k8_conv2d(char* arena, const K8 words)
{
  __shared__ __align__(16) float a_tile[1][16][64 + 0];
  __shared__ __align__(16) float b_tile[1][16][32];
  __shared__ int a_at[64];
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ a = at<const float>(arena, words.a);
  const float* __restrict__ b = at<const float>(arena, words.b);
  const float* __restrict__ e0 = at<const float>(arena, words.e0);
  const int height = words.height, width = words.width, n = words.n, b_row = words.b_row;
  const int pixels = words.images * height * width, k = words.blocks * 9 * 4;
  const int row_tiles = (pixels + 64 - 1) / 64, column_tiles = (n + 32 - 1) / 32;
  const int tiles = words.slices * row_tiles * column_tiles;
  const int part = threadIdx.x / 128, lane = threadIdx.x % 128;
  const int row_at = lane % (64 / 4) * 4;
  const int column_at = lane / (64 / 4) * 4;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int row_first = tile % row_tiles * 64;
    const int column_first = tile / row_tiles % column_tiles * 32;
    const int slice = tile / row_tiles / column_tiles;
    const float* __restrict__ b_slice = b + slice * k * b_row;
    for (int row = threadIdx.x; row < 64; row += 128) {
      const int pixel = row_first + row;
      const int x = pixel % width, y = pixel / width % height, image = pixel / width / height;
      a_at[row] = pixel >= pixels ? -1
          : words.a_origin + slice * words.a_slice + image * words.a_image + y * words.a_row
              + x * words.a_pixel;
    }
    __syncthreads();
    float total[4][4], chain[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j) total[i][j] = chain[i][j] = 0.0f;
    // All parts step together; part p has the p-th chain from base on.
    int base = 0, step = 0;
    float4 a_next[2], b_next[1];
    const auto fetch = [&]() {
      const int start = base + part * 108, stop = lesser_integer<int>(start + 108, k);
      const int first = start + step;
      #pragma unroll
      for (int each = 0; each < 2; ++each) {
        const int item = lane + each * 128;
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const int from = a_at[item % 64], at_k = first + item / 64 * 4;
        const unsigned quad = (unsigned)at_k / 4u;
        const int block = quad / 9u, tap = quad % 9u;
        const int tap_row = tap / 3, tap_column = tap % 3;
        const int there = from + tap_row * words.a_tap_row + tap_column * words.a_tap_column;
        if (from >= 0 && at_k < stop) {
          four = *(const float4*)(a + there + block * words.a_plane);
        }
        a_next[each] = four;
      }
      #pragma unroll
      for (int each = 0; each < 1; ++each) {
        const int item = lane + each * 128;
        const int column = item % (32 / 4) * 4, at_k = first + item / (32 / 4);
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (at_k < stop && column_first + column < b_row)
          four = *(const float4*)(b_slice + at_k * b_row + column_first + column);
        b_next[each] = four;
      }
    };
    if (k > 0) fetch();
    while (base < k) {
      #pragma unroll
      for (int each = 0; each < 2; ++each) {
        const int item = lane + each * 128;
        const int row = item % 64, quad = item / 64;
        a_tile[part][quad * 4][row] = a_next[each].x;
        a_tile[part][quad * 4 + 1][row] = a_next[each].y;
        a_tile[part][quad * 4 + 2][row] = a_next[each].z;
        a_tile[part][quad * 4 + 3][row] = a_next[each].w;
      }
      #pragma unroll
      for (int each = 0; each < 1; ++each) {
        const int item = lane + each * 128;
        *(float4*)&b_tile[part][item / (32 / 4)][item % (32 / 4) * 4] = b_next[each];
      }
      __syncthreads();
      const bool ended = step + 16 >= 108 || base + step + 16 >= k;
      step = ended ? 0 : step + 16;
      base += ended ? 1 * 108 : 0;
      if (base < k) fetch();
      #pragma unroll
      for (int at = 0; at < 16; ++at) {
        const float4 left = *(const float4*)&a_tile[part][at][row_at];
        const float4 right = *(const float4*)&b_tile[part][at][column_at];
        const float rows4[4] = {left.x, left.y, left.z, left.w};
        const float columns4[4] = {right.x, right.y, right.z, right.w};
        #pragma unroll
        for (int i = 0; i < 4; ++i)
          #pragma unroll
          for (int j = 0; j < 4; ++j) chain[i][j] = chain[i][j] + rows4[i] * columns4[j];
      }
      __syncthreads();
      if (ended) {
        #pragma unroll
        for (int i = 0; i < 4; ++i)
          #pragma unroll
          for (int j = 0; j < 4; ++j) {
            total[i][j] = total[i][j] + chain[i][j];
            chain[i][j] = 0.0f;
          }
      }
    }
    const int column = column_first + column_at;
    for (int i = 0; i < 4; ++i) {
      const int pixel = row_first + row_at + i;
      if (part > 0 || pixel >= pixels || column >= n) break;
      const int x = pixel % width, y = pixel / width % height, image = pixel / width / height;
      float four[4];
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int channel = slice * n + column + j;
        const float acc = total[i][j];
        four[j] = 0.0f;
        if (column + j < n) {
          const float e0_value = e0[channel];
          const float add_ = acc + e0_value;
          const bool lt_ = add_ < 0.0f;
          const float chosen = lt_ ? 0.0f : add_;
          four[j] = chosen;
        }
      }
      *(float4*)(out + words.out_origin + slice * words.out_slice + image * words.out_image + (column / 4) * words.out_plane + y * words.out_row + x * 4) = make_float4(four[0], four[1], four[2], four[3]);
    }
    __syncthreads();
  }
}

// first for %block2_pool = rlxc::max_pool2d
struct K9 { unsigned out, in1; int p0, p1, p2, p3, p4; };
extern "C" __global__ void __launch_bounds__(256)
k9_loop3_max(char* arena, const K9 words)
{
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ in1 = at<const float>(arena, words.in1);
  const int p0 = words.p0;
  const int p1 = words.p1;
  const int p2 = words.p2;
  const int p3 = words.p3;
  const int p4 = words.p4;
  const unsigned items = greater_integer<int>(p0, 0) * greater_integer<int>(p1, 0) * 4;
  for (unsigned item = blockIdx.x * 256u + threadIdx.x; item < items; item += gridDim.x * 256u) {
    const int l2 = item % (unsigned)4;
    const unsigned item2 = item / (unsigned)4;
    const int l1 = item2 % (unsigned)p1;
    const unsigned item1 = item2 / (unsigned)p1;
    const int l0 = item1;
    const float x1 = in1[l0 * p4 + l1 * p2 + l2];
    const float x12 = in1[l0 * p4 + l1 * p2 + l2 + p3];
    const float max_ = greater(x1, x12);
    const float x13 = in1[l0 * p4 + l1 * p2 + l2 + 4];
    const float x14 = in1[l0 * p4 + l1 * p2 + l2 + p3 + 4];
    const float max_2 = greater(x13, x14);
    const float max_3 = greater(max_, max_2);
    out[l0 * p2 + l1 * 4 + l2] = max_3;
  }
}

// first for %block2_pool_1 = rlxc::convert_layout
struct K10 { unsigned out, in1; int p0, p1, p2, p3; };
extern "C" __global__ void __launch_bounds__(256)
k10_loop3_copy(char* arena, const K10 words)
{
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ in1 = at<const float>(arena, words.in1);
  const int p0 = words.p0;
  const int p1 = words.p1;
  const int p2 = words.p2;
  const int p3 = words.p3;
  const unsigned items = greater_integer<int>(p0, 0) * greater_integer<int>(p1, 0) * greater_integer<int>(p2, 0);
  for (unsigned item = blockIdx.x * 256u + threadIdx.x; item < items; item += gridDim.x * 256u) {
    const int l2 = item % (unsigned)p2;
    const unsigned item2 = item / (unsigned)p2;
    const int l1 = item2 % (unsigned)p1;
    const unsigned item1 = item2 / (unsigned)p1;
    const int l0 = item1;
    const float x1 = in1[l0 * p3 + l1 + l2 * 4];
    out[l0 * p3 + l1 * 4 + l2] = x1;
  }
}

// first for %logits = rlxc::fused_matmul_add
struct K11 { unsigned out, a, b, e0; int slices, m, n, k, a_slice, b_slice; };
extern "C" __global__ void __launch_bounds__(128, 1)
k11_matmul(char* arena, const K11 words)
{
  __shared__ __align__(16) float a_tile[1][16][64 + 4];
  __shared__ __align__(16) float b_tile[1][16][32];
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ a = at<const float>(arena, words.a);
  const float* __restrict__ b = at<const float>(arena, words.b);
  const float* __restrict__ e0 = at<const float>(arena, words.e0);
  const int m = words.m, n = words.n, k = words.k;
  const int row_tiles = (m + 64 - 1) / 64, column_tiles = (n + 32 - 1) / 32;
  const int tiles = words.slices * row_tiles * column_tiles;
  const int part = threadIdx.x / 128, lane = threadIdx.x % 128;
  const int column_at = lane % (32 / 4) * 4;
  const int row_at = lane / (32 / 4) * 4;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int column_first = tile % column_tiles * 32;
    const int row_first = tile / column_tiles % row_tiles * 64;
    const int slice = tile / column_tiles / row_tiles;
    const float* __restrict__ a_slice = a + slice * words.a_slice;
    const float* __restrict__ b_slice = b + slice * words.b_slice;
    float total[4][4], chain[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j) total[i][j] = chain[i][j] = 0.0f;
    // All parts step together; part p has the p-th chain from base on.
    int base = 0, step = 0;
    float4 a_next[2], b_next[1];
    const auto fetch = [&]() {
      const int start = base + part * 128, stop = lesser_integer<int>(start + 128, k);
      const int first = start + step;
      #pragma unroll
      for (int each = 0; each < 2; ++each) {
        const int item = lane + each * 128;
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const int row = row_first + item / (16 / 4), at_k = first + item % (16 / 4) * 4;
        const float* from = a_slice + row * k + at_k;
        if (row < m && at_k < stop) four = *(const float4*)from;
        a_next[each] = four;
      }
      #pragma unroll
      for (int each = 0; each < 1; ++each) {
        const int item = lane + each * 128;
        const int column = item % (32 / 4) * 4, at_k = first + item / (32 / 4);
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const float* from = b_slice + at_k * n + column_first + column;
        const int left = at_k < stop ? n - column_first - column : 0;
        if (left > 0) four.x = from[0];
        if (left > 1) four.y = from[1];
        if (left > 2) four.z = from[2];
        if (left > 3) four.w = from[3];
        b_next[each] = four;
      }
    };
    if (k > 0) fetch();
    while (base < k) {
      #pragma unroll
      for (int each = 0; each < 2; ++each) {
        const int item = lane + each * 128;
        const int row = item / (16 / 4), quad = item % (16 / 4);
        a_tile[part][quad * 4][row] = a_next[each].x;
        a_tile[part][quad * 4 + 1][row] = a_next[each].y;
        a_tile[part][quad * 4 + 2][row] = a_next[each].z;
        a_tile[part][quad * 4 + 3][row] = a_next[each].w;
      }
      #pragma unroll
      for (int each = 0; each < 1; ++each) {
        const int item = lane + each * 128;
        *(float4*)&b_tile[part][item / (32 / 4)][item % (32 / 4) * 4] = b_next[each];
      }
      __syncthreads();
      const bool ended = step + 16 >= 128 || base + step + 16 >= k;
      step = ended ? 0 : step + 16;
      base += ended ? 1 * 128 : 0;
      if (base < k) fetch();
      #pragma unroll
      for (int at = 0; at < 16; ++at) {
        const float4 left = *(const float4*)&a_tile[part][at][row_at];
        const float4 right = *(const float4*)&b_tile[part][at][column_at];
        const float rows4[4] = {left.x, left.y, left.z, left.w};
        const float columns4[4] = {right.x, right.y, right.z, right.w};
        #pragma unroll
        for (int i = 0; i < 4; ++i)
          #pragma unroll
          for (int j = 0; j < 4; ++j) chain[i][j] = chain[i][j] + rows4[i] * columns4[j];
      }
      __syncthreads();
      if (ended) {
        #pragma unroll
        for (int i = 0; i < 4; ++i)
          #pragma unroll
          for (int j = 0; j < 4; ++j) {
            total[i][j] = total[i][j] + chain[i][j];
            chain[i][j] = 0.0f;
          }
      }
    }
    for (int i = 0; i < 4; ++i) {
      const int row = row_first + row_at + i;
      if (part > 0 || row >= m) break;
      for (int j = 0; j < 4; ++j) {
        const int column = column_first + column_at + j;
        if (column >= n) break;
        const int place = (slice * m + row) * n + column;
        const float acc = total[i][j];
        const float e0_value = e0[column];
        const float add_ = acc + e0_value;
        out[place] = add_;
      }
    }
  }
}

// first for %probabilities = rlxc::fused_rows_div
struct K12 { unsigned out, in1; int p0, p1, p2; };
extern "C" __global__ void __launch_bounds__(256)
k12_loop2_max_sub_exp_sum(char* arena, const K12 words)
{
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ in1 = at<const float>(arena, words.in1);
  const int p0 = words.p0;
  const int p1 = words.p1;
  const int p2 = words.p2;
  const unsigned items = greater_integer<int>(p0, 0) * greater_integer<int>(p1, 0);
  for (unsigned item = blockIdx.x * 256u + threadIdx.x; item < items; item += gridDim.x * 256u) {
    const int l1 = item % (unsigned)p1;
    const unsigned item1 = item / (unsigned)p1;
    const int l0 = item1;
    const float x1 = in1[l0 * p2 + l1];
    const float x12 = in1[l0 * p2];
    const float x13 = in1[l0 * p2 + 4];
    const float max_ = greater(x12, x13);
    const float x14 = in1[l0 * p2 + 8];
    const float max_2 = greater(max_, x14);
    const float x15 = in1[l0 * p2 + 2];
    const float x16 = in1[l0 * p2 + 6];
    const float max_3 = greater(x15, x16);
    const float max_4 = greater(max_2, max_3);
    const float x17 = in1[l0 * p2 + 1];
    const float x18 = in1[l0 * p2 + 5];
    const float max_5 = greater(x17, x18);
    const float x19 = in1[l0 * p2 + 9];
    const float max_6 = greater(max_5, x19);
    const float x110 = in1[l0 * p2 + 3];
    const float x111 = in1[l0 * p2 + 7];
    const float max_7 = greater(x110, x111);
    const float max_8 = greater(max_6, max_7);
    const float max_9 = greater(max_4, max_8);
    const float sub_ = x1 - max_9;
    const float exp_ = exp_f32(sub_);
    const float sub_2 = x12 - max_9;
    const float exp_2 = exp_f32(sub_2);
    const float add_ = 0.0f + exp_2;
    const float sub_3 = x13 - max_9;
    const float exp_3 = exp_f32(sub_3);
    const float add_2 = add_ + exp_3;
    const float sub_4 = x14 - max_9;
    const float exp_4 = exp_f32(sub_4);
    const float add_3 = add_2 + exp_4;
    const float sub_5 = x15 - max_9;
    const float exp_5 = exp_f32(sub_5);
    const float add_4 = 0.0f + exp_5;
    const float sub_6 = x16 - max_9;
    const float exp_6 = exp_f32(sub_6);
    const float add_5 = add_4 + exp_6;
    const float add_6 = add_3 + add_5;
    const float sub_7 = x17 - max_9;
    const float exp_7 = exp_f32(sub_7);
    const float add_7 = 0.0f + exp_7;
    const float sub_8 = x18 - max_9;
    const float exp_8 = exp_f32(sub_8);
    const float add_8 = add_7 + exp_8;
    const float sub_9 = x19 - max_9;
    const float exp_9 = exp_f32(sub_9);
    const float add_9 = add_8 + exp_9;
    const float sub_10 = x110 - max_9;
    const float exp_10 = exp_f32(sub_10);
    const float add_10 = 0.0f + exp_10;
    const float sub_11 = x111 - max_9;
    const float exp_11 = exp_f32(sub_11);
    const float add_11 = add_10 + exp_11;
    const float add_12 = add_9 + add_11;
    const float add_13 = add_6 + add_12;
    const float div_ = exp_ / add_13;
    out[l0 * p2 + l1] = div_;
  }
}
