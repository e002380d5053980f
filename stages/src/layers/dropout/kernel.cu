// Dropout. The random numbers are the same as on the CPU: Philox4x32-10, Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3" (SC 2011).

struct Draw {
    unsigned word[4];
};

inline Draw philox(unsigned key_0, unsigned key_1, Draw counter) {
    for (int round = 0; round < 10; ++round) {
        u64 a = 0xD2511F53ull * counter.word[0], b = 0xCD9E8D57ull * counter.word[2];
        counter = {{(unsigned)(b >> 32) ^ counter.word[1] ^ key_0, (unsigned)b,
                    (unsigned)(a >> 32) ^ counter.word[3] ^ key_1, (unsigned)a}};
        key_0 += 0x9E3779B9u;
        key_1 += 0xBB67AE85u;
    }
    return counter;
}

// Zeroes numbers[count] with probability `rate` and multiplies the others by `scale`. In every 64 numbers,
// the four words of counter 16 * (number / 64) + l serve the numbers l, 16 + l, 32 + l and 48 + l. A thread
// has eight counters, one after the other, so it has eight neighbours in each quarter of 64 numbers. The
// blocks may have any size; 64 numbers need two threads.
template <bool WHOLE, class T>
void drop(T* numbers, u64 count, float rate, float scale, unsigned key_0, unsigned key_1, unsigned moment_0,
          unsigned moment_1, unsigned moment_2) {
    u64 counter = 8 * global_thread();
    u64 first = counter / 16 * 64 + counter % 16;
    if (first >= count) return;
    float x[4][8];
    for (int part = 0; part < 4; ++part)
        load_some(numbers + first + 16 * part, some_of_8(first + 16 * part, count), WHOLE, x[part]);
    for (int i = 0; i < 8; ++i) {
        Draw draw = philox(key_0, key_1, {{(unsigned)counter + i, moment_0, moment_1, moment_2}});
        for (int part = 0; part < 4; ++part) {
            float unit = (float)(draw.word[part] >> 8) * (1.0f / 16777216.0f);
            x[part][i] = unit < rate ? 0.0f : x[part][i] * scale;
        }
    }
    for (int part = 0; part < 4; ++part)
        store_some(numbers + first + 16 * part, some_of_8(first + 16 * part, count), WHOLE, x[part]);
}

template <class T>
void dropout(T* numbers, u64 count, float rate, float scale, unsigned key_0, unsigned key_1,
             unsigned moment_0, unsigned moment_1, unsigned moment_2) {
    if (count % 8 == 0 && is_aligned(numbers))
        drop<true>(numbers, count, rate, scale, key_0, key_1, moment_0, moment_1, moment_2);
    else
        drop<false>(numbers, count, rate, scale, key_0, key_1, moment_0, moment_1, moment_2);
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        dropout##SUFFIX(T* numbers, u64 count, float rate, float scale,                              \
                        unsigned key_0, unsigned key_1, unsigned moment_0,                           \
                        unsigned moment_1, unsigned moment_2) {                                      \
        dropout(numbers, count, rate, scale, key_0, key_1, moment_0, moment_1, moment_2);            \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// Drops of some columns of rows what `dropout` drops of them in a whole tensor. numbers[n, start .. start +
// columns] are the numbers whole[first_row + n, whole_start ..] of rows of `whole_width` numbers. A block
// works on a row.
template <class T>
void dropout_columns(T* numbers, u64 width, u64 start, u64 columns, u64 first_row, u64 whole_width,
                     u64 whole_start, float rate, float scale, unsigned key_0, unsigned key_1,
                     unsigned moment_0, unsigned moment_1, unsigned moment_2) {
    numbers += blockIdx.x * width + start;
    u64 before = (first_row + blockIdx.x) * whole_width + whole_start;
    for (u64 column = threadIdx.x; column < columns; column += blockDim.x) {
        u64 place = before + column, within = place % 64;
        unsigned counter = place / 64 * 16 + within % 16;
        Draw draw = philox(key_0, key_1, {{counter, moment_0, moment_1, moment_2}});
        float unit = (float)(draw.word[within / 16] >> 8) * (1.0f / 16777216.0f);
        store(numbers + column, unit < rate ? 0.0f : load(numbers + column) * scale);
    }
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        dropout_columns##SUFFIX(T* numbers, u64 width, u64 start, u64 columns, u64 first_row,        \
                                u64 whole_width, u64 whole_start, float rate, float scale,           \
                                unsigned key_0, unsigned key_1, unsigned moment_0,                   \
                                unsigned moment_1, unsigned moment_2) {                              \
        dropout_columns(numbers, width, start, columns, first_row, whole_width, whole_start, rate,   \
                        scale, key_0, key_1, moment_0, moment_1, moment_2);                          \
    }
F32_AND_BF16(MAKE)
#undef MAKE
