// Fused causal attention, forward, for Hopper: wgmma, copies by the tensor memory accelerator, and warpgroups
// with roles, as in Shah et al., "FlashAttention-3" (2024).
//
// A block takes 64 query rows of a head for each of its computing warpgroups. One more warpgroup copies: a
// thread of it starts the copies of tiles of 128 keys and of their values, up to two tiles ahead. Barriers in
// shared memory say which tiles are there, and which places are free again. While the values of a tile are
// added up, a warpgroup makes the softmax of the next tile.
//
// A tile in shared memory has parts of 64 columns, and a part has a row of 128 bytes for each key. Its
// 16-byte chunks are permuted as in tiles.cu, which is the swizzle of 128 bytes of copies and of wgmma.

#if defined(PIPEWRIGHT_HOST) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

namespace attention {

// The sizes of the kernel for a head width.
template <int WIDTH> struct Hopper {
    // The warpgroups that compute, and the registers of their threads and of those that copy. Together they
    // have no more than a multiprocessor.
    static constexpr unsigned GROUPS = WIDTH == 64 ? 3 : 2;
    static constexpr unsigned MORE = WIDTH == 64 ? 160 : 240, FEWER = WIDTH == 64 ? 32 : 24;
    static constexpr unsigned ROWS = 64, QUERIES = ROWS * GROUPS, KEYS = 128, STAGES = 2;
    static constexpr unsigned THREADS = 128 * (GROUPS + 1), PARTS = WIDTH / 64;
    // Bytes of a box, which a copy takes; of the queries of a warpgroup; of a tile of keys.
    static constexpr unsigned BOX = ROWS * 128, OF_GROUP = ROWS * WIDTH * 2, TILE = KEYS * WIDTH * 2;
    // In shared memory queries come first, then the keys and values of each stage, then the barriers.
    static constexpr unsigned TILES = GROUPS * OF_GROUP, BARRIERS = TILES + STAGES * 2 * TILE;
};

// Where the tile of a stage is, and its barriers: it is there, it is free. `which`: 0 for keys, 1 for values.
template <int WIDTH> struct Slot {
    unsigned tile, there, is_free, parity;

    // Of the i-th tile of a block.
    __forceinline__ Slot(unsigned i, unsigned which) {
        using Its = Hopper<WIDTH>;
        const unsigned at = i % Its::STAGES * 2 + which;
        tile = Its::TILES + at * Its::TILE;
        there = Its::BARRIERS + 8 + at * 16;
        is_free = there + 8;
        parity = i / Its::STAGES % 2;
    }
};

// What a warpgroup multiplies in shared memory: the address, and the distance between groups of 8 rows of 128
// bytes. PARTS_APART is the distance between parts of 64 columns, where a product takes columns of several
// parts. PTX ISA, "Matrix Descriptor Format": all are divided by 16, and 1 << 62 is the swizzle of 128 bytes.
__forceinline__ u64 matrix(unsigned address, unsigned parts_apart) {
    const u64 start = (shared_address(address) & 0x3ffff) / 16;
    return start | (u64)(parts_apart / 16) << 16 | (u64)(1024 / 16) << 32 | (u64)1 << 62;
}

template <int N> __forceinline__ float (&flat(float (&sum)[1][N][4]))[4 * N] {
    return *(float(*)[4 * N]) & sum;
}

// The compiler does not move what makes or uses these numbers across this place. It does not know that
// products write their sums until they are waited for.
template <unsigned N> __forceinline__ void pin(float (&numbers)[N]) {
#if !defined(PIPEWRIGHT_HOST)
#pragma unroll
    for (unsigned i = 0; i < N; i++)
        asm volatile("" : "+f"(numbers[i])::"memory");
#endif
}

// Starts scores = queries * transpose of the keys.
template <int WIDTH>
__forceinline__ void start_scores(float (&scores)[1][16][4], unsigned queries, unsigned keys) {
    using Its = Hopper<WIDTH>;
    const u64 left = matrix(queries, 0), right = matrix(keys, 0);
    wgmma_fence();
#pragma unroll
    for (unsigned k = 0; k < WIDTH / 16; k++)
        wgmma<Its::KEYS, false>(flat(scores), left + (k / 4 * Its::BOX + k % 4 * 32) / 16,
                                right + (k / 4 * (Its::KEYS * 128) + k % 4 * 32) / 16, k > 0);
    wgmma_commit();
}

// Starts sum += powers * values.
template <int WIDTH>
__forceinline__ void start_sum(float (&sum)[1][WIDTH / 8][4], const unsigned (&powers)[8][4],
                               unsigned values) {
    const u64 right = matrix(values, Hopper<WIDTH>::KEYS * 128);
    wgmma_fence();
#pragma unroll
    for (unsigned k = 0; k < 8; k++)
        wgmma<WIDTH, true>(flat(sum), powers[k], right + k * (16 * 128 / 16), true);
    wgmma_commit();
}

// The scores as fragments of a left matrix: see `add_product`.
__forceinline__ void round_powers(unsigned (&powers)[8][4], const float (&scores)[1][16][4]) {
#pragma unroll
    for (unsigned k = 0; k < 8; k++)
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
            const float(&pair)[4] = scores[0][k * 2 + i / 2];
            powers[k][i] = pack_bf16x2(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
        }
}

// The thread that copies: all queries of the block, then its tiles of keys and values.
template <int WIDTH, bool APART>
__forceinline__ void copy_all(const TensorMap &qkv, const Heads &all, const Document<APART> &document,
                              unsigned first, unsigned begin, unsigned end) {
    using Its = Hopper<WIDTH>;
    const int before = APART ? (int)document.first : 0, sequence = APART ? 0 : (int)blockIdx.z;
    // Copies ROWS rows of a vector.
    const auto copy = [&](unsigned to, unsigned apart, unsigned barrier, unsigned vector, unsigned row) {
#pragma unroll
        for (unsigned part = 0; part < Its::PARTS; part++)
            tensor_load(to + part * apart, qkv, barrier, (int)part * 64, (int)vector, before + (int)row,
                        sequence);
    };
    barrier_expect(Its::BARRIERS, Its::TILES);
    for (unsigned group = 0; group < Its::GROUPS; group++)
        copy(group * Its::OF_GROUP, Its::BOX, Its::BARRIERS, blockIdx.y, first + group * Its::ROWS);
    const unsigned head = all.query + blockIdx.y / all.group();
    for (unsigned tile = begin; tile < end; tile++)
        for (unsigned which = 0; which < 2; which++) {
            const unsigned i = tile - begin, vector = head + which * all.key_value;
            const Slot<WIDTH> slot(i, which);
            if (i >= Its::STAGES)
                barrier_wait(slot.is_free, slot.parity ^ 1);
            barrier_expect(slot.there, Its::TILE);
            for (unsigned row = 0; row < Its::KEYS; row += Its::ROWS)
                copy(slot.tile + row * 128, Its::KEYS * 128, slot.there, vector, tile * Its::KEYS + row);
        }
}

// Sets the values of rows that are no more of the document to zero: times a power of 0, NaN would be NaN. All
// computing warpgroups do it together.
template <int WIDTH> __forceinline__ void clear_rows(unsigned values, unsigned rows) {
    using Its = Hopper<WIDTH>;
    for (unsigned i = rows * 8 + threadIdx.x - 128; i < Its::KEYS * 8; i += 128 * Its::GROUPS)
#pragma unroll
        for (unsigned part = 0; part < Its::PARTS; part++)
            store_quad(dynamic_shared() + values + part * (Its::KEYS * 128) + i * 16, {});
    shared_fence();
    named_barrier(1, 128 * Its::GROUPS);
}

// A warpgroup that computes the query rows from `own` on.
template <int WIDTH, bool APART>
__forceinline__ void attend(bf16 *out, float *lse, const Heads &all, const Document<APART> &document,
                            unsigned group, unsigned first, unsigned begin, unsigned end) {
    using Its = Hopper<WIDTH>;
    const unsigned row = group * Its::ROWS + threadIdx.x / 32 % 4 * 16, own = first + row;
    const unsigned queries = group * Its::OF_GROUP, seen = first + group * Its::ROWS;
    // The tiles that a row of this warpgroup sees. The others it only lets pass.
    const unsigned own_end = seen < document.rows ? min(end, seen / Its::KEYS + 1) : begin;
    const unsigned own_begin = min(own_end, all.first_key(seen) / Its::KEYS);

    const auto wait = [&](unsigned tile, unsigned which) {
        const Slot<WIDTH> slot(tile - begin, which);
        barrier_wait(slot.there, slot.parity);
        if (APART && which == 1 && (tile + 1) * Its::KEYS > document.rows)
            clear_rows<WIDTH>(slot.tile, document.rows - tile * Its::KEYS);
        return slot.tile;
    };
    const auto release = [&](unsigned tile, unsigned which) {
        if (lane() == 0)
            barrier_arrive(Slot<WIDTH>(tile - begin, which).is_free);
    };
    const auto pass = [&](unsigned from, unsigned to) {
        for (unsigned tile = from; tile < to; tile++)
            for (unsigned which = 0; which < 2; which++) {
                wait(tile, which);
                release(tile, which);
            }
    };

    float sum[1][WIDTH / 8][4] = {}, scores[1][16][4], corrections[2];
    unsigned powers[8][4];
    Softmax<1> softmax = {{{lowest(), lowest()}}, {{0, 0}}};
    // Makes powers of finished scores, and waits for the keys of the next tile.
    const auto make_powers = [&](unsigned tile) {
        pin(flat(scores));
        release(tile, 0);
        const int ahead = (int)own - (int)(tile * Its::KEYS), window = all.window;
        if (ahead < (int)Its::KEYS - 1 || ahead + 16 > window)
            hide<false>(scores, ahead, window);
        const auto correct = [&](int, int half, float correction) { corrections[half] = correction; };
        soften<WIDTH>(scores, softmax, correct);
        // A wait here keeps the assembler from making the powers only after the sums are waited for.
        pin(flat(scores));
        if (tile + 1 < own_end)
            wait(tile + 1, 0);
    };

    barrier_wait(Its::BARRIERS, 0);
    pass(begin, own_begin);
    if (own_begin < own_end) {
        start_scores<WIDTH>(scores, queries, wait(own_begin, 0));
        wgmma_wait<0>();
        make_powers(own_begin);
        round_powers(powers, scores);
        for (unsigned tile = own_begin + 1; tile < own_end; tile++) {
            start_scores<WIDTH>(scores, queries, Slot<WIDTH>(tile - begin, 0).tile);
            start_sum<WIDTH>(sum, powers, wait(tile - 1, 1));
            wgmma_wait<1>();
            make_powers(tile);
            wgmma_wait<0>();
            pin(flat(sum));
            release(tile - 1, 1);
#pragma unroll
            for (int n = 0; n < WIDTH / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    sum[0][n][i] *= corrections[i / 2];
            round_powers(powers, scores);
        }
        start_sum<WIDTH>(sum, powers, wait(own_end - 1, 1));
        wgmma_wait<0>();
        pin(flat(sum));
        release(own_end - 1, 1);
    }
    pass(own_end, end);

    float factors[1][2];
    lse += document.first * all.query + (u64)blockIdx.y * document.rows;
    finish(factors, softmax, lse, own, document.rows);
    // The rows are collected where this warpgroup's queries were.
    named_barrier(2 + group, 128);
    const Rows<bf16> rows = rows_of<WIDTH>(out, all.query, blockIdx.y, document.rows, document.first);
    store_rows<WIDTH>(rows, own, sum, factors, 0, row);
}

template <int WIDTH, bool APART>
__forceinline__ void forward_hopper(const TensorMap &qkv, bf16 *out, float *lse, const Heads &all,
                                    const unsigned *documents) {
    using Its = Hopper<WIDTH>;
    const Document<APART> document(documents, all.time);
    // Starts with the longest rows.
    const unsigned first = (gridDim.x - 1 - blockIdx.x) * Its::QUERIES;
    if (APART && first >= document.rows)
        return;
    const unsigned begin = all.first_key(first) / Its::KEYS;
    const unsigned end = (min(first + Its::QUERIES, document.rows) + Its::KEYS - 1) / Its::KEYS;
    if (threadIdx.x == 0) {
#if !defined(PIPEWRIGHT_HOST)
        // Swizzles count from multiples of 1024 bytes. CUDA's own kilobyte comes before, and nothing else.
        if (shared_address(0) % 1024 != 0)
            __trap();
#endif
        barrier_init(Its::BARRIERS, 1);
        for (unsigned i = 0; i < Its::STAGES; i++)
            for (unsigned which = 0; which < 2; which++) {
                const Slot<WIDTH> slot(i, which);
                barrier_init(slot.there, 1);
                // A lane of each warp that computes.
                barrier_init(slot.is_free, 4 * Its::GROUPS);
            }
        barrier_init_fence();
        tensor_prefetch(qkv);
    }
    __syncthreads();
    // The same for all lanes, so that the compiler has it once for a warp.
    const unsigned role = __shfl_sync(ALL_LANES, threadIdx.x / 128, 0);
    if (role == 0) {
        registers_fewer<Its::FEWER>();
        if (threadIdx.x == 0)
            copy_all<WIDTH>(qkv, all, document, first, begin, end);
    } else {
        registers_more<Its::MORE>();
        attend<WIDTH>(out, lse, all, document, role - 1, first, begin, end);
    }
}

} // namespace attention

// As the kernels in forward.cu, with the same arguments but for `qkv`, which comes first: a map of
// `[batch, time, vectors, width]`, or for `apart` of `[1, batch * time, vectors, width]`, with boxes of 64
// rows and 64 columns of a vector and the swizzle of 128 bytes. The grid's x is ceil(time / 192) for width 64
// and ceil(time / 128) for width 128. A block has 512 or 384 threads, and 88 or 160 KiB and 72 bytes of
// dynamic shared memory.
#define ATTENTION_FORWARD_HOPPER(WIDTH, NAME, APART)                                                         \
    extern "C" __global__ void __launch_bounds__(attention::Hopper<WIDTH>::THREADS, 1)                       \
        attention_forward_hopper_##NAME##_bf16(const __grid_constant__ TensorMap qkv, bf16 *out, float *lse, \
                                               unsigned time, unsigned query, unsigned key_value,            \
                                               unsigned window, const unsigned *documents) {                 \
        attention::forward_hopper<WIDTH, APART>(qkv, out, lse, {time, query, key_value, window}, documents); \
    }
#define ATTENTION_FORWARDS_HOPPER(WIDTH)                \
    ATTENTION_FORWARD_HOPPER(WIDTH, WIDTH, false)       \
    ATTENTION_FORWARD_HOPPER(WIDTH, apart_##WIDTH, true)
ATTENTION_FORWARDS_HOPPER(64)
ATTENTION_FORWARDS_HOPPER(128)

#endif
