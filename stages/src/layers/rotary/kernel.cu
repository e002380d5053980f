// Rotary position embedding, in place. Su et al., "RoFormer" (2021). The formula is the same as on the CPU.
//
// Turns the first `turned` numbers of each row of `row` numbers: whole heads of `width` numbers. The table
// is f32 [positions, width]: for each position, the cosines of all pairs of a head, then their sines. A
// row's position is its index modulo `time`, less the number in `starts`, if there are such: where its document
// begins. `sign` is -1 to turn by the opposite angles. If `in_pairs` is
// set, the numbers of a pair are neighbours; otherwise they lie half a head apart. Grid: a thread for each
// pair, `pairs` in all.
template <class T>
inline void turn_pair(T* numbers, const float* table, u64 pairs, unsigned time, unsigned row, unsigned turned,
                      unsigned width, unsigned in_pairs, float sign, const unsigned* starts) {
    const u64 index = global_thread();
    if (index >= pairs) return;
    const unsigned half = width / 2, in_row = (unsigned)(index % (turned / 2)), pair = in_row % half;
    const u64 row_index = index / (turned / 2);
    const float* angles = table + (row_index % time - (starts ? starts[row_index] : 0)) * width;
    const float cosine = angles[pair], sine = sign * angles[half + pair];
    T* head = numbers + row_index * row + in_row / half * width;
    T* first = head + (in_pairs ? 2 * pair : pair);
    T* second = first + (in_pairs ? 1 : half);
    const float x = load(first), y = load(second);
    store(first, fmaf(x, cosine, -(y * sine)));
    store(second, fmaf(y, cosine, x * sine));
}

#define ROTARY(T, NAME)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256)                                                       \
        rotary##NAME(T* numbers, const float* table, u64 pairs, unsigned time,                              \
                     unsigned row, unsigned turned, unsigned width,                                         \
                     unsigned in_pairs, float sign, const unsigned* starts) {                               \
        turn_pair(numbers, table, pairs, time, row, turned, width, in_pairs, sign, starts);                 \
    }
F32_AND_BF16(ROTARY)
