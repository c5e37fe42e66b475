struct K0 { unsigned out, q, k, v, scratch; int slices, queries, keys, bias_repeat, bias_count, bias_slice, bias_row, splits, heads; };
extern "C" __global__ void __launch_bounds__(128, 3)
k0_attention(char* arena, const K0 words)
{
  __shared__ __align__(16) float q_tile[32 * 64];
  __shared__ __align__(16) float k_tile[2048];
  __shared__ __align__(16) float v_tile[64 * 32];
  __shared__ __align__(16) float w_tile[4096];
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ q = at<const float>(arena, words.q);
  const float* __restrict__ k = at<const float>(arena, words.k);
  const float* __restrict__ v = at<const float>(arena, words.v);
  const int queries = words.queries, keys = words.keys, heads = words.heads;
  const bool whole_rows = keys % 4 == 0;
  const int row_tiles = (queries + 64 - 1) / 64, tile_count = words.slices * row_tiles;
  const int lane = threadIdx.x % 8, rows_of = threadIdx.x / 8;
  for (int tile = blockIdx.x; tile < tile_count; tile += gridDim.x) {
    const int row_first = tile % row_tiles * 64, slice = tile / row_tiles;
    // Rows of ``heads`` slices follow each other.
    const int head = slice % heads, before = slice - head;
    const float* __restrict__ q_slice = q + ((long long)before * queries + head) * 32;
    const float* __restrict__ k_slice = k + (long long)slice * keys * 32;
    const float* __restrict__ v_slice = v + ((long long)before * keys + head) * 32;
    float* __restrict__ out_slice = out + ((long long)before * queries + head) * 32;
    const auto keys_at = [&](int first, int each) {
      const int item = threadIdx.x + each * 128;
      const int column = first + item % (64 / 4) * 4, row = item / (64 / 4);
      const float* from = k_slice + (long long)row * keys + column;
      return load_four(from, row < 32 ? keys - column : 0, whole_rows);
    };
    const auto values_at = [&](int first, int each) {
      const int item = threadIdx.x + each * 128;
      const int column = item % (32 / 4) * 4, row = first + item / (32 / 4);
      return load_four(v_slice + (long long)row * heads * 32 + column, keys - row, true);
    };
    float4 k_next[4], v_next[4];
    const auto fetch_keys = [&](int first) {
      #pragma unroll
      for (int each = 0; each < 4; ++each) k_next[each] = keys_at(first, each);
    };
    const auto fetch_values = [&](int first) {
      #pragma unroll
      for (int each = 0; each < 4; ++each) v_next[each] = values_at(first, each);
    };
    fetch_keys(0);
    __syncthreads();
    for (int item = threadIdx.x; item < 64 * (32 / 4); item += 128) {
      const int row = item % 64, at = item / 64 * 4;
      float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (row_first + row < queries)
        four = *(const float4*)(q_slice + (long long)(row_first + row) * heads * 32 + at);
      q_tile[at * 64 + row] = four.x * (0.5f * 1.44269504f);
      q_tile[(at + 1) * 64 + row] = four.y * (0.5f * 1.44269504f);
      q_tile[(at + 2) * 64 + row] = four.z * (0.5f * 1.44269504f);
      q_tile[(at + 3) * 64 + row] = four.w * (0.5f * 1.44269504f);
    }
    float most[4], sum[4], total[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      most[i] = -infinity_f32();
      sum[i] = 0.0f;
      #pragma unroll
      for (int j = 0; j < 4; ++j) total[i][j] = 0.0f;
    }
    const int stop = lesser_integer<int>(keys, row_first + 64);
    for (int first = 0; first < stop; first += 64) {
      __syncthreads();
      #pragma unroll
      for (int each = 0; each < 4; ++each) {
        const int item = threadIdx.x + each * 128;
        if (item < 32 * (64 / 4)) *(float4*)&k_tile[item * 4] = k_next[each];
      }
      __syncthreads();
      fetch_values(first);
      float score[4][8];
      #pragma unroll
      for (int i = 0; i < 4; ++i)
        #pragma unroll
        for (int j = 0; j < 8; ++j) score[i][j] = 0.0f;
      #pragma unroll 4
      for (int step = 0; step < 32; ++step) {
        __align__(16) float left[4], right[8];
        #pragma unroll
        for (int i = 0; i < 4; i += 4)
          *(float4*)&left[i] = *(const float4*)&q_tile[step * 64 + rows_of * 4 + i];
        #pragma unroll
        for (int j = 0; j < 8; j += 4)
          *(float4*)&right[j] = *(const float4*)&k_tile[step * 64 + j * 8 + lane * 4];
        #pragma unroll
        for (int i = 0; i < 4; ++i)
          #pragma unroll
          for (int j = 0; j < 8; ++j) score[i][j] = fmaf(left[i], right[j], score[i][j]);
      }
      if (first + 64 > keys || first + 64 > row_first) {
        #pragma unroll
        for (int i = 0; i < 4; ++i)
          #pragma unroll
          for (int j = 0; j < 8; ++j) {
            const int column = first + j / 4 * 32 + lane * 4 + j % 4;
            const int row = row_first + rows_of * 4 + i;
            if ((column >= keys || column > row)) score[i][j] = -infinity_f32();
          }
      }
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        float largest = most[i];
        #pragma unroll
        for (int j = 0; j < 8; ++j) largest = fmaxf(largest, score[i][j]);
        largest = lanes_most(largest, 8);
        // A row without any key yet: what is below is 2 to -infinity.
        const float base = largest == -infinity_f32() ? 0.0f : largest;
        const float shrink = power_of_two(most[i] - base);
        most[i] = largest;
        float added = 0.0f;
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          score[i][j] = power_of_two(score[i][j] - base);
          added = added + score[i][j];
        }
        sum[i] = fmaf(sum[i], shrink, added);
        #pragma unroll
        for (int j = 0; j < 4; ++j) total[i][j] = total[i][j] * shrink;
      }
      // Rows by fours; which four lies where depends on the key, so that threads meet no bank
      // twice.
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int i = 0; i < 4; i += 4) {
          const int four = (rows_of * 4 + i) / 4 ^ lane;
          *(float4*)&w_tile[(j / 4 * 32 + lane * 4 + j % 4) * 64 + four * 4] = make_float4(
              score[i][j], score[i + 1][j], score[i + 2][j], score[i + 3][j]);
        }
      #pragma unroll
      for (int each = 0; each < 4; ++each) {
        const int item = threadIdx.x + each * 128;
        if (item < 64 * (32 / 4)) *(float4*)&v_tile[item * 4] = v_next[each];
      }
      __syncthreads();
      fetch_keys(first + 64);
      #pragma unroll 2
      for (int of = 0; of < 64 / 4; ++of)
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int key = of * 4 + j;
          __align__(16) float left[4], right[4];
          #pragma unroll
          for (int i = 0; i < 4; i += 4) {
            const int four = (rows_of * 4 + i) / 4 ^ of % 8;
            *(float4*)&left[i] = *(const float4*)&w_tile[key * 64 + four * 4];
          }
          #pragma unroll
          for (int c = 0; c < 4; c += 4)
            *(float4*)&right[c] = *(const float4*)&v_tile[
                key * 32 + c * 8 + lane * 4];
          #pragma unroll
          for (int i = 0; i < 4; ++i)
            #pragma unroll
            for (int c = 0; c < 4; ++c)
              total[i][c] = fmaf(left[i], right[c], total[i][c]);
        }
    }
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float whole = lanes_sum(sum[i], 8), inverse = 1.0f / whole;
      const int row = row_first + rows_of * 4 + i;
      if (row >= queries) continue;
      float* into = out_slice + (long long)row * heads * 32 + lane * 4;
      #pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float value = total[i][c];
        into[c / 4 * 4 * 8 + c % 4] = value * inverse;
      }
    }
  }
}

struct K1 { unsigned out, q, k, v, scratch; int slices, queries, keys, bias_repeat, bias_count, bias_slice, bias_row, splits, heads; };
extern "C" __global__ void __launch_bounds__(256, 2)
k1_few_attention(char* arena, const K1 words)
{
  __shared__ __align__(16) float q_rows[32 * 4];
  __shared__ __align__(16) float weights[256 * 4];
  __shared__ __align__(16) float warp_most[8 * 4];
  __shared__ __align__(16) float parts[32 * 4 * 32];
  __shared__ float wholes[8 * 4];
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ q = at<const float>(arena, words.q);
  const float* __restrict__ k = at<const float>(arena, words.k);
  const float* __restrict__ v = at<const float>(arena, words.v);
  float* __restrict__ scratch = at<float>(arena, words.scratch);
  const int queries = words.queries, keys = words.keys, splits = words.splits;
  const int heads = words.heads;
  const int row_tiles = (queries + 4 - 1) / 4;
  const int tile_count = words.slices * row_tiles * splits;
  // Keys of a part: as many steps as all others, the last parts maybe fewer.
  const int span = ((keys + 256 - 1) / 256 + splits - 1) / splits * 256;
  const int warp = threadIdx.x / 32, quad = threadIdx.x % (32 / 4);
  const int group = threadIdx.x / (32 / 4);
  for (int tile = blockIdx.x; tile < tile_count; tile += gridDim.x) {
    const int row_first = tile / splits % row_tiles * 4, slice = tile / splits / row_tiles;
    // Rows of ``heads`` slices follow each other.
    const int head = slice % heads, before = slice - head;
    const float* __restrict__ q_slice = q + ((long long)before * queries + head) * 32;
    const float* __restrict__ k_slice = k + (long long)slice * keys * 32;
    const float* __restrict__ v_slice = v + ((long long)before * keys + head) * 32;
    float* __restrict__ out_slice = out + ((long long)before * queries + head) * 32;
    __syncthreads();
    for (int item = threadIdx.x; item < 32 * 4; item += 256) {
      const int row = row_first + item % 4, at = item / 4;
      const float value = row < queries ? q_slice[(long long)row * heads * 32 + at] : 0.0f;
      q_rows[item] = value * (0.5f * 1.44269504f);
    }
    __syncthreads();
    float most[4], sum[4], total[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      most[i] = -infinity_f32();
      sum[i] = 0.0f;
      #pragma unroll
      for (int c = 0; c < 4; ++c) total[i][c] = 0.0f;
    }
    const int begin = tile % splits * span;
    const int stop = lesser_integer<int>(lesser_integer<int>(keys, row_first + 4), begin + span);
    for (int first = begin; first < stop; first += 256) {
      const int column = first + threadIdx.x;
      float score[4];
      #pragma unroll
      for (int i = 0; i < 4; ++i) score[i] = 0.0f;
      if (column < stop) {
        const float* from = k_slice + column;
        #pragma unroll 16
        for (int step = 0; step < 32; ++step) {
          const float4 left = *(const float4*)&q_rows[step * 4];
          const float right = from[(long long)step * keys];
          score[0] = fmaf(left.x, right, score[0]);
          score[1] = fmaf(left.y, right, score[1]);
          score[2] = fmaf(left.z, right, score[2]);
          score[3] = fmaf(left.w, right, score[3]);
        }
      }
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = row_first + i;
        float x = score[i];
        score[i] = (column >= keys || column > row) ? -infinity_f32() : x;
        const float largest = lanes_most(score[i], 32);
        if (threadIdx.x % 32 == 0) warp_most[warp * 4 + i] = largest;
      }
      __syncthreads();
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        float largest = most[i];
        #pragma unroll
        for (int other = 0; other < 8; ++other)
          largest = fmaxf(largest, warp_most[other * 4 + i]);
        // A row without any key yet: what is below is 2 to -infinity.
        const float base = largest == -infinity_f32() ? 0.0f : largest;
        const float shrink = power_of_two(most[i] - base);
        most[i] = largest;
        const float weight = power_of_two(score[i] - base);
        sum[i] = fmaf(sum[i], shrink, weight);
        weights[threadIdx.x * 4 + i] = weight;
        #pragma unroll
        for (int c = 0; c < 4; ++c) total[i][c] = total[i][c] * shrink;
      }
      __syncthreads();
      const int count = lesser_integer<int>(256, stop - first);
      if (group < 32) {
        const float* from = v_slice + (long long)first * heads * 32 + quad * 4;
        #pragma unroll 4
        for (int at = group; at < count; at += 32) {
          const float4 left = *(const float4*)&weights[at * 4];
          const float4 right = *(const float4*)(from + (long long)at * heads * 32);
          const float rows_of[4] = {left.x, left.y, left.z, left.w};
          #pragma unroll
          for (int i = 0; i < 4; ++i) {
            total[i][0] = fmaf(rows_of[i], right.x, total[i][0]);
            total[i][1] = fmaf(rows_of[i], right.y, total[i][1]);
            total[i][2] = fmaf(rows_of[i], right.z, total[i][2]);
            total[i][3] = fmaf(rows_of[i], right.w, total[i][3]);
          }
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float whole = lanes_sum(sum[i], 32);
      if (threadIdx.x % 32 == 0) wholes[warp * 4 + i] = whole;
      if (group < 32)
        *(float4*)&parts[(group * 4 + i) * 32 + quad * 4]
            = make_float4(total[i][0], total[i][1], total[i][2], total[i][3]);
    }
    __syncthreads();
    float* const part = scratch + (long long)tile * 4 * (32 + 2);
    #pragma unroll
    for (int i = 0; i < 4; ++i)
      if (splits > 1 && threadIdx.x == i) part[i] = most[i];
    for (int item = threadIdx.x; item < 4 * 32; item += 256) {
      const int row = item / 32;
      float value = 0.0f, whole = 0.0f;
      #pragma unroll 8
      for (int other = 0; other < 32; ++other)
        value = value + parts[other * 4 * 32 + item];
      #pragma unroll
      for (int other = 0; other < 8; ++other) whole = whole + wholes[other * 4 + row];
      if (splits > 1) {
        part[2 * 4 + item] = value;
        if (item % 32 == 0) part[4 + row] = whole;
      } else if (row_first + row < queries) {
        const float inverse = 1.0f / whole;
        out_slice[(long long)(row_first + row) * heads * 32 + item % 32] = value * inverse;
      }
    }
  }
}

struct K2 { unsigned out, q, k, v, scratch; int slices, queries, keys, bias_repeat, bias_count, bias_slice, bias_row, splits, heads; };
extern "C" __global__ void __launch_bounds__(256, 2)
k2_join_attention(char* arena, const K2 words)
{
  float* __restrict__ out = at<float>(arena, words.out);
  float* __restrict__ scratch = at<float>(arena, words.scratch);
  const int queries = words.queries, splits = words.splits, heads = words.heads;
  const int row_tiles = (queries + 4 - 1) / 4, count = words.slices * queries * 32;
  for (int place = blockIdx.x * 256 + threadIdx.x; place < count;
       place += gridDim.x * 256) {
    const int column = place % 32, row = place / 32 % queries;
    const int slice = place / 32 / queries, head = slice % heads;
    const int tile = slice * row_tiles + row / 4;
    const float* part = scratch + (long long)tile * splits * 4 * (32 + 2);
    float largest = -infinity_f32();
    for (int at = 0; at < splits; ++at)
      largest = fmaxf(largest, part[at * 4 * (32 + 2) + row % 4]);
    const float base = largest == -infinity_f32() ? 0.0f : largest;
    float value = 0.0f, whole = 0.0f;
    for (int at = 0; at < splits; ++at, part += 4 * (32 + 2)) {
      const float shrink = power_of_two(part[row % 4] - base);
      whole = fmaf(part[4 + row % 4], shrink, whole);
      value = fmaf(part[2 * 4 + row % 4 * 32 + column], shrink, value);
    }
    const float inverse = 1.0f / whole;
    out[((long long)(slice - head) * queries + head + (long long)row * heads) * 32 + column]
        = value * inverse;
  }
}

struct K3 { unsigned out, q, k, v, scratch; int slices, queries, keys, bias_repeat, bias_count, bias_slice, bias_row, splits, heads; };
extern "C" __global__ void __launch_bounds__(128, 3)
k3_mma_attention(char* arena, const K3 words)
{
  __shared__ __align__(16) unsigned k_tile[1152];
  __shared__ __align__(16) unsigned v_tile[1280];
  __shared__ float joined[20][64];
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ q = at<const float>(arena, words.q);
  const float* __restrict__ k = at<const float>(arena, words.k);
  const float* __restrict__ v = at<const float>(arena, words.v);
  const int queries = words.queries, keys = words.keys, heads = words.heads;
  const bool whole_rows = keys % 4 == 0;
  const int row_tiles = (queries + 32 - 1) / 32, tile_count = words.slices * row_tiles;
  const int group = threadIdx.x % 32 / 4, member = threadIdx.x % 4;
  const int part = threadIdx.x / 64, warp_row = threadIdx.x / 32 % 2 * 16;
  for (int tile = blockIdx.x; tile < tile_count; tile += gridDim.x) {
    const int row_first = tile % row_tiles * 32, slice = tile / row_tiles;
    // Rows of ``heads`` slices follow each other.
    const int head = slice % heads, before = slice - head;
    const float* __restrict__ q_slice = q + ((long long)before * queries + head) * 32;
    const float* __restrict__ k_slice = k + (long long)slice * keys * 32;
    const float* __restrict__ v_slice = v + ((long long)before * keys + head) * 32;
    float* __restrict__ out_slice = out + ((long long)before * queries + head) * 32;
    float4 k_next[2][2], v_next[2][2];
    const auto fetch = [&](int first) {
      #pragma unroll
      for (int each = 0; each < 2; ++each) {
        const int item = threadIdx.x + each * 128;
        const int column = first + item % (64 / 4) * 4, pair = item / (64 / 4);
        const int left = pair < 32 / 2 ? keys - column : 0;
        const float* from = k_slice + (long long)pair * 2 * keys + column;
        k_next[each][0] = load_four(from, left, whole_rows);
        k_next[each][1] = load_four(from + keys, left, whole_rows);
      }
      #pragma unroll
      for (int each = 0; each < 2; ++each) {
        const int item = threadIdx.x + each * 128;
        const int column = item % (32 / 4) * 4, row = first + item / (32 / 4) * 2;
        const float* from = v_slice + (long long)row * heads * 32 + column;
        v_next[each][0] = load_four(from, keys - row, true);
        v_next[each][1] = load_four(from + heads * 32, keys - row - 1, true);
      }
    };
    unsigned query[1][2][4];
    float most[1][2], sum[1][2], total[1][4][4];
    #pragma unroll
    for (int m = 0; m < 1; ++m) {
      #pragma unroll
      for (int step = 0; step < 2; ++step)
        #pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int row = row_first + warp_row + m * 16 + group + c % 2 * 8;
          const int word = step * 8 + member + c / 2 * 4;
          query[m][step][c] = row < queries ? as_halves(q_slice[row * heads * 32 + 2 * word],
              q_slice[row * heads * 32 + 2 * word + 1]) : 0u;
        }
      most[m][0] = most[m][1] = -infinity_f32();
      sum[m][0] = sum[m][1] = 0.0f;
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int c = 0; c < 4; ++c) total[m][j][c] = 0.0f;
    }
    const int stop = lesser_integer<int>(keys, row_first + 32);
    fetch(0);
    for (int first = 0; first < stop; first += 64) {
      __syncthreads();
      #pragma unroll
      for (int each = 0; each < 2; ++each) {
        const int item = threadIdx.x + each * 128;
        const int column = item % (64 / 4) * 4, pair = item / (64 / 4);
        const float4 even = k_next[each][0], odd = k_next[each][1];
        if (pair >= 32 / 2) break;
        *(uint4*)&k_tile[pair * 72 + column] = make_uint4(
            as_halves(even.x, odd.x), as_halves(even.y, odd.y),
            as_halves(even.z, odd.z), as_halves(even.w, odd.w));
      }
      #pragma unroll
      for (int each = 0; each < 2; ++each) {
        const int item = threadIdx.x + each * 128;
        const int column = item % (32 / 4) * 4, pair = item / (32 / 4);
        const float4 even = v_next[each][0], odd = v_next[each][1];
        if (pair >= 64 / 2) break;
        *(uint4*)&v_tile[pair * 40 + column] = make_uint4(
            as_halves(even.x, odd.x), as_halves(even.y, odd.y),
            as_halves(even.z, odd.z), as_halves(even.w, odd.w));
      }
      __syncthreads();
      fetch(first + 64);
      float score[1][4][4];
      #pragma unroll
      for (int m = 0; m < 1; ++m)
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int c = 0; c < 4; ++c) score[m][j][c] = 0.0f;
      #pragma unroll
      for (int step = 0; step < 2; ++step)
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          const unsigned* from
              = k_tile + (step * 8 + member) * 72 + part * 32 + j * 8 + group;
          const unsigned b[2] = {from[0], from[4 * 72]};
          #pragma unroll
          for (int m = 0; m < 1; ++m) multiply_fp16(score[m][j], query[m][step], b);
        }
      if (first + 64 > keys || first + 64 > row_first) {
        #pragma unroll
        for (int m = 0; m < 1; ++m)
          #pragma unroll
          for (int j = 0; j < 4; ++j)
            #pragma unroll
            for (int c = 0; c < 4; ++c) {
              const int column = first + part * 32 + j * 8 + member * 2 + c % 2;
              const int row = row_first + warp_row + m * 16 + group + c / 2 * 8;
              if ((column >= keys || column > row)) score[m][j][c] = -infinity_f32();
            }
      }
      // Weights are powers of two of the distance from a base. It follows the largest score of a
      // row when that is past it by 8.0f in the exponent, and with it the sums.
      float largest[1][2];
      bool grows = false;
      #pragma unroll
      for (int m = 0; m < 1; ++m)
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
          float top = most[m][half];
          #pragma unroll
          for (int j = 0; j < 4; ++j)
            top = fmaxf(top, fmaxf(score[m][j][half * 2], score[m][j][half * 2 + 1]));
          largest[m][half] = row_most(top);
          grows = grows || largest[m][half] * (0.5f * 1.44269504f) > fmaf(most[m][half], (0.5f * 1.44269504f), 8.0f);
        }
      if (warp_any(grows)) {
        #pragma unroll
        for (int m = 0; m < 1; ++m)
          #pragma unroll
          for (int half = 0; half < 2; ++half) {
            // A row without any key yet: what is below is 2 to -infinity.
            const float top = largest[m][half];
            const float base = top == -infinity_f32() ? 0.0f : top * (0.5f * 1.44269504f);
            const float shrink = power_of_two(fmaf(most[m][half], (0.5f * 1.44269504f), -base));
            most[m][half] = top;
            sum[m][half] = sum[m][half] * shrink;
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
              total[m][j][half * 2] = total[m][j][half * 2] * shrink;
              total[m][j][half * 2 + 1] = total[m][j][half * 2 + 1] * shrink;
            }
          }
      }
      #pragma unroll
      for (int m = 0; m < 1; ++m)
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
          float (*of)[4] = score[m];
          const float base = most[m][half] == -infinity_f32() ? 0.0f : most[m][half] * (0.5f * 1.44269504f);
          #pragma unroll
          for (int j = 0; j < 4; ++j)
            #pragma unroll
            for (int c = half * 2; c < half * 2 + 2; ++c) {
              of[j][c] = power_of_two(fmaf(of[j][c], (0.5f * 1.44269504f), -base));
              sum[m][half] = sum[m][half] + of[j][c];
            }
        }
      #pragma unroll
      for (int step = 0; step < 2; ++step) {
        __align__(16) unsigned a[1][4];
        #pragma unroll
        for (int m = 0; m < 1; ++m) {
          const float (*of)[4] = score[m];
          *(uint4*)a[m] = make_uint4(
              as_halves(of[2 * step][0], of[2 * step][1]),
              as_halves(of[2 * step][2], of[2 * step][3]),
              as_halves(of[2 * step + 1][0], of[2 * step + 1][1]),
              as_halves(of[2 * step + 1][2], of[2 * step + 1][3]));
        }
        const unsigned* from
            = v_tile + ((part * 2 + step) * 8 + member) * 40 + group;
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          const unsigned b[2] = {from[j * 8], from[j * 8 + 4 * 40]};
          #pragma unroll
          for (int m = 0; m < 1; ++m) multiply_fp16(total[m][j], a[m], b);
        }
      }
    }
    // What other warps have of the same rows, from other keys.
    const int lane = threadIdx.x % 64;
    #pragma unroll
    for (int m = 0; m < 1; ++m)
      #pragma unroll
      for (int half = 0; half < 2; ++half) {
        float (*const theirs)[64]
            = joined + (part > 0 ? part - 1 : 0) * 20 + (m * 2 + half) * 10;
        if (part > 0) {
          theirs[0][lane] = most[m][half];
          theirs[1][lane] = sum[m][half];
          #pragma unroll
          for (int j = 0; j < 4; ++j) {
            theirs[j * 2 + 2][lane] = total[m][j][half * 2];
            theirs[j * 2 + 3][lane] = total[m][j][half * 2 + 1];
          }
        }
      }
    __syncthreads();
    #pragma unroll 1
    for (int other = 1; part == 0 && other < 2; ++other)
      #pragma unroll
      for (int m = 0; m < 1; ++m)
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
          float (*const theirs)[64]
              = joined + (other - 1) * 20 + (m * 2 + half) * 10;
          const float largest = fmaxf(most[m][half], theirs[0][lane]);
          const float base = largest == -infinity_f32() ? 0.0f : largest * (0.5f * 1.44269504f);
          const float ours = power_of_two(fmaf(most[m][half], (0.5f * 1.44269504f), -base));
          const float other_share = power_of_two(fmaf(theirs[0][lane], (0.5f * 1.44269504f), -base));
          most[m][half] = largest;
          sum[m][half] = fmaf(sum[m][half], ours, theirs[1][lane] * other_share);
          #pragma unroll
          for (int j = 0; j < 4; ++j)
            #pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
              float& mine = total[m][j][half * 2 + odd];
              mine = fmaf(mine, ours, theirs[j * 2 + 2 + odd][lane] * other_share);
            }
        }
    #pragma unroll
    for (int m = 0; m < 1; ++m)
      #pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float whole = row_sum(sum[m][half]), inverse = 1.0f / whole;
        const int row = row_first + warp_row + m * 16 + group + half * 8;
        if (row >= queries || part > 0) continue;
        float* into = out_slice + (long long)row * heads * 32 + member * 2;
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int odd = 0; odd < 2; ++odd) {
            const float value = total[m][j][half * 2 + odd];
            into[j * 8 + odd] = value * inverse;
          }
      }
  }
}

struct K4 { unsigned out, q, k, v, scratch; int slices, queries, keys, bias_repeat, bias_count, bias_slice, bias_row, splits, heads; };
extern "C" __global__ void __launch_bounds__(256, 2)
k4_mma_pack_attention(char* arena, const K4 words)
{
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ k = at<const float>(arena, words.k);
  const float* __restrict__ v = at<const float>(arena, words.v);
  unsigned short* __restrict__ halves = at<unsigned short>(arena, words.scratch);
  const int keys = words.keys, heads = words.heads;
  const int padded = (keys + 64 - 1) / 64 * 64;
  const bool whole_rows = keys % 4 == 0;
  const int rows_of_keys = 32 * (padded / 8), items = rows_of_keys + padded * (32 / 8);
  const long long count = (long long)words.slices * items;
  for (long long place = (long long)blockIdx.x * 256 + threadIdx.x; place < count;
       place += (long long)gridDim.x * 256) {
    const int slice = place / items, item = place % items;
    float4 low, high;
    if (item < rows_of_keys) {
      const int row = item / (padded / 8), column = item % (padded / 8) * 8;
      const float* from = k + ((long long)slice * 32 + row) * keys + column;
      low = load_four(from, keys - column, whole_rows);
      high = load_four(from + 4, keys - column - 4, whole_rows);
    } else {
      const int row = (item - rows_of_keys) / (32 / 8);
      const int column = (item - rows_of_keys) % (32 / 8) * 8;
      const int head = slice % heads;
      const long long at_row = (long long)(slice - head) * keys + head + (long long)row * heads;
      const float* from = v + at_row * 32 + column;
      low = load_four(from, keys - row, true);
      high = load_four(from + 4, keys - row, true);
    }
    *(uint4*)(halves + place * 8) = make_uint4(
        as_halves(low.x, low.y), as_halves(low.z, low.w),
        as_halves(high.x, high.y), as_halves(high.z, high.w));
  }
}

struct K5 { unsigned out, q, k, v, scratch; int slices, queries, keys, bias_repeat, bias_count, bias_slice, bias_row, splits, heads; };
extern "C" __global__ void __launch_bounds__(128, 4)
k5_mma_packed_attention(char* arena, const K5 words)
{
  __shared__ __align__(16) unsigned short tiles[2][32 * 72 + 64 * 40];
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ q = at<const float>(arena, words.q);
  const float* __restrict__ k = at<const float>(arena, words.k);
  const float* __restrict__ v = at<const float>(arena, words.v);
  unsigned short* __restrict__ halves = at<unsigned short>(arena, words.scratch);
  const int queries = words.queries, keys = words.keys, heads = words.heads;
  const int row_tiles = (queries + 64 - 1) / 64, tile_count = words.slices * row_tiles;
  const int group = threadIdx.x % 32 / 4, member = threadIdx.x % 4;
  const int part = 0, warp_row = threadIdx.x / 32 % 4 * 16;
  const int padded = (keys + 64 - 1) / 64 * 64;
  // Of a fragment: rows 0 to 7 and 8 to 15 of eight columns, then of the next eight.
  const int turned_row = threadIdx.x % 16, turned_column = threadIdx.x % 32 / 16 * 8;
  for (int tile = blockIdx.x; tile < tile_count; tile += gridDim.x) {
    const int row_first = tile % row_tiles * 64, slice = tile / row_tiles;
    // Rows of ``heads`` slices follow each other.
    const int head = slice % heads, before = slice - head;
    const float* __restrict__ q_slice = q + ((long long)before * queries + head) * 32;
    const float* __restrict__ k_slice = k + (long long)slice * keys * 32;
    const float* __restrict__ v_slice = v + ((long long)before * keys + head) * 32;
    float* __restrict__ out_slice = out + ((long long)before * queries + head) * 32;
    const unsigned short* const k_halves = halves + (long long)slice * padded * (32 + 32);
    const unsigned short* const v_halves = k_halves + (long long)padded * 32;
    const auto copy = [&](int first) {
      unsigned short* const k_tile = tiles[first / 64 % 2];
      unsigned short* const v_tile = k_tile + 32 * 72;
      #pragma unroll 4
      for (int item = threadIdx.x; item < 32 * (64 / 8); item += 128) {
        const int row = item / (64 / 8), column = item % (64 / 8) * 8;
        copy_ahead(k_tile + row * 72 + column,
            k_halves + (long long)row * padded + first + column);
      }
      #pragma unroll 4
      for (int item = threadIdx.x; item < 64 * (32 / 8); item += 128) {
        const int row = item / (32 / 8), column = item % (32 / 8) * 8;
        copy_ahead(v_tile + row * 40 + column,
            v_halves + (long long)(first + row) * 32 + column);
      }
    };
    const int stop = lesser_integer<int>(keys, row_first + 64);
    __syncthreads();
    if (stop > 0) copy(0);
    unsigned query[1][2][4];
    float most[1][2], sum[1][2], total[1][4][4];
    #pragma unroll
    for (int m = 0; m < 1; ++m) {
      #pragma unroll
      for (int step = 0; step < 2; ++step)
        #pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int row = row_first + warp_row + m * 16 + group + c % 2 * 8;
          const int word = step * 8 + member + c / 2 * 4;
          query[m][step][c] = row < queries ? as_halves(q_slice[row * heads * 32 + 2 * word],
              q_slice[row * heads * 32 + 2 * word + 1]) : 0u;
        }
      most[m][0] = most[m][1] = -infinity_f32();
      sum[m][0] = sum[m][1] = 0.0f;
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int c = 0; c < 4; ++c) total[m][j][c] = 0.0f;
    }
    for (int first = 0; first < stop; first += 64) {
      copies_done();
      __syncthreads();
      if (first + 64 < stop) copy(first + 64);
      const unsigned short* const k_tile = tiles[first / 64 % 2];
      const unsigned short* const v_tile = k_tile + 32 * 72;
      float score[1][8][4];
      #pragma unroll
      for (int m = 0; m < 1; ++m)
        #pragma unroll
        for (int j = 0; j < 8; ++j)
          #pragma unroll
          for (int c = 0; c < 4; ++c) score[m][j][c] = 0.0f;
      #pragma unroll
      for (int step = 0; step < 2; ++step)
        #pragma unroll
        for (int j = 0; j < 8; j += 2) {
          __align__(16) unsigned b[4];
          load_turned(b, k_tile + (step * 16 + turned_row) * 72 + part * 64 + j * 8
              + turned_column);
          #pragma unroll
          for (int m = 0; m < 1; ++m) {
            multiply_fp16(score[m][j], query[m][step], b);
            multiply_fp16(score[m][j + 1], query[m][step], b + 2);
          }
        }
      if (first + 64 > keys || first + 64 > row_first) {
        #pragma unroll
        for (int m = 0; m < 1; ++m)
          #pragma unroll
          for (int j = 0; j < 8; ++j)
            #pragma unroll
            for (int c = 0; c < 4; ++c) {
              const int column = first + part * 64 + j * 8 + member * 2 + c % 2;
              const int row = row_first + warp_row + m * 16 + group + c / 2 * 8;
              if ((column >= keys || column > row)) score[m][j][c] = -infinity_f32();
            }
      }
      // Weights are powers of two of the distance from a base. It follows the largest score of a
      // row when that is past it by 8.0f in the exponent, and with it the sums.
      float largest[1][2];
      bool grows = false;
      #pragma unroll
      for (int m = 0; m < 1; ++m)
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
          float top = most[m][half];
          #pragma unroll
          for (int j = 0; j < 8; ++j)
            top = fmaxf(top, fmaxf(score[m][j][half * 2], score[m][j][half * 2 + 1]));
          largest[m][half] = row_most(top);
          grows = grows || largest[m][half] * (0.5f * 1.44269504f) > fmaf(most[m][half], (0.5f * 1.44269504f), 8.0f);
        }
      if (warp_any(grows)) {
        #pragma unroll
        for (int m = 0; m < 1; ++m)
          #pragma unroll
          for (int half = 0; half < 2; ++half) {
            // A row without any key yet: what is below is 2 to -infinity.
            const float top = largest[m][half];
            const float base = top == -infinity_f32() ? 0.0f : top * (0.5f * 1.44269504f);
            const float shrink = power_of_two(fmaf(most[m][half], (0.5f * 1.44269504f), -base));
            most[m][half] = top;
            sum[m][half] = sum[m][half] * shrink;
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
              total[m][j][half * 2] = total[m][j][half * 2] * shrink;
              total[m][j][half * 2 + 1] = total[m][j][half * 2 + 1] * shrink;
            }
          }
      }
      #pragma unroll
      for (int m = 0; m < 1; ++m)
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
          float (*of)[4] = score[m];
          const float base = most[m][half] == -infinity_f32() ? 0.0f : most[m][half] * (0.5f * 1.44269504f);
          #pragma unroll
          for (int j = 0; j < 8; ++j)
            #pragma unroll
            for (int c = half * 2; c < half * 2 + 2; ++c) {
              of[j][c] = power_of_two(fmaf(of[j][c], (0.5f * 1.44269504f), -base));
              sum[m][half] = sum[m][half] + of[j][c];
            }
        }
      #pragma unroll
      for (int step = 0; step < 4; ++step) {
        __align__(16) unsigned a[1][4];
        #pragma unroll
        for (int m = 0; m < 1; ++m) {
          const float (*of)[4] = score[m];
          *(uint4*)a[m] = make_uint4(
              as_halves(of[2 * step][0], of[2 * step][1]),
              as_halves(of[2 * step][2], of[2 * step][3]),
              as_halves(of[2 * step + 1][0], of[2 * step + 1][1]),
              as_halves(of[2 * step + 1][2], of[2 * step + 1][3]));
        }
        #pragma unroll
        for (int j = 0; j < 4; j += 2) {
          __align__(16) unsigned b[4];
          load_turned(b, v_tile + ((part * 4 + step) * 16 + turned_row) * 40
              + j * 8 + turned_column);
          #pragma unroll
          for (int m = 0; m < 1; ++m) {
            multiply_fp16(total[m][j], a[m], b);
            multiply_fp16(total[m][j + 1], a[m], b + 2);
          }
        }
      }
    }
    #pragma unroll
    for (int m = 0; m < 1; ++m)
      #pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float whole = row_sum(sum[m][half]), inverse = 1.0f / whole;
        const int row = row_first + warp_row + m * 16 + group + half * 8;
        if (row >= queries || part > 0) continue;
        float* into = out_slice + (long long)row * heads * 32 + member * 2;
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int odd = 0; odd < 2; ++odd) {
            const float value = total[m][j][half * 2 + odd];
            into[j * 8 + odd] = value * inverse;
          }
      }
  }
}
