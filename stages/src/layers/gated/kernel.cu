// Gated activations: y = act(a) b for a row [a, b]. Shazeer, "GLU variants improve transformer" (2020). A
// thread works on eight numbers of each half.

// x / (1 + exp(-x)).
template <class T> struct SiluForm {
    static Activated at(float x) {
        float power = exp_of<T>(fminf(-x, 87.0f));
        float gate = quotient<T>(1.0f, 1.0f + power);
        return {x * gate, fmaf(x * gate, power * gate, gate)};
    }
};

// The numbers of a thread, in rows of `width` numbers and in rows of twice that.
struct Halves {
    u64 single, gate, other;
    unsigned count;
    bool whole;

    Halves(u64 rows, unsigned width, const void* a, const void* b) {
        unsigned threads = (width + 7) / 8;
        u64 row = global_thread() / threads;
        unsigned column = 8 * (global_thread() % threads);
        single = row * width + column;
        gate = 2 * row * width + column;
        other = gate + width;
        count = row < rows ? some_of_8(column, width) : 0;
        whole = width % 8 == 0 && is_aligned(a) && is_aligned(b);
    }
};

// out[rows, width] from in[rows, 2, width].
template <class Form, class T> void gated_forward(T* out, const T* in, u64 rows, unsigned width) {
    Halves own(rows, width, out, in);
    float a[8], b[8];
    load_both(in + own.gate, own.count, a, in + own.other, own.count, b, own.whole);
    for (int i = 0; i < 8; ++i) a[i] = Form::at(a[i]).value * b[i];
    store_some(out + own.single, own.count, own.whole, a);
}

// Turns in[rows, 2, width] into its gradient, with the output gradient grad[rows, width]. With AGAIN also
// turns that into the output.
template <class Form, bool AGAIN, class T>
void gated_backward(T* grad, T* in, u64 rows, unsigned width) {
    Halves own(rows, width, grad, in);
    float a[8], b[8], g[8];
    load_both(in + own.gate, own.count, a, in + own.other, own.count, b, own.whole);
    load_some(grad + own.single, own.count, own.whole, g);
    for (int i = 0; i < 8; ++i) {
        Activated gate = Form::at(a[i]);
        float slope = g[i];
        g[i] = gate.value * b[i];
        a[i] = slope * b[i] * gate.derivative;
        b[i] = slope * gate.value;
    }
    store_some(in + own.gate, own.count, own.whole, a);
    store_some(in + own.other, own.count, own.whole, b);
    if (AGAIN) store_some(grad + own.single, own.count, own.whole, g);
}

#define MAKE_FORM(FORM, NAME, T, SUFFIX)                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        gated_##NAME##_forward##SUFFIX(T* out, const T* in, u64 rows, unsigned width) {              \
        gated_forward<FORM<T>>(out, in, rows, width);                                                \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        gated_##NAME##_backward##SUFFIX(T* grad, T* in, u64 rows, unsigned width) {                  \
        gated_backward<FORM<T>, false>(grad, in, rows, width);                                       \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        gated_##NAME##_backward_and_forward##SUFFIX(T* grad, T* in, u64 rows, unsigned width) {      \
        gated_backward<FORM<T>, true>(grad, in, rows, width);                                        \
    }
#define MAKE(T, SUFFIX)                                                                              \
    MAKE_FORM(SiluForm, silu, T, SUFFIX)                                                             \
    MAKE_FORM(TanhForm, gelu_tanh, T, SUFFIX)                                                        \
    MAKE_FORM(ExactForm, gelu, T, SUFFIX)
F32_AND_BF16(MAKE)
#undef MAKE
#undef MAKE_FORM
