// Some columns of rows. A block works on a row, eight numbers a thread at a time. It has any whole number of
// warps.

// out[n, columns] = scale * rows[n, start .. start + columns].
template <class T>
void take_columns(T* out, const T* rows, u64 width, u64 start, u64 columns, float scale) {
    rows += blockIdx.x * width + start;
    out += blockIdx.x * columns;
    bool whole = is_aligned(rows) && is_aligned(out) && columns % 8 == 0;
    for (u64 first = 8 * threadIdx.x; first < columns; first += 8 * blockDim.x) {
        unsigned some = some_of_8(first, columns);
        float x[8];
        load_some(rows + first, some, whole, x);
        for (int i = 0; i < 8; ++i) x[i] *= scale;
        store_some(out + first, some, whole, x);
    }
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        take_columns##SUFFIX(T* out, const T* rows, u64 width, u64 start, u64 columns, float scale) { \
        take_columns(out, rows, width, start, columns, scale);                                       \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// rows[n, start .. start + columns] = from[n, columns].
template <class T> void put_columns(T* rows, const T* from, u64 width, u64 start, u64 columns) {
    rows += blockIdx.x * width + start;
    from += blockIdx.x * columns;
    bool whole = is_aligned(rows) && is_aligned(from) && columns % 8 == 0;
    for (u64 first = 8 * threadIdx.x; first < columns; first += 8 * blockDim.x) {
        unsigned some = some_of_8(first, columns);
        float x[8];
        load_some(from + first, some, whole, x);
        store_some(rows + first, some, whole, x);
    }
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        put_columns##SUFFIX(T* rows, const T* from, u64 width, u64 start, u64 columns) {             \
        put_columns(rows, from, width, start, columns);                                              \
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
