// Updates of f32 weights by an optimizer, of many parameters in a launch. The formulas are the same as on the
// CPU, with the same bits. Each thread has four numbers. Blocks have whole warps.

// A parameter, and what is its own in its update.
struct Updated {
    float* value;
    const float* grad;
    // What the optimizer keeps, in a number format that the kernel knows. 0 where it keeps less.
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

// The scalars of AdamW: `Scalars` in adamw.rs describes them.
struct AdamW {
    float scale, mean_step, square_keep, square_step, root_scale, epsilon;

    // Updates four weights and their moments.
    void update(const Updated& of, float (&p)[4], const float (&gradients)[4], float (&m)[4],
                float (&v)[4]) const {
        const float shrink = of.a, step_size = of.b;
        for (int i = 0; i < 4; ++i) {
            // Rounded here, as on the CPU: not fused with the next subtraction.
            float g = __fmul_rn(gradients[i], scale);
            m[i] = fmaf(g - m[i], mean_step, m[i]);
            v[i] = fmaf(g * square_step, g, v[i] * square_keep);
            float root = fmaf(sqrtf(v[i]), root_scale, epsilon);
            p[i] = fmaf(-step_size, m[i] / root, p[i] * shrink);
        }
    }
};

// AdamW. Loshchilov and Hutter, "Decoupled weight decay regularization" (ICLR 2019). A parameter's own:
// `shrink` and `step_size`.
extern "C" __global__ void __launch_bounds__(256)
    adamw(const __grid_constant__ Together<Updated> together, float scale, float mean_step,
          float square_keep, float square_step, float root_scale, float epsilon) {
    Four four(together);
    float p[4], g[4], m[4], v[4];
    four.load(four.of.value, p);
    four.load(four.of.grad, g);
    four.load(four.of.first, m);
    four.load(four.of.second, v);
    AdamW{scale, mean_step, square_keep, square_step, root_scale, epsilon}.update(four.of, p, g, m, v);
    four.store(four.of.first, m);
    four.store(four.of.second, v);
    four.store_value(p);
}

// Random bits, as `noise` in moments.rs.
inline unsigned noise(float x, float grad, unsigned seed) {
    unsigned of_grad = float_to_bits(grad + 0.0f);
    unsigned hash = float_to_bits(x) * 0x9e3779b1u ^ (of_grad << 15 | of_grad >> 17) ^ seed;
    hash = (hash ^ hash >> 16) * 0x85ebca6bu;
    hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
    return hash ^ hash >> 16;
}

// As `rounded_at_random` in moments.rs, in `float`.
inline float rounded_at_random(float x, unsigned noise) {
    unsigned bits = float_to_bits(x);
    bool is_finite = (bits & 0x7f800000u) != 0x7f800000u, is_nan = x != x;
    return bits_to_float((bits + (is_finite ? noise & 0xffffu : 0) & 0xffff0000u) | (is_nan ? 0x400000u : 0));
}

// AdamW with moments in bf16, which are rounded at random.
extern "C" __global__ void __launch_bounds__(256)
    adamw_bf16_state(const __grid_constant__ Together<Updated> together, float scale, float mean_step,
                     float square_keep, float square_step, float root_scale, float epsilon,
                     unsigned mean_seed, unsigned square_seed) {
    Four four(together);
    bf16 *mean = (bf16*)four.of.first + four.start, *square = (bf16*)four.of.second + four.start;
    float p[4], g[4], m[4], v[4];
    four.load(four.of.value, p);
    four.load(four.of.grad, g);
    load_some(mean, four.some, four.whole, m);
    load_some(square, four.some, four.whole, v);
    AdamW{scale, mean_step, square_keep, square_step, root_scale, epsilon}.update(four.of, p, g, m, v);
    for (int i = 0; i < 4; ++i) {
        m[i] = rounded_at_random(m[i], noise(m[i], g[i], mean_seed));
        v[i] = rounded_at_random(v[i], noise(v[i], g[i], square_seed));
    }
    store_some(mean, four.some, four.whole, m);
    store_some(square, four.some, four.whole, v);
    four.store_value(p);
}

// Numbers from 0 to 1 in 7 bits or in 8, as `Code` in moments.rs: FIRST bins in the lowest decade.
template <unsigned FIRST> struct Code {
    static const unsigned LAST = 127 * FIRST + 1;

    static float power(unsigned decade) {
        return decade == 0 ? 1e-6f : decade == 1 ? 1e-5f : decade == 2 ? 1e-4f : decade == 3 ? 1e-3f
             : decade == 4 ? 1e-2f : decade == 5 ? 1e-1f : 1.0f;
    }

    static unsigned place(float x) {
        float near = __fmul_rn(x, 1e6f);
        unsigned bins = FIRST;
        if (x >= 1e-6f) near = __fmul_rn(x, 1e5f), bins = FIRST << 1;
        if (x >= 1e-5f) near = __fmul_rn(x, 1e4f), bins = FIRST << 2;
        if (x >= 1e-4f) near = __fmul_rn(x, 1e3f), bins = FIRST << 3;
        if (x >= 1e-3f) near = __fmul_rn(x, 1e2f), bins = FIRST << 4;
        if (x >= 1e-2f) near = __fmul_rn(x, 1e1f), bins = FIRST << 5;
        if (x >= 1e-1f) near = x, bins = FIRST << 6;
        float bin = (near - 0.1f) * ((float)bins / 0.9f);
        unsigned index = min((unsigned)fmaxf(bin, 0.0f), bins - 1);
        bool is_zero = x < (FIRST == 1 ? 2.75e-7f : 1.17549435e-38f);
        unsigned place = is_zero ? 0 : bins - FIRST + 1 + index;
        return x >= 0.998f ? LAST : place;
    }

    static float level(unsigned place) {
        if (place == 0) return 0.0f;
        if (place == LAST) return 1.0f;
        unsigned decade = 0;
        while (decade < 6 && (place + FIRST - 1) / FIRST >= 2u << decade) ++decade;
        unsigned bins = FIRST << decade, bin = place - (bins - FIRST + 1);
        return __fmul_rn(__fmul_rn((float)bin + 0.5f, 0.9f / (float)bins) + 0.1f, power(decade));
    }
};

// A byte of a block with signs: 0 to 127 are places of positive numbers, 128 is 1, and the others, less 128,
// are places of negative numbers.
inline unsigned signed_byte(float x) {
    unsigned place = Code<1>::place(fabsf(x));
    return x < 0 && place > 0 ? 128 + min(place, 127u) : place;
}
inline float signed_level(unsigned byte) {
    return byte <= 128 ? Code<1>::level(byte) : -Code<1>::level(byte - 128);
}

// Four moments of a block of 128, which a warp shares: a scale, and then a byte for each.
template <bool IS_SIGNED> struct Moments {
    unsigned char* block;

    Moments(float* all, u64 start) : block((unsigned char*)all + start / 128 * 132) {}
    unsigned* codes() const { return (unsigned*)(block + 4) + lane(); }

    void load(float (&x)[4]) const {
        float scale = *(const float*)block;
        unsigned word = *codes();
        for (int i = 0; i < 4; ++i) {
            unsigned byte = word >> 8 * i & 255u;
            x[i] = __fmul_rn(IS_SIGNED ? signed_level(byte) : Code<2>::level(byte), scale);
        }
    }

    // All lanes of the warp call it. Numbers that do not exist are 0.
    void store(const float (&x)[4]) const {
        float scale = 0.0f;
        for (int i = 0; i < 4; ++i) scale = fmaxf(scale, fabsf(x[i]));
        scale = fminf(warp_max(scale), 3.40282347e38f);
        unsigned word = 0;
        for (int i = 0; i < 4 && scale > 0; ++i) {
            float share = x[i] / scale;
            word |= (IS_SIGNED ? signed_byte(share) : Code<2>::place(share)) << 8 * i;
        }
        *codes() = word;
        if (lane() == 0) *(float*)block = scale;
    }
};

// AdamW with moments in blocks of 8 bits. The threads of a block are whole warps.
extern "C" __global__ void __launch_bounds__(256)
    adamw_8bit_state(const __grid_constant__ Together<Updated> together, float scale, float mean_step,
                     float square_keep, float square_step, float root_scale, float epsilon) {
    Four four(together);
    // A warp without numbers.
    if (four.start - 4 * lane() >= four.of.count) return;
    Moments<true> mean(four.of.first, four.start);
    Moments<false> square(four.of.second, four.start);
    float p[4], g[4], m[4], v[4];
    four.load(four.of.value, p);
    four.load(four.of.grad, g);
    mean.load(m);
    square.load(v);
    AdamW{scale, mean_step, square_keep, square_step, root_scale, epsilon}.update(four.of, p, g, m, v);
    mean.store(m);
    square.store(v);
    four.store_value(p);
}

// Lion. Chen et al., "Symbolic discovery of optimization algorithms" (2023). The scalars are described at
// `Scalars` in lion.rs. A parameter's own: `shrink` and `learning_rate`.
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
