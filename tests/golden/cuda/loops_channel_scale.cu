struct K0 { unsigned out, in1, in2; int p0, p1, p2; };
extern "C" __global__ void __launch_bounds__(256)
k0_loop3_mul(char* arena, const K0 words)
{
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ in1 = at<const float>(arena, words.in1);
  const float* __restrict__ in2 = at<const float>(arena, words.in2);
  const int p0 = words.p0;
  const int p1 = words.p1;
  const int p2 = words.p2;
  const unsigned items = greater_integer<int>(p0, 0) * greater_integer<int>(p1, 0) * 4;
  for (unsigned item = blockIdx.x * 256u + threadIdx.x; item < items; item += gridDim.x * 256u) {
    const int l2 = item % (unsigned)4;
    const unsigned item2 = item / (unsigned)4;
    const int l1 = item2 % (unsigned)p1;
    const unsigned item1 = item2 / (unsigned)p1;
    const int l0 = item1;
    const float x1 = in1[l0 * p2 + l1 * 4 + l2];
    const float x2 = in2[l0 * 4 + l2];
    const float mul_ = x1 * x2;
    out[l0 * p2 + l1 * 4 + l2] = mul_;
  }
}
