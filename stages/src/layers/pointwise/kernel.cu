// Layers of single numbers. The grids are the same as in elementwise.cu.

// An activation at a number.
struct Activated {
    float value, derivative;
};

// ---- Functions whose derivative is found from the input ----

// GELU. Hendrycks and Gimpel, "Gaussian error linear units" (2016).
// x/2 (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
template <class T> struct TanhForm {
    static Activated at(float x) {
        const float slope = 1.595769f, cubic = 0.044715f;  // 2 sqrt(2 / pi)
        float power = exp_of<T>(fminf(-slope * x * fmaf(cubic * x, x, 1.0f), 87.0f));
        float gate = quotient<T>(1.0f, 1.0f + power);
        float inner = slope * fmaf(3.0f * cubic * x, x, 1.0f);
        return {x * gate, fmaf(x * inner * gate, power * gate, gate)};
    }
};

// x/2 (1 + erf(x / sqrt(2))).
template <class T> struct ExactForm {
    static Activated at(float x) {
        float normal = 0.5f * erfcf(-0.70710678f * x);
        float density = 0.39894228f * exp_of<T>(-0.5f * x * x);  // 1 / sqrt(2 pi)
        return {x * normal, fmaf(x, density, normal)};
    }
};

// 1 / (1 + exp(-x)).
template <class T> struct SigmoidForm {
    static Activated at(float x) {
        float power = exp_of<T>(x < -87.0f ? 87.0f : -x);  // fminf would lose NaN
        float value = quotient<T>(1.0f, 1.0f + power);
        return {value, value * (power * value)};
    }
};

// NAME_forward: out = f(input). NAME_backward: grad *= f'(input). Each is [count].
#define MAKE_FORM(FORM, NAME, T, SUFFIX)                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        NAME##_forward##SUFFIX(T* out, const T* input, u64 count) {                                  \
        map(out, input, count, [](float x) { return FORM<T>::at(x).value; });                        \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        NAME##_backward##SUFFIX(T* grad, const T* input, u64 count) {                                \
        map_two(grad, grad, input, count,                                                            \
                [](float g, float x) { return g * FORM<T>::at(x).derivative; });                     \
    }
#define MAKE(T, SUFFIX)                                                                              \
    MAKE_FORM(TanhForm, gelu_tanh, T, SUFFIX)                                                        \
    MAKE_FORM(ExactForm, gelu_exact, T, SUFFIX)                                                      \
    MAKE_FORM(SigmoidForm, sigmoid, T, SUFFIX)
F32_AND_BF16(MAKE)
#undef MAKE
#undef MAKE_FORM

// grad *= f'(input), then input = f(input), each [count].
template <class Form, class T> void backward_and_forward(T* grad, T* input, u64 count) {
    u64 first = 8 * global_thread();
    unsigned some = some_of_8(first, count);
    bool whole = some == 8 && is_aligned(grad) && is_aligned(input);
    float g[8], x[8];
    load_some(grad + first, some, whole, g);
    load_some(input + first, some, whole, x);
    for (int i = 0; i < 8; ++i) {
        Activated f = Form::at(x[i]);
        g[i] *= f.derivative;
        x[i] = f.value;
    }
    store_some(grad + first, some, whole, g);
    store_some(input + first, some, whole, x);
}
#define MAKE_FORM(FORM, NAME, T, SUFFIX)                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        NAME##_backward_and_forward##SUFFIX(T* grad, T* input, u64 count) {                          \
        backward_and_forward<FORM<T>>(grad, input, count);                                           \
    }
#define MAKE(T, SUFFIX)                                                                              \
    MAKE_FORM(TanhForm, gelu_tanh, T, SUFFIX)                                                        \
    MAKE_FORM(ExactForm, gelu_exact, T, SUFFIX)
F32_AND_BF16(MAKE)
#undef MAKE
#undef MAKE_FORM

// ---- The same, of the output of a linear layer, with the sums for its bias ----

// Turns a gradient into the one before the activation, adds it to the sums as it is stored, and turns the
// input into the output.
template <class Form, class T> void go_back(float (&g)[8], float (&x)[8], float (&sum)[8]) {
    for (int i = 0; i < 8; ++i) {
        Activated f = Form::at(x[i]);
        g[i] = __fmul_rn(g[i], f.derivative);  // Rounded, as in memory: not fused with the sum.
        x[i] = f.value;
        sum[i] += rounded<T>(g[i]);
    }
}

// As NAME_backward, and with AGAIN as NAME_backward_and_forward, of rows[rows, columns]. Also
// partials[gridDim.y, columns] = the column_sums of the new gradient, with the same bits.
template <class Form, bool AGAIN, class T, class In>
void backward_sums(float* partials, T* grad, In* input, u64 rows, unsigned columns, unsigned slice) {
    SumOfColumns sums(rows, columns, slice);
    auto store = [&](u64 first, bool whole, const float (&g)[8], const float (&x)[8]) {
        store_some(grad + first, sums.count, whole, g);
        if constexpr (AGAIN) store_some(input + first, sums.count, whole, x);
    };
    bool whole = columns % 8 == 0 && is_aligned(grad) && is_aligned(input);
    u64 row = sums.row;
    // Two rows are read before one is written.
    for (; whole && sums.count > 0 && row + 8 < sums.end; row += 16) {
        u64 first = row * columns + sums.column, second = first + 8 * (u64)columns;
        float g[8], x[8], next_g[8], next_x[8];
        load_all(grad + first, g);
        load_all(input + first, x);
        load_all(grad + second, next_g);
        load_all(input + second, next_x);
        go_back<Form, T>(g, x, sums.sum);
        store(first, true, g, x);
        go_back<Form, T>(next_g, next_x, sums.sum);
        store(second, true, next_g, next_x);
    }
    for (; row < sums.end; row += 8) {
        u64 first = row * columns + sums.column;
        float g[8], x[8];
        load_some(grad + first, sums.count, whole, g);
        load_some(input + first, sums.count, whole, x);
        go_back<Form, T>(g, x, sums.sum);
        store(first, whole, g, x);
    }
    sums.store(partials, columns);
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        gelu_tanh_backward_sums##SUFFIX(float* partials, T* grad, const T* input, u64 rows,          \
                                        unsigned columns, unsigned slice) {                          \
        backward_sums<TanhForm<T>, false>(partials, grad, input, rows, columns, slice);              \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        gelu_tanh_backward_and_forward_sums##SUFFIX(float* partials, T* grad, T* input, u64 rows,    \
                                                    unsigned columns, unsigned slice) {              \
        backward_sums<TanhForm<T>, true>(partials, grad, input, rows, columns, slice);               \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// ---- ReLU: its derivative is found from the output ----

// Sets negative numbers of numbers[count] to zero. NaN stays.
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        relu_forward##SUFFIX(T* numbers, u64 count) {                                                \
        map(numbers, numbers, count, [](float x) { return x < 0.0f ? 0.0f : x; });                   \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// Sets grad[count] to zero where output[count] is not positive.
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        relu_backward##SUFFIX(T* grad, const T* output, u64 count) {                                 \
        map_two(grad, grad, output, count, [](float g, float y) { return y > 0.0f ? g : 0.0f; });    \
    }
F32_AND_BF16(MAKE)
#undef MAKE
