// GELU and its derivative, in both forms. Hendrycks and Gimpel, "Gaussian error linear units" (2016). The
// grids are the same as in elementwise.cu.

// An activation at a number.
struct Activated {
    float value, derivative;
};

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

// out = gelu(input), each [count].
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        gelu_tanh_forward##SUFFIX(T* out, const T* input, u64 count) {                               \
        map(out, input, count, [](float x) { return TanhForm<T>::at(x).value; });                    \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        gelu_exact_forward##SUFFIX(T* out, const T* input, u64 count) {                              \
        map(out, input, count, [](float x) { return ExactForm<T>::at(x).value; });                   \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// grad *= gelu'(input), each [count].
template <class Form, class T> void gelu_backward(T* grad, const T* input, u64 count) {
    map_two(grad, grad, input, count, [](float g, float x) { return g * Form::at(x).derivative; });
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        gelu_tanh_backward##SUFFIX(T* grad, const T* input, u64 count) {                             \
        gelu_backward<TanhForm<T>>(grad, input, count);                                              \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        gelu_exact_backward##SUFFIX(T* grad, const T* input, u64 count) {                            \
        gelu_backward<ExactForm<T>>(grad, input, count);                                             \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// grad *= gelu'(input), then input = gelu(input), each [count].
template <class Form, class T> void gelu_backward_and_forward(T* grad, T* input, u64 count) {
    u64 first = 8 * global_thread();
    unsigned some = some_of_8(first, count);
    bool whole = some == 8 && is_aligned(grad) && is_aligned(input);
    float g[8], x[8];
    load_some(grad + first, some, whole, g);
    load_some(input + first, some, whole, x);
    for (int i = 0; i < 8; ++i) {
        Activated gelu = Form::at(x[i]);
        g[i] *= gelu.derivative;
        x[i] = gelu.value;
    }
    store_some(grad + first, some, whole, g);
    store_some(input + first, some, whole, x);
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                  \
        gelu_tanh_backward_and_forward##SUFFIX(T* grad, T* input, u64 count) {                         \
        gelu_backward_and_forward<TanhForm<T>>(grad, input, count);                                  \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                  \
        gelu_exact_backward_and_forward##SUFFIX(T* grad, T* input, u64 count) {                        \
        gelu_backward_and_forward<ExactForm<T>>(grad, input, count);                                 \
    }
F32_AND_BF16(MAKE)
#undef MAKE
