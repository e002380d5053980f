// The tensor cores, and loads for them: wrappers of PTX instructions, and the same functions on the host for
// the tests.
//
// Here, an address in shared memory is the offset in bytes from the start of the block's dynamic shared
// memory. All lanes of a warp must call `mma_bf16_16x8x16`, `ldmatrix_x4` and `ldmatrix_x4_trans` together.
// Source of the layouts: PTX ISA 9.0, "Matrix Fragments for mma.m16n8k16 with floating point type" and
// "ldmatrix".
//
// What lane l = 4 * g + t holds. A word has two numbers; the one of the lower column (in the right matrix:
// row) is in the lower half:
//   left   16 x 16: word 0 row g, columns 2t, 2t + 1; word 1 row g + 8, the same columns;
//                   word 2 row g, columns 2t + 8, 2t + 9; word 3 row g + 8, those columns
//   right  16 x 8:  word 0 rows 2t, 2t + 1 of column g; word 1 rows 2t + 8, 2t + 9
//   sum    16 x 8, in f32: numbers 0 and 1 row g, columns 2t, 2t + 1; numbers 2 and 3 row g + 8

#if defined(PIPEWRIGHT_HOST)

inline void mma_bf16_16x8x16(float (&sum)[4], const unsigned (&left)[4], unsigned right_0, unsigned right_1) {
    struct Words {
        unsigned left[4], right[2];
    };
    const Words mine = {{left[0], left[1], left[2], left[3]}, {right_0, right_1}};
    Words all[32];
    pw_warp_exchange(&mine, all, sizeof mine);
    for (unsigned i = 0; i < 4; i++) {
        const unsigned row = lane() / 4 + i / 2 * 8, column = lane() % 4 * 2 + i % 2;
        for (unsigned k = 0; k < 16; k++) {
            const unsigned word = all[row % 8 * 4 + k % 8 / 2].left[row / 8 + k / 8 * 2];
            const unsigned other = all[column * 4 + k % 8 / 2].right[k / 8];
            sum[i] += (k % 2 ? high_of(word) * high_of(other) : low_of(word) * low_of(other));
        }
    }
}

inline void ldmatrix_x4(unsigned (&words)[4], unsigned address) {
    pw_aligned("ldmatrix", address, 16);
    unsigned rows[32];
    pw_warp_exchange(&address, rows, sizeof address);
    for (unsigned i = 0; i < 4; i++)
        __builtin_memcpy(&words[i], dynamic_shared() + rows[i * 8 + lane() / 4] + lane() % 4 * 4, 4);
}

inline void ldmatrix_x4_trans(unsigned (&words)[4], unsigned address) {
    pw_aligned("ldmatrix", address, 16);
    unsigned rows[32];
    pw_warp_exchange(&address, rows, sizeof address);
    for (unsigned i = 0; i < 4; i++) {
        unsigned short pair[2];
        for (unsigned j = 0; j < 2; j++)
            __builtin_memcpy(&pair[j], dynamic_shared() + rows[i * 8 + lane() % 4 * 2 + j] + lane() / 4 * 2,
                             2);
        words[i] = pair[0] | (unsigned)pair[1] << 16;
    }
}

// The host makes a copy when it is waited for. Until then the target holds NaN. So a test finds a kernel that
// reads too early, or that overwrites what other threads still read.
struct PendingCopy {
    unsigned address, size, bytes;
    const void *source;
};
// No kernel has more pending copies in a thread.
struct PendingCopies {
    unsigned count;
    PendingCopy copies[64];
};
static PendingCopies pending_copies[1024];

inline void begin_copy(const PendingCopy &copy) {
    pw_aligned("cp.async to shared memory", copy.address, copy.size);
    pw_aligned("cp.async from global memory", (u64)copy.source, copy.size);
    pw_reads(copy.source, copy.bytes);
    PendingCopies &pending = pending_copies[threadIdx.x];
    pending.copies[pending.count++] = copy;
    __builtin_memset(dynamic_shared() + copy.address, 0xff, copy.size);
}

inline void cp_async_16(unsigned address, const void *source, unsigned bytes) {
    begin_copy({address, 16, bytes, source});
}

inline void cp_async_4(unsigned address, const void *source, unsigned bytes) {
    begin_copy({address, 4, bytes, source});
}

inline void cp_async_wait_all() {
    PendingCopies &pending = pending_copies[threadIdx.x];
    for (unsigned i = 0; i < pending.count; i++) {
        const PendingCopy &copy = pending.copies[i];
        __builtin_memset(dynamic_shared() + copy.address, 0, copy.size);
        __builtin_memcpy(dynamic_shared() + copy.address, copy.source, copy.bytes);
    }
    pending.count = 0;
}

inline float exp2_fast(float x) {
    return exp2f(x);
}

#else

__forceinline__ unsigned shared_address(unsigned address) {
    return (unsigned)__cvta_generic_to_shared(dynamic_shared()) + address;
}

// sum += left * right.
__forceinline__ void mma_bf16_16x8x16(float (&sum)[4], const unsigned (&left)[4], unsigned right_0,
                                      unsigned right_1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_0), "r"(right_1));
}

// Loads four 8 x 8 matrices of 16-bit numbers. Lane 8 * i + r gives the address of row r of matrix i, 16
// bytes. Word i of lane 4 * g + t is row g, columns 2t and 2t + 1 of matrix i.
__forceinline__ void ldmatrix_x4(unsigned (&words)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(shared_address(address))
                 : "memory");
}

// Loads the same matrices transposed: word i of lane 4 * g + t is column g, rows 2t and 2t + 1 of matrix i.
__forceinline__ void ldmatrix_x4_trans(unsigned (&words)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(shared_address(address))
                 : "memory");
}

// Starts to copy `bytes` bytes (16 or 0) from global memory to 16 bytes of shared memory, and fills the rest
// with zeros. Both addresses must be multiples of 16. The source must be a valid address even if `bytes` is
// 0.
__forceinline__ void cp_async_16(unsigned address, const void *source, unsigned bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(address)), "l"(source),
                 "r"(bytes) : "memory");
}

// The same for 4 bytes (`bytes` is 4 or 0).
__forceinline__ void cp_async_4(unsigned address, const void *source, unsigned bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(address)), "l"(source),
                 "r"(bytes) : "memory");
}

// Waits for this thread's copies. Other threads see them after the block's barrier.
__forceinline__ void cp_async_wait_all() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// 2^x by the special function unit. The error is at most two units in the last place. 0 for -infinity, and
// where the result would be subnormal.
__forceinline__ float exp2_fast(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

#endif
