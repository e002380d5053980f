// Pools of images [count, height, width, channels]. With max pools, a block works on one place or pixel.

// out[places of all images, channels] = the largest number that the window sees, and found = which of its
// numbers it is: of several the first. NaN counts as the largest.
template <class T> void max_pool(T* out, unsigned* found, const T* images, Windows of) {
    unsigned place = blockIdx.x;
    unsigned left = place % of.columns * of.stride, top = place / of.columns % of.lines * of.stride;
    u64 image = place / of.columns / of.lines;
    images += image * of.height * of.width * of.channels;
    out += (u64)place * of.channels;
    found += (u64)place * of.channels;
    for (unsigned channel = threadIdx.x; channel < of.channels; channel += blockDim.x) {
        float largest = 0.0f;
        unsigned which = ~0u;
        for (unsigned tap = 0; tap < of.taps(); ++tap) {
            unsigned line = top + tap / of.kernel - of.padding, column = left + tap % of.kernel - of.padding;
            if (line >= of.height || column >= of.width) continue;
            float x = load(images + ((u64)line * of.width + column) * of.channels + channel);
            if (which == ~0u || x > largest || x != x) largest = x, which = tap;
        }
        store(out + channel, largest);
        found[channel] = which;
    }
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256) max_pool##SUFFIX(                              \
        T* out, unsigned* found, const T* images, unsigned height, unsigned width,                   \
        unsigned channels, unsigned lines, unsigned columns, unsigned kernel, unsigned stride,       \
        unsigned padding) {                                                                          \
        max_pool(out, found, images,                                                                 \
                 {height, width, channels, lines, columns, kernel, stride, padding});                \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// images = for each number, the sum of the gradients of those places where it was found, in their order.
template <class T> void max_pool_backward(T* images, const T* grads, const unsigned* found, Windows of) {
    unsigned pixel = blockIdx.x;
    unsigned column = pixel % of.width, line = pixel / of.width % of.height;
    u64 image = pixel / of.width / of.height;
    images += (u64)pixel * of.channels;
    for (unsigned channel = threadIdx.x; channel < of.channels; channel += blockDim.x) {
        float sum = 0.0f;
        for (unsigned y = of.first(line); y < of.end(line, of.lines); ++y)
            for (unsigned x = of.first(column); x < of.end(column, of.columns); ++x) {
                unsigned tap = of.tap(line, y) * of.kernel + of.tap(column, x);
                u64 at = ((image * of.lines + y) * of.columns + x) * of.channels + channel;
                if (found[at] == tap) sum += load(grads + at);
            }
        store(images + channel, sum);
    }
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256) max_pool_backward##SUFFIX(                     \
        T* images, const T* grads, const unsigned* found, unsigned height, unsigned width,           \
        unsigned channels, unsigned lines, unsigned columns, unsigned kernel, unsigned stride,       \
        unsigned padding) {                                                                          \
        max_pool_backward(images, grads, found,                                                      \
                          {height, width, channels, lines, columns, kernel, stride, padding});       \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// out[images, channels] = the mean over all pixels. A thread has a channel of an image. It adds up 32 pixels
// in f32, and these sums in f64, as the CPU does.
template <class T>
void global_average(T* out, const T* images, u64 count, unsigned pixels, unsigned channels) {
    u64 at = global_thread();
    if (at >= count) return;
    images += at / channels * pixels * channels + at % channels;
    double sum = 0.0;
    for (unsigned pixel = 0; pixel < pixels;) {
        float few = 0.0f;
        for (unsigned i = 0; i < 32 && pixel < pixels; ++i, ++pixel)
            few += load(images + (u64)pixel * channels);
        sum += few;
    }
    store(out + at, (float)(sum / pixels));
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        global_average##SUFFIX(T* out, const T* images, u64 count, unsigned pixels, unsigned channels) { \
        global_average(out, images, count, pixels, channels);                                        \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// images[gridDim.x, channels] = factor grad of the image, in each pixel. A block works on a pixel.
template <class T>
void global_average_backward(T* images, const T* grad, unsigned pixels, unsigned channels, float factor) {
    images += (u64)blockIdx.x * channels;
    grad += (u64)(blockIdx.x / pixels) * channels;
    for (unsigned channel = threadIdx.x; channel < channels; channel += blockDim.x)
        store(images + channel, factor * load(grad + channel));
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256) global_average_backward##SUFFIX(               \
        T* images, const T* grad, unsigned pixels, unsigned channels, float factor) {                \
        global_average_backward(images, grad, pixels, channels, factor);                             \
    }
F32_AND_BF16(MAKE)
#undef MAKE
