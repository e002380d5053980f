// Convolutions, as products of rows that hold what a window sees at one place, in the order of the weights:
// [inputs, kernel, kernel]. Images are [count, height, width, channels]. A block works on one place or pixel.

// Images, and a window that moves over them.
struct Windows {
    unsigned height, width, channels;
    // How many places the window has along both sides.
    unsigned lines, columns;
    unsigned kernel, stride, padding;

    unsigned taps() const { return kernel * kernel; }
    unsigned row() const { return channels * taps(); }
    // The first place whose window reaches this line or column, and the place behind the last one.
    unsigned first(unsigned at) const {
        unsigned end = at + padding + 1;
        return end > kernel ? (end - kernel + stride - 1) / stride : 0;
    }
    unsigned end(unsigned at, unsigned places) const {
        unsigned end = (at + padding) / stride + 1;
        return end < places ? end : places;
    }
    // Where in the window at this place the line or column is.
    unsigned tap(unsigned at, unsigned place) const { return at + padding - place * stride; }
};

// out[places of all images, channels, kernel, kernel] = what the windows see, and zeros outside of an image.
template <class T> void take_windows(T* out, const T* images, Windows of) {
    unsigned place = blockIdx.x;
    unsigned left = place % of.columns * of.stride, top = place / of.columns % of.lines * of.stride;
    u64 image = place / of.columns / of.lines;
    images += image * of.height * of.width * of.channels;
    out += (u64)place * of.row();
    for (unsigned i = threadIdx.x; i < of.row(); i += blockDim.x) {
        unsigned tap = i % of.taps(), channel = i / of.taps();
        // What is outside wraps round, to more than any side.
        unsigned line = top + tap / of.kernel - of.padding, column = left + tap % of.kernel - of.padding;
        bool is_inside = line < of.height && column < of.width;
        out[i] = is_inside ? images[((u64)line * of.width + column) * of.channels + channel] : T();
    }
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256) take_windows##SUFFIX(                          \
        T* out, const T* images, unsigned height, unsigned width, unsigned channels, unsigned lines, \
        unsigned columns, unsigned kernel, unsigned stride, unsigned padding) {                      \
        take_windows(out, images, {height, width, channels, lines, columns, kernel, stride, padding}); \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// images = for each number, the sum over the windows that see it, in the order of their places. It is rounded
// once. rows[places of all images, channels, kernel, kernel].
template <class T> void sum_windows(T* images, const float* rows, Windows of) {
    unsigned pixel = blockIdx.x;
    unsigned column = pixel % of.width, line = pixel / of.width % of.height;
    u64 image = pixel / of.width / of.height;
    rows += image * of.lines * of.columns * of.row();
    images += (u64)pixel * of.channels;
    for (unsigned channel = threadIdx.x; channel < of.channels; channel += blockDim.x) {
        float sum = 0.0f;
        for (unsigned y = of.first(line); y < of.end(line, of.lines); ++y)
            for (unsigned x = of.first(column); x < of.end(column, of.columns); ++x) {
                unsigned tap = of.tap(line, y) * of.kernel + of.tap(column, x);
                u64 place = (u64)y * of.columns + x;
                sum += rows[place * of.row() + channel * of.taps() + tap];
            }
        store(images + channel, sum);
    }
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256) sum_windows##SUFFIX(                           \
        T* images, const float* rows, unsigned height, unsigned width, unsigned channels,            \
        unsigned lines, unsigned columns, unsigned kernel, unsigned stride, unsigned padding) {      \
        sum_windows(images, rows, {height, width, channels, lines, columns, kernel, stride, padding}); \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// out[gridDim.x, columns] = bias[columns] in each row.
template <class T> void repeat_row(T* out, const T* bias, unsigned columns) {
    out += (u64)blockIdx.x * columns;
    for (unsigned column = threadIdx.x; column < columns; column += blockDim.x) out[column] = bias[column];
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        repeat_row##SUFFIX(T* out, const T* bias, unsigned columns) {                                \
        repeat_row(out, bias, columns);                                                              \
    }
F32_AND_BF16(MAKE)
#undef MAKE
