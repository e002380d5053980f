// Building blocks of the fused attention kernels: tiles of bf16 rows in shared memory, and their products on
// tensor cores.
//
// A block has four warps. A tile is a list of rows of WIDTH numbers: 64, 80, 96, 112, 128 or 256. In shared
// memory a row has room for the next power of two. Its 16-byte chunks are permuted: a chunk's index is XORed
// with the row's number modulo 8. So the eight rows that ldmatrix reads at once lie in different banks. A
// warp holds MS x 16 rows of the left matrix and of the result, in the fragments that mma.cu describes.

namespace attention {

constexpr unsigned WARPS = 4, THREADS = 32 * WARPS;
constexpr float LOG2_E = 1.44269504f;

// The room for a row of a tile, in numbers.
template <int WIDTH> constexpr unsigned ROOM = WIDTH <= 64 ? 64 : WIDTH <= 128 ? 128 : 256;

// The factor for scores, 1 / sqrt(WIDTH); then the factor for base 2.
template <int WIDTH> constexpr float SCALE = 0;
template <> constexpr float SCALE<64> = 0.125f;
template <> constexpr float SCALE<80> = 0.111803399f;
template <> constexpr float SCALE<96> = 0.102062073f;
template <> constexpr float SCALE<112> = 0.0944911183f;
template <> constexpr float SCALE<128> = 0.0883883476f;
template <> constexpr float SCALE<256> = 0.0625f;
template <int WIDTH> constexpr float SCALE_2 = SCALE<WIDTH> * LOG2_E;

__forceinline__ float minus_infinity() {
    return bits_to_float(0xff800000u);
}

// The lowest finite number.
__forceinline__ float lowest() {
    return bits_to_float(0xff7fffffu);
}

// Rows of one head in global memory: the first row, the distance between rows in numbers, and how many rows
// there are. With a distance of 32 bits, forward of width 128 would spill on compute capability 8.0.
template <class T> struct Rows {
    T *first;
    u64 stride;
    unsigned count;
};

// What all kernels are told of the heads: the rows of a sequence, the query heads, the key and value heads
// that they share in groups, and how many keys a query sees at most, from 1 to `time`.
struct Heads {
    unsigned time, query, key_value, window;

    // The vectors of a row of the input: queries, keys and values of all heads side by side.
    __forceinline__ unsigned vectors() const {
        return query + 2 * key_value;
    }

    // How many query heads share a key and value head.
    __forceinline__ unsigned group() const {
        return query / key_value;
    }

    // The first key that a query sees.
    __forceinline__ unsigned first_key(unsigned query) const {
        return query < window ? 0 : query + 1 - window;
    }
};

// The rows of a block: those of the document blockIdx.z if documents are APART, and of a sequence of `time`
// rows otherwise. `documents` has the first row and the number of rows of each.
template <bool APART> struct Document {
    u64 first;
    unsigned rows;

    __forceinline__ Document(const unsigned *documents, unsigned time) {
        first = APART ? documents[2 * blockIdx.z] : (u64)blockIdx.z * time;
        rows = APART ? documents[2 * blockIdx.z + 1] : time;
    }
};

// One vector of each row of a document, in `[rows, vectors * WIDTH]`, with some rows before it.
template <int WIDTH, class T>
__forceinline__ Rows<T> rows_of(T *numbers, unsigned vectors, unsigned vector, unsigned time, u64 before = 0) {
    const u64 stride = vectors * WIDTH;
    return {numbers + before * stride + vector * WIDTH, stride, time};
}

// The keys of a key and value head. The values lie key_value vectors further.
template <int WIDTH, class T>
__forceinline__ Rows<T> keys_of(T *numbers, const Heads &heads, unsigned head, u64 before = 0) {
    return rows_of<WIDTH>(numbers, heads.vectors(), heads.query + head, heads.time, before);
}

// The address of a chunk of 8 numbers in a row of a tile.
template <int WIDTH> __forceinline__ unsigned chunk_at(unsigned tile, unsigned row, unsigned chunk) {
    return tile + row * (2 * ROOM<WIDTH>) + chunk / 8 * 128 + ((chunk ^ row) & 7) * 16;
}

// Starts to copy the rows from `first` on into a tile. All threads of the block take part. Rows that do not
// exist become zeros. If TILES is 2, the vectors that lie `apart` vectors further go to the next tile.
template <int ROWS, int WIDTH, int TILES = 1>
__forceinline__ void copy_tiles(unsigned tile, Rows<const bf16> from, unsigned first, unsigned apart = 0) {
    // A thread has the same chunk of several rows: with the rows' room, not their width, that is quickly
    // found.
    constexpr unsigned CHUNKS = ROOM<WIDTH> / 8;
    if (WIDTH < ROOM<WIDTH> && threadIdx.x % CHUNKS >= WIDTH / 8)
        return;
#pragma unroll
    for (unsigned step = 0; step < ROWS * CHUNKS / THREADS; step++) {
        const unsigned i = step * THREADS + threadIdx.x;
        const unsigned row = i / CHUNKS, chunk = i % CHUNKS;
        const bool there = first + row < from.count;
        const bf16 *source =
            from.first + (there ? first + row : 0) * from.stride + chunk * 8;
#pragma unroll
        for (unsigned part = 0; part < TILES; part++)
            cp_async_16(chunk_at<WIDTH>(tile + part * ROWS * 2 * ROOM<WIDTH>, row, chunk),
                        source + part * apart * WIDTH, there ? 16 : 0);
    }
}

// The address that a lane gives ldmatrix for the first fragments of 16 rows of a tile. It serves left and
// right fragments, and fragments of the transposed tile.
template <int WIDTH> __forceinline__ unsigned lane_row(unsigned tile, unsigned row) {
    return chunk_at<WIDTH>(tile, row + lane() % 16, lane() / 16);
}
template <int WIDTH> __forceinline__ unsigned lane_row_turned(unsigned tile, unsigned row) {
    return chunk_at<WIDTH>(tile, row + lane() / 16 * 8 + lane() % 8, lane() / 8 % 2);
}

// The same, `k` fragments of 16 numbers further along the rows. Tiles start at multiples of a row's bytes, so
// one XOR gives the permuted address.
__forceinline__ unsigned further(unsigned address, unsigned k) {
    return address ^ k << 5;
}

// A warp's rows of a tile as the left matrix. They are held in registers, or read when needed.
template <int WIDTH, int MS, bool HELD> struct Left {
    unsigned address;
    unsigned held[HELD ? WIDTH / 16 : 1][MS][4];

    __forceinline__ Left(unsigned tile, unsigned row) : address(lane_row<WIDTH>(tile, row)) {}

    // To be called once the tile is copied.
    __forceinline__ void hold() {
        if constexpr (HELD) {
#pragma unroll
            for (int k = 0; k < WIDTH / 16; k++)
#pragma unroll
                for (int m = 0; m < MS; m++)
                    ldmatrix_x4(held[k][m], further(address, k) + m * 16 * 2 * ROOM<WIDTH>);
        }
    }

    __forceinline__ void get(unsigned (&words)[MS][4], int k) const {
#pragma unroll
        for (int m = 0; m < MS; m++) {
            if constexpr (HELD) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    words[m][i] = held[k][m][i];
            } else {
                ldmatrix_x4(words[m], further(address, k) + m * 16 * 2 * ROOM<WIDTH>);
            }
        }
    }
};

// result = left * transpose of rows `row` to `row + 8 * NS` of the tile.
template <int WIDTH, int MS, int NS, bool HELD>
__forceinline__ void turned_product(float (&result)[MS][NS][4], const Left<WIDTH, MS, HELD> &left,
                                    unsigned tile, unsigned row) {
#pragma unroll
    for (int m = 0; m < MS; m++)
#pragma unroll
        for (int n = 0; n < NS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                result[m][n][i] = 0;
    const unsigned rights = lane_row_turned<WIDTH>(tile, row);
// Fully unrolled, a width of 128 would need too many registers.
#pragma unroll 4
    for (int k = 0; k < WIDTH / 16; k++) {
        unsigned lefts[MS][4];
        left.get(lefts, k);
#pragma unroll
        for (int n = 0; n < NS; n += 2) {
            unsigned right[4];
            ldmatrix_x4(right, further(rights, k) + n * 8 * 2 * ROOM<WIDTH>);
#pragma unroll
            for (int m = 0; m < MS; m++) {
                mma_bf16_16x8x16(result[m][n], lefts[m], right[0], right[1]);
                mma_bf16_16x8x16(result[m][n + 1], lefts[m], right[2], right[3]);
            }
        }
    }
}

// sum += left, rounded to bf16, * rows `row` to `row + 8 * NS` of the tile.
//
// The fragments of a result can serve as fragments of a left matrix: two of 8 columns make one of 16.
template <int WIDTH, int MS, int NS>
__forceinline__ void add_product(float (&sum)[MS][WIDTH / 8][4], const float (&left)[MS][NS][4],
                                 unsigned tile, unsigned row) {
    const unsigned rights = lane_row<WIDTH>(tile, row);
#pragma unroll
    for (int k = 0; k < NS / 2; k++) {
        unsigned lefts[MS][4];
#pragma unroll
        for (int m = 0; m < MS; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float(&pair)[4] = left[m][k * 2 + i / 2];
                lefts[m][i] = pack_bf16x2(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
            }
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n += 2) {
            unsigned right[4];
            ldmatrix_x4_trans(right, further(rights, n / 2) + k * 16 * 2 * ROOM<WIDTH>);
#pragma unroll
            for (int m = 0; m < MS; m++) {
                mma_bf16_16x8x16(sum[m][n], lefts[m], right[0], right[1]);
                mma_bf16_16x8x16(sum[m][n + 1], lefts[m], right[2], right[3]);
            }
        }
    }
}

// Hides the scores of keys that come after the query or before its window. The keys are the columns of a
// warp's scores, or their rows. `ahead` is the sequence position of the first row minus the position of the
// first column.
template <bool KEYS_ARE_ROWS, int MS, int NS>
__forceinline__ void hide(float (&scores)[MS][NS][4], int ahead, int window) {
    // How far the lane's first row is ahead of its first column. The others differ from it by constants.
    const int first = ahead + (int)lane() / 4 - (int)lane() % 4 * 2;
#pragma unroll
    for (int m = 0; m < MS; m++)
#pragma unroll
        for (int n = 0; n < NS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int further = m * 16 + i / 2 * 8 - n * 8 - i % 2;
                const bool is_later = KEYS_ARE_ROWS ? first > -further : first < -further;
                const bool is_too_early = KEYS_ARE_ROWS ? first + window <= -further : first - window >= -further;
                if (is_later || is_too_early)
                    scores[m][n][i] = minus_infinity();
            }
}

// Writes a warp's result, each row times its factor, to the rows from `first` on that exist. It first
// collects the numbers in the tile's rows from `row` on, so that each lane can write 16 bytes at once. Only
// this warp may use those rows of the tile.
template <int WIDTH, int MS>
__forceinline__ void store_rows(Rows<bf16> to, unsigned first, const float (&sum)[MS][WIDTH / 8][4],
                                const float (&factors)[MS][2], unsigned tile, unsigned row) {
    __syncwarp();
#pragma unroll
    for (int m = 0; m < MS; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < WIDTH / 8; n++) {
                const float low = sum[m][n][half * 2] * factors[m][half],
                    high = sum[m][n][half * 2 + 1] * factors[m][half];
                const unsigned at =
                    chunk_at<WIDTH>(tile, row + m * 16 + half * 8 + lane() / 4, n) + lane() % 4 * 4;
                *(unsigned *)(dynamic_shared() + at) = pack_bf16x2(low, high);
            }
    __syncwarp();
    constexpr unsigned CHUNKS = ROOM<WIDTH> / 8;
    if (WIDTH < ROOM<WIDTH> && lane() % CHUNKS >= WIDTH / 8)
        return;
#pragma unroll
    for (unsigned step = 0; step < MS * 16 * CHUNKS / 32; step++) {
        const unsigned i = step * 32 + lane();
        const unsigned own = i / CHUNKS, chunk = i % CHUNKS;
        if (first + own < to.count)
            *(uint4 *)(to.first + (first + own) * to.stride + chunk * 8) =
                *(const uint4 *)(dynamic_shared() + chunk_at<WIDTH>(tile, row + own, chunk));
    }
}

} // namespace attention
