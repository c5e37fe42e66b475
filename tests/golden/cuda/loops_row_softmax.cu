struct K0 { unsigned out, in1; int p0, p1; };
extern "C" __global__ void __launch_bounds__(128)
k0_loop2_max_sub_exp_sum(char* arena, const K0 words)
{
  __shared__ float parts_f32[4];
  __shared__ float stage_f32[4096];
  float* __restrict__ out = at<float>(arena, words.out);
  const float* __restrict__ in1 = at<const float>(arena, words.in1);
  const int p0 = words.p0;
  const int p1 = words.p1;
  const unsigned rows = greater_integer<int>(p0, 0);
  for (unsigned row = blockIdx.x; row < rows; row += gridDim.x) {
    const int l0 = row;
    const unsigned maximum_items = greater_integer<int>(p1, 0);
    float maximum_own = -infinity_f32();
    for (unsigned item = threadIdx.x; item < maximum_items; item += 128u) {
      const int h0_0 = item;
      const float x1 = in1[l0 * p1 + h0_0];
      maximum_own = greater(maximum_own, x1);
    }
    stage_f32[threadIdx.x] = maximum_own;
    __syncthreads();
    for (unsigned half = 64u; half > 0; half /= 2) {
      if (threadIdx.x < half) {
        stage_f32[threadIdx.x] = greater(stage_f32[threadIdx.x], stage_f32[threadIdx.x + half]);
      }
      __syncthreads();
    }
    const float maximum = stage_f32[0];
    __syncthreads();
    const unsigned sum_items = greater_integer<int>(p1, 0);
    float sum = 0.0f;
    for (unsigned first = 0; first == 0 || first < sum_items; first += 4096u) {
      const unsigned last = first + 4096u < sum_items ? first + 4096u : sum_items;
      for (unsigned item = first + threadIdx.x; item < last; item += 128u) {
        const int h1_0 = item;
        const float x12 = in1[l0 * p1 + h1_0];
        const float sub_ = x12 - maximum;
        const float exp_ = exp_f32(sub_);
        stage_f32[item - first] = exp_;
      }
      __syncthreads();
      if (threadIdx.x < 4) {
        float part = 0.0f;
        for (unsigned item = threadIdx.x; item < last - first; item += 4u)
          part = part + stage_f32[item];
        parts_f32[threadIdx.x] = part;
      }
      __syncthreads();
      sum = first == 0 ? (parts_f32[0] + parts_f32[2]) + (parts_f32[1] + parts_f32[3]) : sum + ((parts_f32[0] + parts_f32[2]) + (parts_f32[1] + parts_f32[3]));
    }
    __syncthreads();
    const unsigned items = greater_integer<int>(p1, 0);
    for (unsigned item = threadIdx.x; item < items; item += 128u) {
      const int l1 = item;
      const float x13 = in1[l0 * p1 + l1];
      const float sub_2 = x13 - maximum;
      const float exp_2 = exp_f32(sub_2);
      const float div_ = exp_2 / sum;
      out[l0 * p1 + l1] = div_;
    }
  }
}
