// Numbers of quantised matrices: what `codes.rs` decodes on the CPU, with the same bits.

// The kinds of blocks, in the order of `Quantisation::ALL`.
enum Coding : unsigned {
    OF_F16, OF_BF16, OF_Q4_0, OF_Q4_1, OF_Q5_0, OF_Q5_1, OF_Q8_0, OF_Q2_K, OF_Q3_K, OF_Q4_K, OF_Q5_K, OF_Q6_K,
    OF_NF4
};

struct BlockSize {
    unsigned numbers, bytes;
};

inline BlockSize block_size(unsigned coding) {
    switch (coding) {
        case OF_F16: case OF_BF16: return {32, 64};
        case OF_Q4_0: return {32, 18};
        case OF_Q4_1: return {32, 20};
        case OF_Q5_0: return {32, 22};
        case OF_Q5_1: return {32, 24};
        case OF_Q8_0: return {32, 34};
        case OF_Q2_K: return {256, 84};
        case OF_Q3_K: return {256, 110};
        case OF_Q4_K: return {256, 144};
        case OF_Q5_K: return {256, 176};
        case OF_Q6_K: return {256, 210};
        default: return {64, 36};
    }
}

typedef const unsigned char* Bytes;

// Every block has an even number of bytes, and so is everything of two bytes at an even place.
inline unsigned two_bytes(Bytes from) { return *(const unsigned short*)from; }
inline unsigned four_bytes(Bytes from) { return two_bytes(from) | two_bytes(from + 2) << 16; }

// The number of binary16.
inline float of_half(unsigned bits) {
#if defined(PIPEWRIGHT_HOST)
    unsigned exponent = bits >> 10 & 31u, fraction = bits & 1023u, sign = (bits & 0x8000u) << 16;
    if (exponent == 0) {
        float small = (float)fraction * 5.9604644775390625e-8f;
        return bits_to_float(float_to_bits(small) | sign);
    }
    unsigned wide = exponent == 31u ? 255u : exponent + 112u;
    return bits_to_float(sign | wide << 23 | fraction << 13);
#else
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)bits));
    return x;
#endif
}
inline float half_at(Bytes from) { return of_half(two_bytes(from)); }

// The lowest bits, as the mask says, of eight bytes that are shifted.
inline void levels_of(Bytes from, unsigned shift, unsigned mask, unsigned (&levels)[8]) {
    for (int i = 0; i < 8; i += 2) {
        unsigned pair = two_bytes(from + i);
        levels[i] = pair >> shift & mask;
        levels[i + 1] = pair >> (8 + shift) & mask;
    }
}

// The same of pieces of 32 numbers in 16 bytes: the low halves of the bytes, then their high halves.
inline void nibbles_of(Bytes from, unsigned first, unsigned (&levels)[8]) {
    levels_of(from + first % 16, first < 16 ? 0 : 4, 15, levels);
}

// Adds a bit of each of eight bytes.
inline void add_bits(Bytes from, unsigned bit, unsigned place, unsigned (&levels)[8]) {
    unsigned more[8];
    levels_of(from, bit, 1, more);
    for (int i = 0; i < 8; ++i) levels[i] |= more[i] << place;
}

inline void add_fifth(unsigned fifth, unsigned first, unsigned (&levels)[8]) {
    for (int i = 0; i < 8; ++i) levels[i] |= (fifth >> (first + i) & 1u) << 4;
}

inline void scaled(const unsigned (&levels)[8], float scale, int middle, float (&x)[8]) {
    for (int i = 0; i < 8; ++i) x[i] = scale * (float)((int)levels[i] - middle);
}

// Rounded twice, as on the CPU: in one instruction with the addition, a product would not be rounded. So is
// the product in each `least`.
inline void from_least(const unsigned (&levels)[8], float scale, float least, float (&x)[8]) {
    for (int i = 0; i < 8; ++i) x[i] = __fmul_rn(scale, (float)levels[i]) + least;
}

// Of Q3_K: the scale of 16 numbers, before it is scaled itself.
inline float third_scale(Bytes own, unsigned at) {
    unsigned low = at < 8 ? own[at] & 15u : own[at - 8] >> 4;
    unsigned high = own[8 + at % 4] >> (2 * (at / 4)) & 3u;
    return (float)((int)(low | high << 4) - 32);
}

// Of Q4_K and Q5_K: the scale and the least value of 32 numbers.
inline void sixth_scales(Bytes block, unsigned piece, float& scale, float& least) {
    Bytes own = block + 4;
    unsigned level, of_least;
    if (piece < 4) {
        level = own[piece] & 63u, of_least = own[piece + 4] & 63u;
    } else {
        level = (own[piece + 4] & 15u) | (own[piece - 4] >> 6) << 4;
        of_least = (own[piece + 4] >> 4) | (own[piece] >> 6) << 4;
    }
    scale = half_at(block) * (float)level;
    least = -__fmul_rn(half_at(block + 2), (float)of_least);
}

// The levels of 4-bit NormalFloat: the digits of `codes.rs`.
const float NF4_LEVELS[16] = {-1.0f,         -0.6961928f,  -0.52507305f,  -0.3949175f,
                              -0.28444138f,  -0.18477343f, -0.091050036f, 0.0f,
                              0.0795803f,    0.1609302f,   0.2461123f,    0.33791524f,
                              0.44070983f,   0.562617f,    0.72295684f,   1.0f};

// Eight numbers of a block, from this one on, which is a multiple of eight.
__forceinline__ void decode_eight(Bytes block, unsigned coding, unsigned at, float (&x)[8]) {
    unsigned piece = at / 32, first = at % 32, levels[8];
    float scale, least;
    switch (coding) {
        case OF_F16:
            for (int i = 0; i < 8; ++i) x[i] = half_at(block + 2 * (first + i));
            return;
        case OF_BF16:
            for (int i = 0; i < 8; ++i) x[i] = bits_to_float(two_bytes(block + 2 * (first + i)) << 16);
            return;
        case OF_Q4_0:
            nibbles_of(block + 2, first, levels);
            return scaled(levels, half_at(block), 8, x);
        case OF_Q4_1:
            nibbles_of(block + 4, first, levels);
            return from_least(levels, half_at(block), half_at(block + 2), x);
        case OF_Q5_0:
            nibbles_of(block + 6, first, levels);
            add_fifth(four_bytes(block + 2), first, levels);
            return scaled(levels, half_at(block), 16, x);
        case OF_Q5_1:
            nibbles_of(block + 8, first, levels);
            add_fifth(four_bytes(block + 4), first, levels);
            return from_least(levels, half_at(block), half_at(block + 2), x);
        case OF_Q8_0:
            // With 128 more each, the bytes count from 0.
            levels_of(block + 2 + first, 0, 255, levels);
            for (int i = 0; i < 8; ++i) levels[i] ^= 128u;
            return scaled(levels, half_at(block), 128, x);
        case OF_Q2_K: {
            unsigned own = block[2 * piece + first / 16];
            levels_of(block + 16 + 32 * (piece / 4) + first, 2 * (piece % 4), 3, levels);
            scale = half_at(block + 80) * (float)(own & 15u);
            least = -__fmul_rn(half_at(block + 82), (float)(own >> 4));
            return from_least(levels, scale, least, x);
        }
        case OF_Q3_K:
            levels_of(block + 32 + 32 * (piece / 4) + first, 2 * (piece % 4), 3, levels);
            add_bits(block + first, piece, 2, levels);
            scale = half_at(block + 108) * third_scale(block + 96, 2 * piece + first / 16);
            return scaled(levels, scale, 4, x);
        case OF_Q4_K:
            levels_of(block + 16 + 32 * (piece / 2) + first, 4 * (piece % 2), 15, levels);
            sixth_scales(block, piece, scale, least);
            return from_least(levels, scale, least, x);
        case OF_Q5_K:
            levels_of(block + 48 + 32 * (piece / 2) + first, 4 * (piece % 2), 15, levels);
            add_bits(block + 16 + first, piece, 4, levels);
            sixth_scales(block, piece, scale, least);
            return from_least(levels, scale, least, x);
        case OF_Q6_K: {
            unsigned half = piece / 4, place = piece % 4, high[8];
            levels_of(block + 64 * half + 32 * (place % 2) + first, place < 2 ? 0 : 4, 15, levels);
            levels_of(block + 128 + 32 * half + first, 2 * place, 3, high);
            for (int i = 0; i < 8; ++i) levels[i] |= high[i] << 4;
            int own = (int)(block[192 + 2 * piece + first / 16] ^ 128u) - 128;
            return scaled(levels, half_at(block + 208) * (float)own, 32, x);
        }
        default: {
            float largest = bits_to_float(four_bytes(block));
            nibbles_of(block + 4 + 16 * piece, first, levels);
            for (int i = 0; i < 8; ++i) x[i] = NF4_LEVELS[levels[i]] * largest;
        }
    }
}

// out[.., columns] = `eights` times eight numbers of a matrix: of its first rows, or, if there is a list of
// rows, of these. A row has whole blocks. A thread decodes eight numbers.
template <class T>
void decode_blocks(T* out, Bytes blocks, const unsigned* rows, u64 eights, unsigned columns,
                   unsigned coding) {
    u64 index = global_thread();
    if (index >= eights) return;
    unsigned of_row = columns / 8, column = 8 * (unsigned)(index % of_row);
    u64 row = index / of_row;
    if (rows) row = rows[row];
    BlockSize size = block_size(coding);
    Bytes block = blocks + (row * (columns / size.numbers) + column / size.numbers) * size.bytes;
    float x[8];
    decode_eight(block, coding, column % size.numbers, x);
    store_all(out + 8 * index, x);
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        decode_blocks##SUFFIX(T* out, const unsigned char* blocks, const unsigned* rows, u64 eights, \
                              unsigned columns, unsigned coding) {                                   \
        decode_blocks(out, blocks, rows, eights, columns, coding);                                   \
    }
F32_AND_BF16(MAKE)
#undef MAKE
