struct K0 { unsigned out, in1; int p0, p1; };
extern "C" __global__ void __launch_bounds__(128, 8)
k0_loop2_max_sub_exp_sum(char* arena, const K0 words)
{
  __shared__ float parts_f32[16];
  __shared__ float shares_f32[144];
  __shared__ float stage_f32[2064];
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ in1 = at<const float>(arena, words.in1);
  const int p0 = words.p0;
  const int p1 = words.p1;
  using Row = Rows<false, 4, 512>;
  const unsigned rows = greater_integer<int>(p0, 0);
  for (unsigned row = blockIdx.x; row < rows; row += gridDim.x) {
    const int l0 = row;
    const float maximum = Row::freely<float>(
      greater_integer<int>(p1, 0), -infinity_f32(), shares_f32, parts_f32,
      [&](unsigned item) -> float {
        const int h0_0 = item;
        const float x1 = in1[l0 * p1 + h0_0];
        return x1;
      },
      [](float a, float b) -> float { return greater(a, b); });
    const float sum = Row::in_order<float>(
      greater_integer<int>(p1, 0), 0.0f, stage_f32, parts_f32,
      [&](unsigned item) -> float {
        const int h1_0 = item;
        const float x12 = in1[l0 * p1 + h1_0];
        const float sub_ = x12 - maximum;
        const float exp_ = exp_f32(sub_);
        return exp_;
      },
      [](float a, float b) -> float { return a + b; });
    const unsigned items = greater_integer<int>(p1, 0);
    for (unsigned item = Row::place(); item < items; item += Row::width) {
      const int l1 = item;
      const float x13 = in1[l0 * p1 + l1];
      const float sub_2 = x13 - maximum;
      const float exp_2 = exp_f32(sub_2);
      const float div_ = exp_2 / sum;
      out[l0 * p1 + l1] = div_;
    }
  }
}
