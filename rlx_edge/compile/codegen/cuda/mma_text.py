"""The C++ of matrix products on matrix units, filled in as ``template_text``.

Two tiles of shared memory take turns, so one barrier a round suffices. Fragments are those of
``mma.sync`` m16n8k8 (tf32) and m16n8k16 (f16), which lie alike in words (PTX ISA, "Matrix Fragments
for mma.m16n8k8" and ".m16n8k16").
"""

from __future__ import annotations

FUNCTIONS = """\
static __device__ __forceinline__ unsigned as_tf32(float x)
{
  unsigned y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}
static __device__ __forceinline__ unsigned as_halves(float low, float high)
{
  unsigned y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
// d += a b over 8 steps of k.
static __device__ __forceinline__ void multiply_tf32(float* d, const unsigned* a, const unsigned* b)
{
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// d += a b over 16 steps of k.
static __device__ __forceinline__ void multiply_fp16(float* d, const unsigned* a, const unsigned* b)
{
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Four matrices of 8 rows of 4 words: every thread names a row, and gets a word of each.
static __device__ __forceinline__ void load_matrices(unsigned* d, const unsigned* row)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}
// Copies to shared memory that run by themselves; what is not there is 0.
static __device__ __forceinline__ void copy_sixteen(void* to, const void* from, bool there)
{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
      :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
// The same for what is wanted again soon.
static __device__ __forceinline__ void copy_near(void* to, const void* from, bool there)
{
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;"
      :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
static __device__ __forceinline__ void copy_four(void* to, const void* from, bool there)
{
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
      :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 4 : 0) : "memory");
}
static __device__ __forceinline__ void close_copies()
{
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most so many groups of copies are under way.
template <int groups>
static __device__ __forceinline__ void wait_copies()
{
  asm volatile("cp.async.wait_group %0;" :: "n"(groups) : "memory");
}
// The shared memory of a workgroup.
template <int count>
static __device__ __forceinline__ unsigned* shared_words()
{
  __shared__ __align__(16) unsigned words[count];
  return words;
}
// Until all workgroups of a cluster are here; what they wrote to shared memory is there.
static __device__ __forceinline__ void join_cluster()
{
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// What another workgroup of the cluster has at this place of its shared memory.
static __device__ __forceinline__ float4 of_peer(const float* at, int peer)
{
  unsigned there;
  float4 four;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(there) : "r"((unsigned)__cvta_generic_to_shared(at)), "r"(peer));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
      : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w) : "r"(there) : "memory");
  return four;
}
// Where a row of shared memory has its first four words, in fours; neighbours differ.
static __device__ __forceinline__ int turn(int row) { return row / 2 % 2 * 2 + row / 4 % 2; }
"""
THREAD = """\
  const int part = threadIdx.x / $part_threads, lane = threadIdx.x % $part_threads;
  const int group = lane % 32 / 4, member = lane % 4;
  const int warp_row = lane / 32 / ($columns / $warp_columns) * $warp_rows;
  const int warp_column = lane / 32 % ($columns / $warp_columns) * $warp_columns;
"""
SHARED = """\
  __shared__ __align__(16) unsigned tiles[2 * $parts * $part_words];
"""
ROUNDS = """\
    float total[$m_tiles][$n_tiles][4];
    #pragma unroll
    for (int i = 0; i < $m_tiles; ++i)
      #pragma unroll
      for (int j = 0; j < $n_tiles; ++j)
        #pragma unroll
        for (int c = 0; c < 4; ++c) total[i][j][c] = 0.0f;
    const int stop = k, rounds = (k + $depth * $parts - 1) / ($depth * $parts);
    float4 a_next[$a_each], b_next[$b_each][2];
    const auto fetch = [&](int round) {
      const int first = (round * $parts + part) * $depth;
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
        const int column = item % ($columns / 4) * 4;
        #pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
        const int at_k = first + item / ($columns / 4) * 2 + odd;
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
$load_b\
        b_next[each][odd] = four;
        }
      }
    };
    fetch(0);
    for (int round = 0; round < rounds; ++round) {
      unsigned* const a_tile = tiles + (round % 2 * $parts + part) * $part_words;
      unsigned* const b_tile = a_tile + $a_words;
      #pragma unroll
      for (int each = 0; each < $a_each; ++each) {
        const int item = lane + each * $part_threads;
        const int row = $a_row, quad = $a_quad;
        const float4 four = a_next[each];
$keep_a\
      }
      #pragma unroll
      for (int each = 0; each < $b_each; ++each) {
        const int item = lane + each * $part_threads;
        const int column = item % ($columns / 4) * 4, pair = item / ($columns / 4);
        const float4 even = b_next[each][0], odd = b_next[each][1];
$keep_b\
      }
      __syncthreads();
      if (round + 1 < rounds) fetch(round + 1);
      #pragma unroll
      for (int at = 0; at < $words; at += 8) {
        unsigned a[$m_tiles][4], b[$n_tiles][2];
        #pragma unroll
        for (int i = 0; i < $m_tiles; ++i) {
          const unsigned* from = a_tile + (warp_row + i * 16 + group) * $a_stride + at + member;
          a[i][0] = from[0];
          a[i][1] = from[8 * $a_stride];
          a[i][2] = from[4];
          a[i][3] = from[8 * $a_stride + 4];
        }
        #pragma unroll
        for (int j = 0; j < $n_tiles; ++j) {
          const unsigned* from = b_tile + (at + member) * $b_stride + warp_column + j * 8 + group;
          b[j][0] = from[0];
          b[j][1] = from[4 * $b_stride];
        }
        #pragma unroll
        for (int i = 0; i < $m_tiles; ++i)
          #pragma unroll
          for (int j = 0; j < $n_tiles; ++j) $multiply(total[i][j], a[i], b[j]);
      }
    }
    __syncthreads();
$join\
"""
KEEP_A = {
    "tf32": """\
        *(uint4*)&a_tile[row * $a_stride + quad * 4]
            = make_uint4(as_tf32(four.x), as_tf32(four.y), as_tf32(four.z), as_tf32(four.w));
""",
    "fp16": """\
        *(uint2*)&a_tile[row * $a_stride + quad * 2]
            = make_uint2(as_halves(four.x, four.y), as_halves(four.z, four.w));
""",
}
KEEP_B = {
    "tf32": """\
        *(uint4*)&b_tile[pair * 2 * $b_stride + column]
            = make_uint4(as_tf32(even.x), as_tf32(even.y), as_tf32(even.z), as_tf32(even.w));
        *(uint4*)&b_tile[(pair * 2 + 1) * $b_stride + column]
            = make_uint4(as_tf32(odd.x), as_tf32(odd.y), as_tf32(odd.z), as_tf32(odd.w));
""",
    "fp16": """\
        *(uint4*)&b_tile[pair * $b_stride + column] = make_uint4(
            as_halves(even.x, odd.x), as_halves(even.y, odd.y),
            as_halves(even.z, odd.z), as_halves(even.w, odd.w));
""",
}
JOIN_PARTS = """\
    float* const sums = (float*)tiles;
    #pragma unroll
    for (int i = 0; i < $m_tiles; ++i)
      #pragma unroll
      for (int j = 0; j < $n_tiles; ++j)
        #pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int place = ((i * $n_tiles + j) * 4 + c) * $part_threads + lane;
          if (part > 0) sums[(part - 1) * $part_sums + place] = total[i][j][c];
        }
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < $m_tiles; ++i)
      #pragma unroll
      for (int j = 0; j < $n_tiles; ++j)
        #pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int place = ((i * $n_tiles + j) * 4 + c) * $part_threads + lane;
          if (part == 0)
            for (int other = 0; other < $parts - 1; ++other)
              total[i][j][c] = total[i][j][c] + sums[other * $part_sums + place];
        }
    __syncthreads();
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
  const int tile_count = words.slices * row_tiles * column_tiles;
"""
    + THREAD
    + """\
  for (int tile = blockIdx.x; tile < tile_count; tile += gridDim.x) {
    const int column_first = tile % column_tiles * $columns;
    const int row_first = tile / column_tiles % row_tiles * $rows;
    const int slice = tile / column_tiles / row_tiles;
    const float* __restrict__ a_slice = a + slice * words.a_slice;
    const float* __restrict__ b_slice = b + slice * words.b_slice;
"""
    + ROUNDS
    + """\
    #pragma unroll
    for (int i = 0; i < $m_tiles; ++i)
      #pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row_first + warp_row + i * 16 + half * 8 + group;
        #pragma unroll
        for (int j = 0; j < $n_tiles; ++j)
          #pragma unroll
          for (int odd = 0; odd < 2; ++odd) {
            const int column = column_first + warp_column + j * 8 + member * 2 + odd;
            if (part > 0 || row >= m || column >= n) continue;
            const int place = (slice * m + row) * n + column;
            const float acc = total[i][j][half * 2 + odd];
$epilogue\
            out[place] = $result;
          }
      }
  }
}
"""
)
FINISH = """\
$head
{
$pointers\
  const int n = words.n, count = words.slices * words.m * n;
  for (int place = blockIdx.x * $threads + threadIdx.x; place < count;
       place += gridDim.x * $threads) {
    const int column = place % n;
    const float acc = out[place];
$epilogue\
    out[place] = $result;
  }
}
"""
