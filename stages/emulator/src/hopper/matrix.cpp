// Descriptors of matrices in shared memory. Source: PTX ISA, "Shared Memory Matrix Layout" and "Matrix
// Descriptor Format".
//
// The manual's layouts are in units of 8 numbers, 16 bytes. Of a swizzled layout, 8 rows of 32, 64 or 128
// bytes are a pattern, which begins at a multiple of its bytes; the swizzle exchanges bits of addresses.
#include "matrix.h"
#include <cstring>

struct Layout {
    // In bytes.
    uint64_t start, leading, stride;
    // Of a swizzled row; 16 if there is no swizzle.
    uint64_t row;
    uint64_t pattern() const { return row * 8; }
    bool is_swizzled() const { return row > 16; }
};

static Layout decode(uint64_t descriptor, const char *what) {
    // The bits that have no meaning.
    const uint64_t UNUSED = 3ull << 14 | 3ull << 30 | 7ull << 46 | 0x3ffull << 52;
    if (descriptor & UNUSED)
        give_up(text("wgmma: descriptor %lx of %s has bits without a meaning", descriptor, what));
    if (descriptor >> 49 & 7)
        give_up(text("wgmma: descriptor %lx of %s has a base offset; here patterns are aligned", descriptor, what));
    static const uint64_t ROWS[] = {16, 128, 64, 32};
    auto field = [=](int bit) { return (descriptor >> bit & 0x3fff) << 4; };
    return {field(0), field(16), field(32), ROWS[descriptor >> 62]};
}

// Whether a pattern begins wherever the matrix goes on in another one, and the first one has room.
static void check_patterns(const Layout &layout, const char *what, bool along_rows, unsigned rows) {
    auto must_be_whole = [&](uint64_t bytes, const char *field) {
        if (bytes % layout.pattern())
            give_up(text("wgmma: the %s byte offset %lu of %s is not a multiple of its pattern's %lu bytes", field,
                         bytes, what, layout.pattern()));
    };
    uint64_t within = layout.start % layout.pattern(), numbers = layout.row / 2;
    uint64_t used = 2 * (along_rows ? std::min<uint64_t>(rows, numbers) : 16);
    if (within + used > layout.row)
        give_up(text("wgmma: start %lu of %s: its pattern does not begin at a multiple of %lu bytes, or its row "
                     "has no %lu bytes more",
                     layout.start, what, layout.pattern(), used));
    if (along_rows && rows > numbers) must_be_whole(layout.leading, "leading dimension");
    if (along_rows || rows > 8) must_be_whole(layout.stride, "stride dimension");
}

// The offset of the 8 numbers from row `r` and column `k` on, before the swizzle.
static uint64_t offset_of(const Layout &layout, bool along_rows, unsigned r, unsigned k) {
    unsigned across = layout.row / 16;
    if (!along_rows) {
        uint64_t next = layout.is_swizzled() ? 16 : layout.leading;
        return r % 8 * layout.row + r / 8 * layout.stride + k / 8 * next;
    }
    if (!layout.is_swizzled()) return r / 8 * layout.stride + k % 8 * 16 + k / 8 * layout.leading;
    return r / 8 % across * 16 + r / 8 / across * layout.leading + k % 8 * layout.row + k / 8 * layout.stride;
}

std::vector<uint16_t> read_matrix(uint64_t descriptor, const char *what, bool along_rows, unsigned first,
                                  unsigned rows) {
    Layout layout = decode(descriptor, what);
    if (layout.is_swizzled()) check_patterns(layout, what, along_rows, rows);
    std::vector<uint16_t> numbers(rows * 16);
    for (unsigned r = 0; r < rows; r += along_rows ? 8 : 1)
        for (unsigned k = 0; k < 16; k += along_rows ? 1 : 8) {
            uint64_t address = layout.start + offset_of(layout, along_rows, first + r, k);
            uint16_t eight[8];
            memcpy(eight, fenced_at(swizzled(address, layout.row), 16, what), 16);
            for (unsigned i = 0; i < 8; i++) numbers[along_rows ? (r + i) * 16 + k : r * 16 + k + i] = eight[i];
        }
    return numbers;
}
