// Products of a warpgroup (wgmma), and other instructions that it executes as one. Source: PTX ISA,
// "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
//
// Each warp makes its 16 rows of a product when it waits for it, as late as a GPU may. Until then the
// accumulators hold NaN. Nothing that the product reads may change in between, so it is read twice.
#include "hopper.h"
#include "matrix.h"
#include <cstring>
#include <deque>

static const unsigned WARP = 32, WARPS_OF_GROUP = 4;
static const unsigned NOTHING = 0xffffffff;

// What a thread of a warp has in a product.
struct Part {
    float *sum;
    const unsigned *left_registers;
    unsigned left[4];
    std::vector<float> before;
};

// What a thread gives to its warp.
struct Mine {
    PwStep step;
    Part part;
};

struct Product {
    PwStep step;
    // Its group: how many commits were before the one that is for it.
    uint64_t group;
    Part parts[WARP];
    // What it read when it was issued.
    std::vector<uint16_t> left, right;
};

struct Warp {
    std::deque<Product> products;
    uint64_t committed = 0;
    size_t steps = 0;
    bool fenced = false;
    // The local memory of each thread at the last fence, to its end.
    std::vector<char> at_fence[WARP];
    // The first thread's accumulators that came back since.
    std::vector<const float *> returned;
};

static std::vector<Warp> &warps = *new std::vector<Warp>;
// What each warpgroup has executed so far.
static std::vector<std::vector<PwStep>> &executed = *new std::vector<std::vector<PwStep>>;

void begin_warpgroups() {
    warps.clear();
    executed.clear();
}

// Of the calling thread. Most kernels have none.
static Warp &my_warp(const char *what) {
    unsigned threads = threads_of_block();
    if (threads % (WARP * WARPS_OF_GROUP))
        give_up(text("%s: a block of %u threads is no whole warpgroups", what, threads));
    if (warps.empty()) {
        warps.resize(threads / WARP);
        executed.resize(warps.size() / WARPS_OF_GROUP);
    }
    return warps[this_thread() / WARP];
}

static const char *name_of(PwStepKind kind) {
    static const char *const NAMES[] = {"wgmma_fence", "wgmma", "wgmma_commit", "wgmma_wait",
                                        "registers_more", "registers_fewer"};
    return NAMES[kind];
}

static std::string words_of(const PwStep &step) {
    std::string name = name_of(step.kind);
    if (step.kind == PW_PRODUCT)
        return name + text(" of %u columns, left %s%lx, right %lx%s%s", step.number,
                           step.left_registers ? "in registers " : "", step.left, step.right,
                           step.transposed ? ", transposed" : "", step.add ? ", adding" : "");
    return step.kind == PW_FENCE || step.kind == PW_COMMIT ? name : name + " " + std::to_string(step.number);
}

// Whether two threads execute the same instruction, with the same matrices.
static bool same(const PwStep &one, const PwStep &other) {
    return one.kind == other.kind && one.transposed == other.transposed && one.add == other.add &&
           one.number == other.number && one.left == other.left && one.right == other.right &&
           !one.left_registers == !other.left_registers;
}

// ---- Registers ----

// Where the local memory of a lane at the last fence has this address, or null if it did not exist then.
static char *at_fence(Warp &warp, unsigned lane, const void *address) {
    auto &kept = warp.at_fence[lane];
    size_t from_end = end_of_locals(this_thread() / WARP * WARP + lane) - (const char *)address;
    return from_end > kept.size() ? nullptr : kept.data() + kept.size() - from_end;
}

static void check_unchanged(Warp &warp, unsigned lane, const void *registers, size_t bytes, const char *what) {
    const char *before = at_fence(warp, lane, registers);
    if (!before || memcmp(before, registers, bytes) != 0)
        give_up(text("wgmma: no wgmma_fence after lane %u changed its registers of %s", lane, what));
}

static bool overlap(const float *one, unsigned columns, const float *other, unsigned other_columns) {
    return one < other + other_columns / 2 && other < one + columns / 2;
}

// Whether the accumulators are those of a product that is not done yet.
static bool continues(const Warp &warp, const PwStep &step) {
    bool found = false;
    for (const Product &before : warp.products) {
        const float *sum = before.parts[this_thread() % WARP].sum;
        if (!overlap(step.sum, step.number, sum, before.step.number)) continue;
        if (step.number != before.step.number || step.sum != sum)
            give_up("wgmma: its accumulators are those of another shape, which nobody has waited for");
        found = true;
    }
    return found;
}

// Checks the registers of the calling thread, and gives its accumulators to the product.
static Part take_registers(Warp &warp, const PwStep &step) {
    unsigned lane = this_thread() % WARP;
    size_t count = step.number / 2;
    if (!is_local(step.sum, count * sizeof *step.sum)) give_up("wgmma: its accumulators are no local variable");
    Part part = {step.sum, step.left_registers, {}, {}};
    if (step.left_registers) {
        if (!is_local(step.left_registers, sizeof part.left))
            give_up("wgmma: the left matrix is no local variable");
        check_unchanged(warp, lane, step.left_registers, sizeof part.left, "the left matrix");
        memcpy(part.left, step.left_registers, sizeof part.left);
    }
    if (!continues(warp, step)) {
        check_unchanged(warp, lane, step.sum, count * sizeof *step.sum, "the accumulators");
        for (const float *sum : warp.returned)
            if (lane == 0 && sum == step.sum && !step.add)
                give_up("wgmma: no wgmma_fence after its accumulators came back");
        part.before.assign(step.sum, step.sum + count);
    }
    return part;
}

// The product has ended for a lane: its sum goes to the next product with the same accumulators, or to the
// thread.
static void give_back(Warp &warp, Product &product, unsigned lane, std::vector<float> &&sum) {
    Part &part = product.parts[lane];
    for (Product &later : warp.products)
        if (&later != &product && later.parts[lane].sum == part.sum) {
            later.parts[lane].before = std::move(sum);
            return;
        }
    for (size_t i = 0; i < sum.size(); i++)
        if (memcmp(part.sum + i, &NOTHING, 4) != 0)
            give_up(text("lane %u changed accumulators of a wgmma before the wait for it", lane));
    memcpy(part.sum, sum.data(), sum.size() * sizeof(float));
    // This is no change by the thread.
    if (char *kept = at_fence(warp, lane, part.sum)) memcpy(kept, sum.data(), sum.size() * sizeof(float));
    if (lane == 0) warp.returned.push_back(part.sum);
}

// ---- Products ----

static unsigned warp_in_group() { return this_thread() / WARP % WARPS_OF_GROUP; }

static std::vector<uint16_t> read_left(const Product &product) {
    if (!product.step.left_registers)
        return read_matrix(product.step.left, "the left matrix", false, 16 * warp_in_group(), 16);
    std::vector<uint16_t> left(16 * 16);
    for (unsigned lane = 0; lane < WARP; lane++)
        for (unsigned i = 0; i < 4; i++) {
            unsigned row = lane / 4 + i % 2 * 8, column = lane % 4 * 2 + i / 2 * 8;
            left[row * 16 + column] = (uint16_t)product.parts[lane].left[i];
            left[row * 16 + column + 1] = (uint16_t)(product.parts[lane].left[i] >> 16);
        }
    return left;
}

static std::vector<uint16_t> read_right(const Product &product) {
    return read_matrix(product.step.right, "the right matrix", product.step.transposed, 0, product.step.number);
}

static float to_float(uint16_t number) {
    unsigned bits = (unsigned)number << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static void check_read(const std::vector<uint16_t> &before, const std::vector<uint16_t> &now, const char *what) {
    if (before != now) give_up(text("%s of a wgmma changed in shared memory before the wait for it", what));
}

// Row of the accumulator `i` of a lane, and its column.
static unsigned row_of(unsigned lane, unsigned i) { return lane / 4 + i / 2 % 2 * 8; }
static unsigned column_of(unsigned lane, unsigned i) { return i / 4 * 8 + lane % 4 * 2 + i % 2; }

static void finish(Warp &warp, Product &product) {
    const PwStep &step = product.step;
    if (!step.left_registers) check_read(product.left, read_left(product), "the left matrix");
    check_read(product.right, read_right(product), "the right matrix");
    unsigned columns = step.number;
    // The right matrix by rows of k, so that the sums of a row are made together.
    std::vector<float> right(16 * columns), sums(16 * columns);
    for (unsigned n = 0; n < columns; n++)
        for (unsigned k = 0; k < 16; k++) right[k * columns + n] = to_float(product.right[n * 16 + k]);
    for (unsigned lane = 0; lane < WARP; lane++) {
        Part &part = product.parts[lane];
        if (part.left_registers && memcmp(part.left_registers, part.left, sizeof part.left) != 0)
            give_up(text("lane %u changed its registers of the left matrix of a wgmma before the wait for it",
                         lane));
        for (unsigned i = 0; i < columns / 2; i++)
            sums[row_of(lane, i) * columns + column_of(lane, i)] = step.add ? part.before[i] : 0;
    }
    for (unsigned row = 0; row < 16; row++)
        for (unsigned k = 0; k < 16; k++) {
            float left = to_float(product.left[row * 16 + k]);
            float *sum = &sums[row * columns];
            const float *from = &right[k * columns];
            for (unsigned n = 0; n < columns; n += 8)
                for (unsigned i = 0; i < 8; i++) sum[n + i] += left * from[n + i];
        }
    for (unsigned lane = 0; lane < WARP; lane++) {
        std::vector<float> mine(columns / 2);
        for (unsigned i = 0; i < columns / 2; i++)
            mine[i] = sums[row_of(lane, i) * columns + column_of(lane, i)];
        give_back(warp, product, lane, std::move(mine));
    }
}

// ---- Steps ----

// What a warp does when all its threads are there.
static void execute(Warp &warp, const PwStep &step, const void *const (&all)[WARP]) {
    if (step.kind == PW_FENCE) warp.fenced = true, warp.returned.clear();
    if (step.kind == PW_COMMIT) warp.committed++;
    if (step.kind == PW_WAIT)
        while (!warp.products.empty() && warp.products.front().group + step.number < warp.committed) {
            finish(warp, warp.products.front());
            warp.products.pop_front();
        }
    if (step.kind != PW_PRODUCT) return;
    Product product = {step, warp.committed, {}, {}, {}};
    for (unsigned lane = 0; lane < WARP; lane++) product.parts[lane] = ((const Mine *)all[lane])->part;
    product.left = read_left(product);
    product.right = read_right(product);
    for (Part &part : product.parts)
        for (unsigned i = 0; i < step.number / 2; i++) memcpy(part.sum + i, &NOTHING, 4);
    warp.products.push_back(std::move(product));
}

// All warps of a warpgroup execute the same, one after the other.
static void check_same(unsigned index, const PwStep &step) {
    auto &others = executed[index / WARPS_OF_GROUP];
    size_t place = warps[index].steps++;
    if (place == others.size()) return others.push_back(step);
    if (!same(others[place], step))
        give_up(text("warp %u executes %s, and another warp of its warpgroup %s", index, words_of(step).c_str(),
                     words_of(others[place]).c_str()));
}

void step(const PwStep *step) {
    unsigned index = this_thread() / WARP, lane = this_thread() % WARP;
    Warp &warp = my_warp(name_of(step->kind));
    Mine mine = {*step, {}};
    if (step->kind == PW_FENCE)
        warp.at_fence[lane].assign((char *)__builtin_frame_address(0), end_of_locals(this_thread()));
    if (step->kind == PW_PRODUCT) {
        if (!warp.fenced) give_up("wgmma: no wgmma_fence before the first");
        mine.part = take_registers(warp, *step);
    }
    const void *all[WARP];
    if (!meet(&mine, all, name_of(step->kind))) return;
    for (unsigned other = 0; other < WARP; other++) {
        if (!all[other]) give_up(text("%s: lane %u of warp %u has returned", name_of(step->kind), other, index));
        const PwStep &theirs = ((const Mine *)all[other])->step;
        if (!same(*step, theirs))
            give_up(text("threads of warp %u execute %s and %s", index, words_of(*step).c_str(),
                         words_of(theirs).c_str()));
    }
    check_same(index, *step);
    execute(warp, *step, all);
}

std::string products_undone() {
    for (size_t i = 0; i < warps.size(); i++) {
        if (!warps[i].products.empty())
            return text("warp %zu has returned, and has not waited for all its wgmma", i);
        if (warps[i].steps != executed[i / WARPS_OF_GROUP].size())
            return text("warp %zu executes %zu instructions of its warpgroup, another warp %zu", i,
                        warps[i].steps, executed[i / WARPS_OF_GROUP].size());
    }
    return "";
}
