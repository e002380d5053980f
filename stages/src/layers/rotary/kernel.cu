// Rotary position embedding, in place. Su et al., "RoFormer" (2021). The formula is the same as on the CPU.

// Turns the first `turned` numbers of a row: whole heads of `width` numbers. `angles` has the cosines of all
// pairs of a head, then their sines. `sign` is -1 to turn by the opposite angles. The numbers of a pair are
// neighbours with PAIRS; otherwise they lie half a head apart. A thread turns eight pairs at a time. WHOLE:
// all eight exist and are aligned.
template <bool PAIRS, bool WHOLE, class T>
void turn_row(T* row, const float* angles, unsigned turned, unsigned width, float sign) {
    const unsigned half = width / 2, parts = (half + 7) / 8;
    for (unsigned i = threadIdx.x; i < turned / width * parts; i += blockDim.x) {
        const unsigned first = i % parts * 8, count = some_of_8(first, half);
        T* x = row + i / parts * width + (PAIRS ? 2 * first : first);
        T* y = x + (PAIRS ? 8 : half);
        const unsigned in_x = PAIRS ? some_of_8(0, 2 * count) : count, in_y = PAIRS ? 2 * count - in_x : count;
        float numbers[16], cosines[8], sines[8];
        float(&xs)[8] = *(float(*)[8])numbers, (&ys)[8] = *(float(*)[8])(numbers + 8);
        load_both(x, in_x, xs, y, in_y, ys, WHOLE);
        load_both(angles + first, count, cosines, angles + half + first, count, sines, WHOLE);
        for (int pair = 0; pair < 8; ++pair) {
            float &one = numbers[PAIRS ? 2 * pair : pair], &other = numbers[PAIRS ? 2 * pair + 1 : pair + 8];
            const float before = one, cosine = cosines[pair], sine = sign * sines[pair];
            one = fmaf(before, cosine, -(other * sine));
            other = fmaf(other, cosine, before * sine);
        }
        store_some(x, in_x, WHOLE, xs);
        store_some(y, in_y, WHOLE, ys);
    }
}

// The table is [positions, width]. A row has `row` numbers. Its position is its index modulo `time`, less the
// number in `starts`, if there are such: where its document begins. A block works on a row.
template <class T>
void turn(T* numbers, const float* table, unsigned time, unsigned row, unsigned turned, unsigned width,
          bool in_pairs, float sign, const unsigned* starts) {
    const bool whole = width % 16 == 0 && row % 8 == 0 && is_aligned(numbers) && is_aligned(table);
    numbers += (u64)blockIdx.x * row;
    table += (u64)(blockIdx.x % time - (starts ? starts[blockIdx.x] : 0)) * width;
    if (in_pairs && whole) turn_row<true, true>(numbers, table, turned, width, sign);
    else if (in_pairs) turn_row<true, false>(numbers, table, turned, width, sign);
    else if (whole) turn_row<false, true>(numbers, table, turned, width, sign);
    else turn_row<false, false>(numbers, table, turned, width, sign);
}

#define ROTARY(T, NAME)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256)                                                       \
        rotary##NAME(T* numbers, const float* table, unsigned time, unsigned row, unsigned turned,          \
                     unsigned width, unsigned in_pairs, float sign, const unsigned* starts) {               \
        turn(numbers, table, time, row, turned, width, in_pairs != 0, sign, starts);                        \
    }
F32_AND_BF16(ROTARY)
