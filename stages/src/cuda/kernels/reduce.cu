// Sums over many numbers. Their order depends only on how many there are: several blocks sum the parts, then
// one block sums the partial sums.

// out[columns] = the sum of in[rows, columns] over rows; with ADD it is added to `out`. A block of 32 x 32
// threads has 32 columns.
template <bool ADD> void sum_rows(float* out, const float* in, unsigned rows, unsigned columns) {
    __shared__ float sums[32][33];
    unsigned column = blockIdx.x * 32 + lane();
    float sum = 0.0f;
    if (column < columns)
        for (unsigned row = warp(); row < rows; row += 32) sum += in[(u64)row * columns + column];
    sums[warp()][lane()] = sum;
    __syncthreads();
    // Transposed: now each warp has one column.
    sum = warp_sum(sums[lane()][warp()]);
    column = blockIdx.x * 32 + warp();
    if (lane() == 0 && column < columns) out[column] = ADD ? out[column] + sum : sum;
}
extern "C" __global__ void __launch_bounds__(1024)
    sum_rows_f32(float* out, const float* in, unsigned rows, unsigned columns) {
    sum_rows<false>(out, in, rows, columns);
}
extern "C" __global__ void __launch_bounds__(1024)
    add_rows_f32(float* out, const float* in, unsigned rows, unsigned columns) {
    sum_rows<true>(out, in, rows, columns);
}

// The columns and rows that a thread of a block of 8 warps adds up, of a slice of `slice` rows. A block has
// 256 columns. A thread has eight, and a warp every eighth row.
struct SumOfColumns {
    unsigned column, count;
    u64 row, end;
    float sum[8] = {};

    SumOfColumns(u64 rows, unsigned columns, unsigned slice) {
        column = blockIdx.x * 256 + lane() * 8;
        count = some_of_8(column, columns);
        u64 first = (u64)blockIdx.y * slice;
        row = first + warp();
        end = first + slice < rows ? first + slice : rows;
    }

    // partials[gridDim.y, columns] = the sums of all warps. All threads of the block must call it, once.
    void store(float* partials, unsigned columns) {
        __shared__ float sums[8][8][32];
        for (int i = 0; i < 8; ++i) sums[warp()][i][lane()] = sum[i];
        __syncthreads();
        if (warp() > 0) return;
        for (int i = 0; i < 8; ++i)
            for (int other = 1; other < 8; ++other) sum[i] += sums[other][i][lane()];
        store_some(partials + (u64)blockIdx.y * columns + column, count, false, sum);
    }
};

// partials[gridDim.y, columns] = the sums of in[rows, columns] over slices of `slice` rows.
template <class T>
void column_sums(float* partials, const T* in, u64 rows, unsigned columns, unsigned slice) {
    SumOfColumns sums(rows, columns, slice);
    bool whole = columns % 8 == 0 && is_aligned(in);
#pragma unroll 4
    for (u64 row = sums.row; row < sums.end; row += 8) {
        float x[8];
        load_some(in + row * columns + sums.column, sums.count, whole, x);
        for (int i = 0; i < 8; ++i) sums.sum[i] += x[i];
    }
    sums.store(partials, columns);
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        column_sums##SUFFIX(float* partials, const T* in, u64 rows, unsigned columns, unsigned slice) { \
        column_sums(partials, in, rows, columns, slice);                                             \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// The sums of the squares of numbers[count], for `piece` consecutive ones each, of many parameters in a
// launch. A block of whole warps for each piece. `out` may be memory of the host.
struct Squared {
    double* out;
    const float* numbers;
    u64 count;
};
extern "C" __global__ void __launch_bounds__(512)
    sum_squares(const __grid_constant__ Together<Squared> together, u64 piece) {
    unsigned block;
    const Squared& of = entry_of(together, block);
    u64 end = (block + 1) * piece < of.count ? (block + 1) * piece : of.count;
    double sum = 0.0;
    for (u64 first = block * piece + 8 * threadIdx.x; first < end; first += 8 * blockDim.x) {
        unsigned some = some_of_8(first, end);
        float x[8];
        load_some(of.numbers + first, some, some == 8 && is_aligned(of.numbers), x);
        for (int i = 0; i < 8; ++i) sum = fma((double)x[i], (double)x[i], sum);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) of.out[block] = sum;
}

// The sums of the squares of some blocks of rows and columns of numbers, of many parameters in a launch.
// table: for each of `count` sums its first block, then the number of blocks, then the blocks. A thread block
// of whole warps for each sum. `out` may be memory of the host.
struct SquaredParts {
    double* out;
    const float* numbers;
    const u64* table;
    u64 count;
};
extern "C" __global__ void __launch_bounds__(512)
    sum_squares_of_parts(const __grid_constant__ Together<SquaredParts> together) {
    unsigned block;
    const SquaredParts& of = entry_of(together, block);
    const u64* parts = of.table + of.count + 1;
    double sum = 0.0;
    for (u64 part = of.table[block]; part < of.table[block + 1]; ++part) {
        const float* first = of.numbers + parts[4 * part];
        unsigned rows = parts[4 * part + 1], columns = parts[4 * part + 2];
        u64 apart = parts[4 * part + 3];
        for (u64 i = threadIdx.x; i < (u64)rows * columns; i += blockDim.x) {
            double x = first[i / columns * apart + i % columns];
            sum = fma(x, x, sum);
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) of.out[block] = sum;
}

// out[gridDim.x] = the sums of in[rows, gridDim.x] over rows. One block of whole warps per column. `out` may
// be memory of the host.
extern "C" __global__ void __launch_bounds__(1024) sum_doubles(double* out, const double* in, u64 rows) {
    double sum = 0.0;
    for (u64 row = threadIdx.x; row < rows; row += blockDim.x) sum += in[row * gridDim.x + blockIdx.x];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
