// For the choice of a product's algorithm: operands, and a comparison of results.

// numbers[count] = numbers of both signs from 2^-7 to 2, which depend on the index and the seed. Their
// exponents differ, so sums are rounded at each addition, and another order of a sum gives other bits.
template <class T> void trial_numbers(T* numbers, u64 count, unsigned seed) {
    for (u64 i = global_thread(); i < count; i += global_threads()) {
        unsigned bits = (unsigned)i * 0x9e3779b1u + seed;
        bits = (bits ^ bits >> 16) * 0x85ebca6bu;
        bits = (bits ^ bits >> 13) * 0xc2b2ae35u;
        bits ^= bits >> 16;
        unsigned exponent = 120u + (bits >> 23 & 7u);
        store(numbers + i, bits_to_float((bits & 0x807fffffu) | exponent << 23));
    }
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        trial_numbers##SUFFIX(T* numbers, u64 count, unsigned seed) {                                \
        trial_numbers(numbers, count, seed);                                                         \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// Sets *differ to 1 if a bit of a[count] and b[count] differs. `differ` may be memory of the host. a and b
// are aligned to 16 bytes. Every block that finds a difference writes the same, so their order is the same
// to the result.
extern "C" __global__ void __launch_bounds__(256)
    find_difference(double* differ, const unsigned short* a, const unsigned short* b, u64 count) {
    unsigned differing = 0;
    for (u64 first = 8 * global_thread(); first < count; first += 8 * global_threads()) {
        unsigned some = some_of_8(first, count);
        if (some == 8) {
            Quad x = *(const Quad*)(a + first), y = *(const Quad*)(b + first);
            for (int i = 0; i < 4; ++i) differing |= x.word[i] ^ y.word[i];
        } else {
            for (unsigned i = 0; i < some; ++i) differing |= a[first + i] ^ b[first + i];
        }
    }
    unsigned threads = block_sum(differing != 0 ? 1u : 0u);
    if (threadIdx.x == 0 && threads > 0) *differ = 1.0;
}
