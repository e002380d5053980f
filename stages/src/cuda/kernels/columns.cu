// Some columns of rows. Each thread has one number. Blocks may have any number of threads.

// Where number `i` of [n, columns] is in [n, width], if the columns begin with `start`.
inline u64 in_row(u64 i, u64 width, u64 start, u64 columns) {
    return i / columns * width + start + i % columns;
}

// out[n, columns] = scale * rows[n, start .. start + columns].
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void take_columns##SUFFIX(T* out, const T* rows, u64 count, u64 width,     \
                                                    u64 start, u64 columns, float scale) {           \
        u64 i = global_thread();                                                                     \
        if (i >= count) return;                                                                      \
        store(out + i, scale * load(rows + in_row(i, width, start, columns)));                       \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// rows[n, start .. start + columns] += scale * more[n, columns].
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void add_columns##SUFFIX(T* rows, const T* more, u64 count, u64 width,     \
                                                   u64 start, u64 columns, float scale) {            \
        u64 i = global_thread();                                                                     \
        if (i >= count) return;                                                                      \
        T* at = rows + in_row(i, width, start, columns);                                             \
        store(at, load(at) + scale * load(more + i));                                                \
    }
F32_AND_BF16(MAKE)
#undef MAKE
