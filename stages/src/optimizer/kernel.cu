// Updates of f32 weights by an optimizer, of many parameters in a launch. The formulas are the same as on the
// CPU, with the same bits. Each thread has four numbers. Blocks may have any number of threads.

// A parameter, and what is its own in its update.
struct Updated {
    float* value;
    const float* grad;
    // What the optimizer keeps. 0 where it keeps less.
    float *first, *second;
    // The bf16 copy of the weights. 0 if products do not use bf16.
    bf16* half;
    u64 count;
    // Kernels say what these are.
    float a, b;
};

// Four numbers of a parameter.
struct Four {
    const Updated& of;
    u64 start;
    unsigned some;
    bool whole;

    explicit Four(const Together<Updated>& together) : of(entry(together, start)) {
        some = some_of<4>(start, of.count);
        whole = some == 4 && is_aligned(of.value) && is_aligned(of.grad) && is_aligned(of.first) &&
                is_aligned(of.second) && is_aligned(of.half);
    }

    static const Updated& entry(const Together<Updated>& together, u64& start) {
        unsigned block;
        const Updated& entry = entry_of(together, block);
        start = 4 * ((u64)block * blockDim.x + threadIdx.x);
        return entry;
    }

    void load(const float* from, float (&x)[4]) const { load_some(from + start, some, whole, x); }
    void store(float* to, const float (&x)[4]) const { store_some(to + start, some, whole, x); }

    void store_value(const float (&x)[4]) const {
        store(of.value, x);
        if (of.half) store_some(of.half + start, some, whole, x);
    }
};

// AdamW. Loshchilov and Hutter, "Decoupled weight decay regularization" (ICLR 2019). The scalars are described
// at `Scalars` in src/cpu/adamw.rs. A parameter's own: `shrink` and `step_size`.
extern "C" __global__ void __launch_bounds__(256)
    adamw(const __grid_constant__ Together<Updated> together, float scale, float mean_step,
          float square_keep, float square_step, float root_scale, float epsilon) {
    Four four(together);
    const float shrink = four.of.a, step_size = four.of.b;
    float p[4], g[4], m[4], v[4];
    four.load(four.of.value, p);
    four.load(four.of.grad, g);
    four.load(four.of.first, m);
    four.load(four.of.second, v);
    for (int i = 0; i < 4; ++i) {
        g[i] = __fmul_rn(g[i], scale);  // Rounded here, as on the CPU: not fused with the next subtraction.
        m[i] = fmaf(g[i] - m[i], mean_step, m[i]);
        v[i] = fmaf(g[i] * square_step, g[i], v[i] * square_keep);
        float root = fmaf(sqrtf(v[i]), root_scale, epsilon);
        p[i] = fmaf(-step_size, m[i] / root, p[i] * shrink);
    }
    four.store(four.of.first, m);
    four.store(four.of.second, v);
    four.store_value(p);
}

// Lion. Chen et al., "Symbolic discovery of optimization algorithms" (2023). The scalars are described at
// `Scalars` in src/cpu/lion.rs. A parameter's own: `shrink` and `learning_rate`.
extern "C" __global__ void __launch_bounds__(256)
    lion(const __grid_constant__ Together<Updated> together, float scale, float direction_step,
         float mean_step) {
    Four four(together);
    const float shrink = four.of.a, learning_rate = four.of.b;
    float p[4], g[4], m[4];
    four.load(four.of.value, p);
    four.load(four.of.grad, g);
    four.load(four.of.first, m);
    for (int i = 0; i < 4; ++i) {
        float more = __fmul_rn(g[i], scale) - m[i];  // Rounded twice, as on the CPU.
        float direction = fmaf(more, direction_step, m[i]);
        m[i] = fmaf(more, mean_step, m[i]);
        float sign = direction > 0 ? 1.0f : direction < 0 ? -1.0f : direction;  // NaN stays NaN.
        p[i] = fmaf(-learning_rate, sign, p[i] * shrink);
    }
    four.store(four.of.first, m);
    four.store_value(p);
}

// Gradient descent. What it keeps is the running sum of gradients, or nothing without momentum. A parameter's
// own: `weight_decay` and `learning_rate`.
extern "C" __global__ void __launch_bounds__(256)
    sgd(const __grid_constant__ Together<Updated> together, float scale, float momentum_keep) {
    Four four(together);
    const float weight_decay = four.of.a, learning_rate = four.of.b;
    float p[4], g[4], m[4];
    four.load(four.of.value, p);
    four.load(four.of.grad, g);
    for (int i = 0; i < 4; ++i) g[i] = fmaf(p[i], weight_decay, g[i] * scale);
    if (four.of.first) {
        four.load(four.of.first, m);
        for (int i = 0; i < 4; ++i) g[i] = fmaf(m[i], momentum_keep, g[i]);
        four.store(four.of.first, g);
    }
    for (int i = 0; i < 4; ++i) p[i] = fmaf(-learning_rate, g[i], p[i]);
    four.store_value(p);
}

// Running means: the value moves by `share`, a parameter's own, towards the mean of `micro_batches`
// micro-batches. `grad` is their sum.
extern "C" __global__ void __launch_bounds__(256)
    running_mean(const __grid_constant__ Together<Updated> together, float micro_batches) {
    Four four(together);
    const float share = four.of.a;
    float p[4], s[4];
    four.load(four.of.value, p);
    four.load(four.of.grad, s);
    for (int i = 0; i < 4; ++i) {
        float mean = s[i] / micro_batches;
        p[i] = fmaf(share, mean - p[i], p[i]);
    }
    four.store_value(p);
}

// Sets gradients to zero.
struct Cleared {
    float* grad;
    u64 count;
};
extern "C" __global__ void __launch_bounds__(256) clear_gradients(const __grid_constant__ Together<Cleared> together) {
    unsigned block;
    const Cleared& of = entry_of(together, block);
    u64 first = 4 * ((u64)block * blockDim.x + threadIdx.x);
    unsigned some = some_of<4>(first, of.count);
    const float zeros[4] = {};
    store_some(of.grad + first, some, some == 4 && is_aligned(of.grad), zeros);
}
