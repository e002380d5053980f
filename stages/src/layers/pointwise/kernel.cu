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
