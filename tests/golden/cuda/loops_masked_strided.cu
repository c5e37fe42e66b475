struct K0 { unsigned out, in1, in2; int p0, p1; };
extern "C" __global__ void __launch_bounds__(256)
k0_loop1_select(char* arena, const K0 words)
{
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ in1 = at<const float>(arena, words.in1);
  const unsigned char* __restrict__ in2 = at<const unsigned char>(arena, words.in2);
  const int p0 = words.p0;
  const int p1 = words.p1;
  const unsigned items = greater_integer<int>(p0, 0);
  for (unsigned item = blockIdx.x * 256u + threadIdx.x; item < items; item += gridDim.x * 256u) {
    const int l0 = item;
    const bool x2 = in2[l0] != 0;
    const float x1 = in1[l0 * p1];
    const float chosen = x2 ? x1 : 0.0f;
    out[l0] = chosen;
  }
}
