struct K0 { unsigned out, in1; int p0; };
extern "C" __global__ void __launch_bounds__(256)
k0_loop1_cast_add(char* arena, const K0 words)
{
  long long* __restrict__ out = at<long long>(arena, words.out);
  const long long* __restrict__ in1 = at<const long long>(arena, words.in1);
  const int p0 = words.p0;
  const unsigned items = greater_integer<int>(p0, 0);
  for (unsigned item = blockIdx.x * 256u + threadIdx.x; item < items; item += gridDim.x * 256u) {
    const int l0 = item;
    const long long x1 = in1[l0];
    const long long cast_ = (long long)l0;
    const long long add_ = (long long)((unsigned long long)x1 + (unsigned long long)cast_);
    out[l0] = add_;
  }
}
