struct K0 { unsigned out, in1, in2; int p0, p1; };
extern "C" __global__ void __launch_bounds__(256)
k0_loop2_cast_mul_add(char* arena, const K0 words)
{
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ in1 = at<const float>(arena, words.in1);
  const long long* __restrict__ in2 = at<const long long>(arena, words.in2);
  const int p0 = words.p0;
  const int p1 = words.p1;
  const unsigned items = greater_integer<int>(p0, 0) * greater_integer<int>(p1, 0);
  for (unsigned item = blockIdx.x * 256u + threadIdx.x; item < items; item += gridDim.x * 256u) {
    const int l1 = item % (unsigned)p1;
    const unsigned item1 = item / (unsigned)p1;
    const int l0 = item1;
    const long long x2 = in2[l0];
    const int cast_ = (int)x2;
    const int mul_ = cast_ * p1;
    const int add_ = mul_ + l1;
    const float x1 = in1[add_];
    out[l0 * p1 + l1] = x1;
  }
}
