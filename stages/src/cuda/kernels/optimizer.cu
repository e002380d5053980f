// Updates of f32 weights by an optimizer. The formulas are those of the CPU, with the same bits. If products
// use bf16, `half` is the bf16 copy of the weights, else 0. Each thread has four numbers. Blocks may have any
// number of threads.

// AdamW. Loshchilov and Hutter, "Decoupled weight decay regularization" (ICLR 2019). All arrays are [count].
// The scalars are described at `Scalars` in src/cpu/adamw.rs.
extern "C" __global__ void __launch_bounds__(256)
    adamw(float* value, const float* grad, float* mean, float* square, bf16* half,
          u64 count, float scale, float shrink, float mean_step, float square_keep,
          float square_step, float root_scale, float epsilon, float step_size) {
    u64 first = 4 * global_thread();
    unsigned some = some_of<4>(first, count);
    bool whole = some == 4 && is_aligned(value) && is_aligned(grad) && is_aligned(mean) &&
                 is_aligned(square) && is_aligned(half);
    float p[4], g[4], m[4], v[4];
    load_some(value + first, some, whole, p);
    load_some(grad + first, some, whole, g);
    load_some(mean + first, some, whole, m);
    load_some(square + first, some, whole, v);
    for (int i = 0; i < 4; ++i) {
        g[i] = __fmul_rn(g[i], scale);  // Rounded here, as on the CPU: not fused with the next subtraction.
        m[i] = fmaf(g[i] - m[i], mean_step, m[i]);
        v[i] = fmaf(g[i] * square_step, g[i], v[i] * square_keep);
        float root = fmaf(sqrtf(v[i]), root_scale, epsilon);
        p[i] = fmaf(-step_size, m[i] / root, p[i] * shrink);
    }
    store_some(value + first, some, whole, p);
    store_some(mean + first, some, whole, m);
    store_some(square + first, some, whole, v);
    if (half) store_some(half + first, some, whole, p);
}

// Lion. Chen et al., "Symbolic discovery of optimization algorithms" (2023). All arrays are [count]. The scalars
// are described at `Scalars` in src/cpu/lion.rs.
extern "C" __global__ void __launch_bounds__(256)
    lion(float* value, const float* grad, float* mean, bf16* half, u64 count, float scale,
         float shrink, float direction_step, float mean_step, float learning_rate) {
    u64 first = 4 * global_thread();
    unsigned some = some_of<4>(first, count);
    bool whole = some == 4 && is_aligned(value) && is_aligned(grad) && is_aligned(mean) && is_aligned(half);
    float p[4], g[4], m[4];
    load_some(value + first, some, whole, p);
    load_some(grad + first, some, whole, g);
    load_some(mean + first, some, whole, m);
    for (int i = 0; i < 4; ++i) {
        float more = __fmul_rn(g[i], scale) - m[i];  // Rounded twice, as on the CPU.
        float direction = fmaf(more, direction_step, m[i]);
        m[i] = fmaf(more, mean_step, m[i]);
        float sign = direction > 0 ? 1.0f : direction < 0 ? -1.0f : direction;  // NaN stays NaN.
        p[i] = fmaf(-learning_rate, sign, p[i] * shrink);
    }
    store_some(value + first, some, whole, p);
    store_some(mean + first, some, whole, m);
    if (half) store_some(half + first, some, whole, p);
}

// Gradient descent. `momentum` is its running sum of gradients, or 0 without momentum. All arrays are
// [count].
extern "C" __global__ void __launch_bounds__(256)
    sgd(float* value, const float* grad, float* momentum, bf16* half, u64 count,
        float scale, float weight_decay, float momentum_keep, float learning_rate) {
    u64 first = 4 * global_thread();
    unsigned some = some_of<4>(first, count);
    bool whole = some == 4 && is_aligned(value) && is_aligned(grad) && is_aligned(momentum) &&
        is_aligned(half);
    float p[4], g[4], m[4];
    load_some(value + first, some, whole, p);
    load_some(grad + first, some, whole, g);
    for (int i = 0; i < 4; ++i) g[i] = fmaf(p[i], weight_decay, g[i] * scale);
    if (momentum) {
        load_some(momentum + first, some, whole, m);
        for (int i = 0; i < 4; ++i) g[i] = fmaf(m[i], momentum_keep, g[i]);
        store_some(momentum + first, some, whole, g);
    }
    for (int i = 0; i < 4; ++i) p[i] = fmaf(-learning_rate, g[i], p[i]);
    store_some(value + first, some, whole, p);
    if (half) store_some(half + first, some, whole, p);
}

// A running mean: the value moves by `share` towards the mean of so many micro-batches, of which `sum` is the
// sum. All arrays are [count].
extern "C" __global__ void running_mean(float* value, const float* sum, bf16* half, u64 count, float share,
                                        float micro_batches) {
    u64 first = 4 * global_thread();
    unsigned some = some_of<4>(first, count);
    bool whole = some == 4 && is_aligned(value) && is_aligned(sum) && is_aligned(half);
    float p[4], s[4];
    load_some(value + first, some, whole, p);
    load_some(sum + first, some, whole, s);
    for (int i = 0; i < 4; ++i) {
        float mean = s[i] / micro_batches;
        p[i] = fmaf(share, mean - p[i], p[i]);
    }
    store_some(value + first, some, whole, p);
    if (half) store_some(half + first, some, whole, p);
}
