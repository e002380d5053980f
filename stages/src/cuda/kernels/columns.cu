// Some columns of rows. A block works on a row, eight numbers a thread at a time. It has any whole number of
// warps.

// to[n, to_start .. to_start + columns] = scale * from[n, from_start .. from_start + columns]. The rows have
// `to_width` and `from_width` numbers.
template <class T>
void copy_columns(T* to, u64 to_width, u64 to_start, const T* from, u64 from_width, u64 from_start,
                  u64 columns, float scale) {
    to += blockIdx.x * to_width + to_start;
    from += blockIdx.x * from_width + from_start;
    bool whole = is_aligned(to) && is_aligned(from) && columns % 8 == 0;
    for (u64 first = 8 * threadIdx.x; first < columns; first += 8 * blockDim.x) {
        unsigned some = some_of_8(first, columns);
        float x[8];
        load_some(from + first, some, whole, x);
        for (int i = 0; i < 8; ++i) x[i] *= scale;
        store_some(to + first, some, whole, x);
    }
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        copy_columns##SUFFIX(T* to, u64 to_width, u64 to_start, const T* from, u64 from_width,       \
                             u64 from_start, u64 columns, float scale) {                             \
        copy_columns(to, to_width, to_start, from, from_width, from_start, columns, scale);          \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// out[n, width] = sums[n, width] + row[width]. Without a row, only the number format changes.
template <class T> void round_sums(T* out, const float* sums, const float* row, u64 width) {
    out += blockIdx.x * width;
    sums += blockIdx.x * width;
    bool whole = is_aligned(out) && is_aligned(sums) && is_aligned(row) && width % 8 == 0;
    for (u64 first = 8 * threadIdx.x; first < width; first += 8 * blockDim.x) {
        unsigned some = some_of_8(first, width);
        float x[8], y[8];
        load_some(sums + first, some, whole, x);
        load_some(row + first, row ? some : 0, whole, y);
        for (int i = 0; i < 8; ++i) x[i] += y[i];
        store_some(out + first, some, whole, x);
    }
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        round_sums##SUFFIX(T* out, const float* sums, const float* row, u64 width) {                 \
        round_sums(out, sums, row, width);                                                           \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// rows[n, start .. start + columns] += scale * more[n, columns].
template <class T>
void add_columns(T* rows, const T* more, u64 width, u64 start, u64 columns, float scale) {
    rows += blockIdx.x * width + start;
    more += blockIdx.x * columns;
    bool whole = is_aligned(rows) && is_aligned(more) && columns % 8 == 0;
    for (u64 first = 8 * threadIdx.x; first < columns; first += 8 * blockDim.x) {
        unsigned some = some_of_8(first, columns);
        float x[8], y[8];
        load_some(rows + first, some, whole, x);
        load_some(more + first, some, whole, y);
        for (int i = 0; i < 8; ++i) x[i] += scale * y[i];
        store_some(rows + first, some, whole, x);
    }
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        add_columns##SUFFIX(T* rows, const T* more, u64 width, u64 start, u64 columns, float scale) { \
        add_columns(rows, more, width, start, columns, scale);                                       \
    }
F32_AND_BF16(MAKE)
#undef MAKE
