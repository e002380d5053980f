// The logistic sigmoid and its derivative. The grids are the same as in elementwise.cu.

// 1 / (1 + exp(-x)).
template <class T> struct SigmoidForm {
    static Activated at(float x) {
        float power = exp_of<T>(x < -87.0f ? 87.0f : -x);  // fminf would lose NaN
        float value = quotient<T>(1.0f, 1.0f + power);
        return {value, value * (power * value)};
    }
};

// out = sigmoid(input), each [count].
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        sigmoid_forward##SUFFIX(T* out, const T* input, u64 count) {                                 \
        map(out, input, count, [](float x) { return SigmoidForm<T>::at(x).value; });                 \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// grad *= sigmoid'(input), each [count].
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        sigmoid_backward##SUFFIX(T* grad, const T* input, u64 count) {                               \
        map_two(grad, grad, input, count,                                                            \
                [](float g, float x) { return g * SigmoidForm<T>::at(x).derivative; });              \
    }
F32_AND_BF16(MAKE)
#undef MAKE
