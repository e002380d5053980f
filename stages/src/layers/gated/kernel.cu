// Gated activations: y = act(a) b for a row [a, b]. Shazeer, "GLU variants improve transformer" (2020).

// x / (1 + exp(-x)).
template <class T> struct SiluForm {
    static Activated at(float x) {
        float power = exp_of<T>(fminf(-x, 87.0f));
        float gate = quotient<T>(1.0f, 1.0f + power);
        return {x * gate, fmaf(x * gate, power * gate, gate)};
    }
};

// out[rows, width] from in[rows, 2, width]. A block works on a row. WHOLE: every eight numbers of a thread
// exist and are aligned.
template <class Form, bool WHOLE, class T> void gated_forward_row(T* out, const T* in, unsigned width) {
    for (unsigned column = 8 * threadIdx.x; column < width; column += 8 * blockDim.x) {
        unsigned count = some_of_8(column, width);
        float a[8], b[8];
        load_both(in + column, count, a, in + width + column, count, b, WHOLE);
        for (int i = 0; i < 8; ++i) a[i] = Form::at(a[i]).value * b[i];
        store_some(out + column, count, WHOLE, a);
    }
}

template <class Form, class T> void gated_forward(T* out, const T* in, unsigned width) {
    bool whole = width % 8 == 0 && is_aligned(out) && is_aligned(in);
    out += (u64)blockIdx.x * width;
    in += (u64)blockIdx.x * 2 * width;
    if (whole) gated_forward_row<Form, true>(out, in, width);
    else gated_forward_row<Form, false>(out, in, width);
}

// Turns in[rows, 2, width] into its gradient, with the output gradient grad[rows, width]. With AGAIN also
// turns that into the output. A block works on a row.
template <class Form, bool AGAIN, bool WHOLE, class T>
void gated_backward_row(T* grad, T* in, unsigned width) {
    for (unsigned column = 8 * threadIdx.x; column < width; column += 8 * blockDim.x) {
        unsigned count = some_of_8(column, width);
        float a[8], b[8], g[8];
        load_both(in + column, count, a, in + width + column, count, b, WHOLE);
        load_some(grad + column, count, WHOLE, g);
        for (int i = 0; i < 8; ++i) {
            Activated gate = Form::at(a[i]);
            float slope = g[i];
            g[i] = gate.value * b[i];
            a[i] = slope * b[i] * gate.derivative;
            b[i] = slope * gate.value;
        }
        store_some(in + column, count, WHOLE, a);
        store_some(in + width + column, count, WHOLE, b);
        if (AGAIN) store_some(grad + column, count, WHOLE, g);
    }
}

template <class Form, bool AGAIN, class T> void gated_backward(T* grad, T* in, unsigned width) {
    bool whole = width % 8 == 0 && is_aligned(grad) && is_aligned(in);
    grad += (u64)blockIdx.x * width;
    in += (u64)blockIdx.x * 2 * width;
    if (whole) gated_backward_row<Form, AGAIN, true>(grad, in, width);
    else gated_backward_row<Form, AGAIN, false>(grad, in, width);
}

#define MAKE_FORM(FORM, NAME, T, SUFFIX)                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        gated_##NAME##_forward##SUFFIX(T* out, const T* in, unsigned width) {                        \
        gated_forward<FORM<T>>(out, in, width);                                                \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        gated_##NAME##_backward##SUFFIX(T* grad, T* in, unsigned width) {                  \
        gated_backward<FORM<T>, false>(grad, in, width);                                       \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        gated_##NAME##_backward_and_forward##SUFFIX(T* grad, T* in, unsigned width) {      \
        gated_backward<FORM<T>, true>(grad, in, width);                                        \
    }
#define MAKE(T, SUFFIX)                                                                              \
    MAKE_FORM(SiluForm, silu, T, SUFFIX)                                                             \
    MAKE_FORM(TanhForm, gelu_tanh, T, SUFFIX)                                                        \
    MAKE_FORM(ExactForm, gelu, T, SUFFIX)
F32_AND_BF16(MAKE)
#undef MAKE
#undef MAKE_FORM
