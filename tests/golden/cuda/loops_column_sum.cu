struct K0 { unsigned out, in1; int p0, p1; };
extern "C" __global__ void __launch_bounds__(256)
k0_loop1_sum(char* arena, const K0 words)
{
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ in1 = at<const float>(arena, words.in1);
  const int p0 = words.p0;
  const int p1 = words.p1;
  const unsigned items = greater_integer<int>(p0, 0);
  for (unsigned item = blockIdx.x * 256u + threadIdx.x; item < items; item += gridDim.x * 256u) {
    const int l0 = item;
    float sum_0 = 0.0f, sum_1 = 0.0f, sum_2 = 0.0f, sum_3 = 0.0f;
    float sum_total = 0.0f;
    int sum_count = 0;
    bool sum_more = false;
    for (int h0_0 = 0; h0_0 < p1; ++h0_0) {
      const float x1 = in1[h0_0 * p0 + l0];
      const float sum_next = sum_0 + x1;
      sum_0 = sum_1; sum_1 = sum_2; sum_2 = sum_3; sum_3 = sum_next;
      if (++sum_count == 4096) {
        sum_total = sum_more ? sum_total + ((sum_0 + sum_2) + (sum_1 + sum_3)) : (sum_0 + sum_2) + (sum_1 + sum_3);
        sum_more = true;
        sum_count = 0;
        sum_0 = sum_1 = sum_2 = sum_3 = 0.0f;
      }
    }
    const float sum = !sum_more ? (sum_0 + sum_2) + (sum_1 + sum_3) : sum_count > 0 ? sum_total + ((sum_0 + sum_2) + (sum_1 + sum_3)) : sum_total;
    out[l0] = sum;
  }
}
