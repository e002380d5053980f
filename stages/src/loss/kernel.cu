// Losses. Each row (or each block) leaves three doubles: the loss, the weight, and how much was right.
// `sum_doubles` adds them up.

// The largest number so far, and the sum of exp(number - largest).
struct Softmax {
    float largest, sum;
};

// The largest number of nothing. It is finite, so that a row that starts with -inf gives no NaN.
const float LOWEST = -3.4028235e38f;

inline float largest_of(const float (&x)[8]) {
    float largest = x[0];
    for (int i = 1; i < 8; ++i) largest = fmaxf(largest, x[i]);
    return largest;
}

// Takes in numbers. `largest` is the largest of them.
template <class T> void take(Softmax& softmax, const float (&x)[8], float largest) {
    largest = fmaxf(largest, softmax.largest);
    float sum = softmax.sum * exp_of<T>(softmax.largest - largest);
    for (int i = 0; i < 8; ++i) sum += exp_of<T>(x[i] - largest);
    softmax = {largest, sum};
}

// Whether one of the numbers from place `first` on is larger than the target's, or is as large and comes
// before it.
inline bool is_above(const float (&x)[8], unsigned first, float logit, unsigned target) {
    bool above = false;
    for (unsigned i = 0; i < 8; ++i) above |= x[i] > logit || (x[i] == logit && first + i < target);
    return above;
}

inline Softmax of_both(Softmax a, Softmax b) {
    float largest = fmaxf(a.largest, b.largest);
    return {largest, a.sum * expf(a.largest - largest) + b.sum * expf(b.largest - largest)};
}

// The softmax of the whole block.
inline Softmax of_block(Softmax softmax) {
    float largest = block_max(softmax.largest);
    return {largest, block_sum(softmax.sum * expf(softmax.largest - largest))};
}

// Eight numbers from each address, with all loads in flight at once.
template <class T>
void load_parts(const T* const (&from)[2], const unsigned (&counts)[2], float (&x)[2][8], bool whole) {
    load_both(from[0], counts[0], x[0], from[1], counts[1], x[1], whole);
}
template <class T>
void load_parts(const T* const (&from)[2], const unsigned (&counts)[2], float (&x)[1][8], bool whole) {
    load_some(from[0], counts[0], whole, x[0]);
}

// A row of logits, and what a block knows of it. A thread works on PARTS times eight numbers, or 32
// bytes, at once.
template <class T> struct Row {
    static const int PARTS = 4 / sizeof(T);

    T* numbers;
    // The first `keeps` numbers, in shared memory.
    T* kept;
    unsigned keeps, classes, target;
    bool whole;
    float logit;

    // Of numbers that all exist, as almost all do, no instruction asks whether they do.
    template <bool ALL> unsigned count(unsigned start) const { return ALL ? 8 : some_of_8(start, classes); }
    bool all_exist(unsigned first) const {
        return whole && first + (PARTS - 1) * 8 * blockDim.x + 8 <= classes;
    }
};

// What a thread has found.
struct Seen {
    Softmax softmax, other;
    // The sum of the distances of the logits from the target's.
    float apart;
    bool above;
};

// Takes in a thread's numbers from place `first` on.
template <bool ALL, bool KEEP, class T> void take(Seen& seen, const Row<T>& row, unsigned first) {
    float x[Row<T>::PARTS][8];
    unsigned second = first + 8 * blockDim.x;
    const T* from[] = {row.numbers + first, row.numbers + second};
    unsigned counts[] = {row.template count<ALL>(first), row.template count<ALL>(second)};
    load_parts(from, counts, x, ALL || row.whole);
    for (int part = 0; part < Row<T>::PARTS; ++part) {
        unsigned start = part == 0 ? first : second;
        if (KEEP && start < row.keeps) store_some(row.kept + start, counts[part], ALL || row.whole, x[part]);
        // Always, although only smoothing needs it: with a branch here the loop's arrays go to memory.
        for (int i = 0; i < 8; ++i) seen.apart += i < counts[part] ? x[part][i] - row.logit : 0.0f;
        for (int i = 0; i < 8; ++i)
            if (i >= counts[part]) x[part][i] = bits_to_float(0xff800000u);
        float largest = largest_of(x[part]);
        if (!seen.above && largest >= row.logit) seen.above = is_above(x[part], start, row.logit, row.target);
        take<T>(part == 0 ? seen.softmax : seen.other, x[part], largest);
    }
}

// Writes the gradient of a thread's numbers from place `first` on: softmax, times `scale` and less `minus`,
// and less `of_target` at the target.
struct Gradient {
    float largest, scale, minus, of_target;
    bool counted;
};
template <bool ALL, class T> void write(const Gradient& gradient, const Row<T>& row, unsigned first) {
    float x[Row<T>::PARTS][8];
    unsigned starts[] = {first, first + 8 * blockDim.x};
    const T* from[] = {first < row.keeps ? row.kept + first : row.numbers + first,
                       starts[1] < row.keeps ? row.kept + starts[1] : row.numbers + starts[1]};
    unsigned counts[] = {row.template count<ALL>(first), row.template count<ALL>(starts[1])};
    load_parts(from, counts, x, ALL || row.whole);
    for (int part = 0; part < Row<T>::PARTS; ++part) {
        for (int i = 0; i < 8; ++i) {
            float& number = x[part][i];
            number = exp_of<T>(number - gradient.largest) * gradient.scale - gradient.minus;
            if (starts[part] + i == row.target) number -= gradient.of_target;
            if (!gradient.counted || i >= counts[part]) number = 0.0f;
        }
        store_some(row.numbers + starts[part], counts[part], ALL || row.whole, x[part]);
    }
}

// Cross-entropy of logits[rows, width] and targets[rows]. The first `classes` columns count. With GRAD, the
// logits become the gradient of the summed loss: softmax minus the target. A share of the target,
// `smoothing`, is spread over all classes. Rows whose target is `ignored` get zeros, and so do columns after
// the classes, up to the next multiple of eight; 2^32 or more ignores none. Writes scores[rows, 3]. One block
// of whole warps per row. It reads the row once for the sum, by streaming softmax, and once for the gradient.
// In between, it keeps the first `keeps` numbers in dynamic shared memory, whole eights; each thread reads
// what it wrote there itself. A row is right if its target is the first of the largest logits, as on the CPU.
template <bool GRAD, class T>
void cross_entropy(T* logits, const unsigned* targets, double* scores, unsigned classes, unsigned width,
                   u64 ignored, float smoothing, unsigned keeps) {
    u64 index = blockIdx.x;
    unsigned target = targets[index], step = 8 * Row<T>::PARTS * blockDim.x;
    bool counted = target != ignored, whole = width % 8 == 0 && is_aligned(logits);
    Row<T> row = {logits + index * width, (T*)dynamic_shared(), keeps, classes, target, whole, 0.0f};
    if (counted) row.logit = load(row.numbers + target);
    Seen seen = {{LOWEST, 0.0f}, {LOWEST, 0.0f}, 0.0f, false};
    Softmax softmax = seen.softmax;
    if (counted) {
        unsigned first = 8 * threadIdx.x;
        for (; row.all_exist(first); first += step) take<true, GRAD>(seen, row, first);
        for (; first < classes; first += step) take<false, GRAD>(seen, row, first);
        softmax = of_block(of_both(seen.softmax, seen.other));
        seen.above = block_sum(seen.above ? 1u : 0u) > 0;
        if (smoothing > 0.0f) seen.apart = block_sum(seen.apart);
    }
    if (threadIdx.x == 0) {
        double loss = (double)logf(softmax.sum) - ((double)row.logit - (double)softmax.largest);
        if (smoothing > 0.0f) loss -= (double)smoothing * (double)(seen.apart / (float)classes);
        scores[3 * index] = counted ? loss : 0.0;
        scores[3 * index + 1] = counted ? 1.0 : 0.0;
        // With a NaN among its numbers, a row is not right.
        bool is_number = softmax.sum == softmax.sum;
        scores[3 * index + 2] = counted && !seen.above && is_number ? 1.0 : 0.0;
    }
    if (!GRAD) return;
    Gradient gradient = {softmax.largest, 1.0f / softmax.sum, smoothing / (float)classes, 1.0f - smoothing,
                         counted};
    unsigned first = 8 * threadIdx.x;
    for (; row.all_exist(first); first += step) write<true>(gradient, row, first);
    for (; first < classes; first += step) write<false>(gradient, row, first);
}

#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(1024)                                               \
        cross_entropy##SUFFIX(T* logits, const unsigned* targets, double* scores, unsigned classes,  \
                              unsigned width, u64 ignored, float smoothing, unsigned keeps) {        \
        cross_entropy<true>(logits, targets, scores, classes, width, ignored, smoothing, keeps);     \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(1024)                                               \
        cross_entropy_score##SUFFIX(T* logits, const unsigned* targets, double* scores,              \
                                    unsigned classes, unsigned width, u64 ignored, float smoothing,  \
                                    unsigned keeps) {                                                \
        cross_entropy<false>(logits, targets, scores, classes, width, ignored, smoothing, keeps);    \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// Cross-entropy over classes that are in groups. A shard has `here` classes, from class `first` on, in some
// consecutive groups: `count` of them, from `first_group` on. Group g of `groups` has the classes g all /
// groups and so on.
struct ClassGroups {
    unsigned here, first, all, groups, count, first_group;

    unsigned start(unsigned group) const { return (u64)group * all / groups; }
};

// What is found of a group of a row.
struct Found {
    // The largest logit, the sum of exp(logit - largest), and the first class with the largest logit.
    float largest, sum, where;
    // The logit of the target, if it is in the group.
    float logit;
    // The sum of the distances of the logits from the largest.
    float apart;
};

// found[rows, count] of logits[rows, here]. A block of whole warps for each group of a row.
template <class T>
void cross_entropy_groups(const T* logits, const unsigned* targets, Found* found, ClassGroups classes) {
    u64 row = blockIdx.x / classes.count;
    unsigned group = classes.first_group + blockIdx.x % classes.count;
    unsigned start = classes.start(group), end = classes.start(group + 1), target = targets[row];
    const T* numbers = logits + row * classes.here + (start - classes.first);
    bool whole = (end - start) % 8 == 0 && is_aligned(numbers);
    Softmax softmax = {LOWEST, 0.0f};
    float largest = LOWEST, where = (float)end;
    for (unsigned at = 8 * threadIdx.x; at < end - start; at += 8 * blockDim.x) {
        float x[8];
        unsigned some = some_of_8(at, end - start);
        load_some(numbers + at, some, whole, x);
        for (unsigned i = 0; i < 8; ++i) {
            if (i >= some) x[i] = bits_to_float(0xff800000u);
            else if (x[i] > largest || where == (float)end) largest = x[i], where = (float)(start + at + i);
        }
        take<T>(softmax, x, largest_of(x));
    }
    softmax = of_block(softmax);
    // The first class with the largest logit: the least place of all threads that have it.
    where = -block_max(largest == softmax.largest ? -where : -(float)end);
    float apart = 0.0f;
    for (unsigned at = 8 * threadIdx.x; at < end - start; at += 8 * blockDim.x) {
        float x[8];
        unsigned some = some_of_8(at, end - start);
        load_some(numbers + at, some, whole, x);
        for (int i = 0; i < 8; ++i) apart += i < some ? x[i] - softmax.largest : 0.0f;
    }
    apart = block_sum(apart);
    if (threadIdx.x > 0) return;
    float logit = target >= start && target < end ? load(numbers + (target - start)) : 0.0f;
    found[row * classes.count + (group - classes.first_group)] = {softmax.largest, softmax.sum, where, logit,
                                                                 apart};
}

// Adds up numbers by the binary tree: 0 and 1, 2 and 3, then these two sums, and so on. `sums` has room for
// 32.
struct Tree {
    float* sums;
    unsigned count, depth;

    void add(float x) {
        for (unsigned more = count++; more % 2 == 1; more /= 2) x = sums[--depth] + x;
        sums[depth++] = x;
    }
};

// As `cross_entropy`, of logits[rows, here], from found[shards, rows, count] of all groups. One block of
// whole warps per row.
template <class T>
void cross_entropy_of_groups(T* logits, const unsigned* targets, double* scores, const Found* found,
                             ClassGroups classes, u64 ignored, float smoothing, bool gradient) {
    u64 row = blockIdx.x, rows = gridDim.x;
    unsigned target = targets[row];
    bool counted = target != ignored;
    __shared__ float shared[2], room[2][32];
    if (threadIdx.x == 0) {
        auto of = [&](unsigned group) {
            return found[(group / classes.count * rows + row) * classes.count + group % classes.count];
        };
        float largest = LOWEST, where = (float)classes.all, logit = 0.0f;
        for (unsigned group = 0; group < classes.groups; ++group) {
            Found one = of(group);
            if (one.largest > largest || group == 0) largest = one.largest, where = one.where;
            if (target >= classes.start(group) && target < classes.start(group + 1)) logit = one.logit;
        }
        Tree total = {room[0], 0, 0}, apart = {room[1], 0, 0};
        for (unsigned group = 0; group < classes.groups; ++group) {
            Found one = of(group);
            float size = (float)(classes.start(group + 1) - classes.start(group));
            total.add(one.sum * expf(one.largest - largest));
            apart.add(one.apart + size * (one.largest - logit));
        }
        double loss = (double)logf(total.sums[0]) - ((double)logit - (double)largest);
        if (smoothing > 0.0f) loss -= (double)smoothing * (double)(apart.sums[0] / (float)classes.all);
        scores[3 * row] = counted ? loss : 0.0;
        scores[3 * row + 1] = counted ? 1.0 : 0.0;
        // With a NaN among its numbers, a row is not right.
        bool is_number = total.sums[0] == total.sums[0];
        scores[3 * row + 2] = counted && where == (float)target && is_number ? 1.0 : 0.0;
        shared[0] = largest;
        shared[1] = total.sums[0];
    }
    if (!gradient) return;
    __syncthreads();
    T* numbers = logits + row * classes.here;
    bool whole = classes.here % 8 == 0 && is_aligned(logits);
    float largest = shared[0], scale = 1.0f / shared[1], minus = smoothing / (float)classes.all;
    for (unsigned at = 8 * threadIdx.x; at < classes.here; at += 8 * blockDim.x) {
        float x[8];
        unsigned some = some_of_8(at, classes.here);
        load_some(numbers + at, some, whole, x);
        for (int i = 0; i < 8; ++i) {
            x[i] = exp_of<T>(x[i] - largest) * scale - minus;
            if (classes.first + at + i == target) x[i] -= 1.0f - smoothing;
            if (!counted) x[i] = 0.0f;
        }
        store_some(numbers + at, some, whole, x);
    }
}

#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(512)                                                \
        cross_entropy_groups##SUFFIX(const T* logits, const unsigned* targets, Found* found,         \
                                     unsigned here, unsigned first, unsigned all, unsigned groups,   \
                                     unsigned count, unsigned first_group) {                         \
        ClassGroups classes = {here, first, all, groups, count, first_group};                        \
        cross_entropy_groups(logits, targets, found, classes);                                       \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(512)                                                \
        cross_entropy_of_groups##SUFFIX(T* logits, const unsigned* targets, double* scores,          \
                                        const Found* found, unsigned here, unsigned first,           \
                                        unsigned all, unsigned groups, unsigned count,               \
                                        unsigned first_group, u64 ignored, float smoothing,          \
                                        unsigned gradient) {                                         \
        ClassGroups classes = {here, first, all, groups, count, first_group};                        \
        cross_entropy_of_groups(logits, targets, scores, found, classes, ignored, smoothing,         \
                                gradient != 0);                                                      \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// The squared difference of output[count] and target[count]. The output becomes the gradient of the sum, 2
// (output - target). Writes scores[gridDim.x, 3]. Any number of blocks of whole warps.
template <class T> void mean_squared_error(T* output, const float* target, double* scores, u64 count) {
    double sum = 0.0, counted = 0.0;
    for (u64 first = 8 * global_thread(); first < count; first += 8 * global_threads()) {
        unsigned some = some_of_8(first, count);
        bool whole = some == 8 && is_aligned(output) && is_aligned(target);
        float x[8], y[8];
        load_some(output + first, some, whole, x);
        load_some(target + first, some, whole, y);
        for (int i = 0; i < 8; ++i) {
            float apart = x[i] - y[i];
            sum = fma((double)apart, (double)apart, sum);
            x[i] = 2.0f * apart;
        }
        counted += some;
        store_some(output + first, some, whole, x);
    }
    sum = block_sum(sum);
    counted = block_sum(counted);
    if (threadIdx.x > 0) return;
    scores[3 * blockIdx.x] = sum;
    scores[3 * blockIdx.x + 1] = counted;
    scores[3 * blockIdx.x + 2] = 0.0;
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(1024)                                               \
        mean_squared_error##SUFFIX(T* output, const float* target, double* scores, u64 count) {      \
        mean_squared_error(output, target, scores, count);                                           \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// What the model and the reference give an answer, in nats, and how many tokens it has.
struct Answer {
    double given, reference, tokens;
};

// The sum of a margin's losses, and its slope: see `logistic` in pair.rs.
struct Judged {
    double loss;
    float slope;
};
inline Judged logistic(double margin, float smoothing) {
    float x = fminf(fmaxf((float)margin, -80.0f), 80.0f);
    // ln(1 + small), which keeps its digits where 1 + small does not.
    float small = expf(-fabsf(x));
    double rest = (double)(small < 1e-3f ? small * (1.0f - 0.5f * small) : logf(1.0f + small));
    double ahead = (margin < 0.0 ? -margin : 0.0) + rest, behind = (margin > 0.0 ? margin : 0.0) + rest;
    float power = expf(-x), likely = 1.0f / (1.0f + power), share = smoothing;
    return {(1.0 - (double)share) * ahead + (double)share * behind,
            share * likely - (1.0f - share) * power * likely};
}

// Judges pairs of answers: see preference.rs. tokens[2 gridDim.x, time, 3] are the scores of tokens by
// cross-entropy, and references[2 gridDim.x] the references. Writes scores[gridDim.x, 6] and
// scales[2 gridDim.x]. With `squares`, the loss is a square. A block of whole warps for each pair.
extern "C" __global__ void __launch_bounds__(256)
    preference(const double* tokens, const double* references, double* scores, float* scales, unsigned time,
               unsigned squares, float beta, float smoothing) {
    u64 pair = blockIdx.x;
    Answer answers[2];
    for (int of = 0; of < 2; ++of) {
        const double* row = tokens + 3 * time * (2 * pair + of);
        double loss = 0.0, counted = 0.0;
        for (unsigned at = threadIdx.x; at < time; at += blockDim.x) {
            loss += row[3 * at];
            counted += row[3 * at + 1];
        }
        loss = block_sum(loss);
        answers[of] = {-loss, references[2 * pair + of], block_sum(counted)};
    }
    if (threadIdx.x > 0) return;
    bool counts = answers[0].tokens > 0.0 || answers[1].tokens > 0.0;
    double shares[2], apart = 0.0;
    for (int of = 0; of < 2; ++of) {
        shares[of] = squares != 0 && answers[of].tokens > 1.0 ? 1.0 / answers[of].tokens : 1.0;
        double ahead = (answers[of].given - answers[of].reference) * shares[of];
        apart += of == 0 ? ahead : -ahead;
    }
    double margin = (double)beta * apart, beyond = apart - 0.5 / (double)beta;
    Judged judged = squares != 0 ? Judged{beyond * beyond, (float)(2.0 * beyond)} : logistic(margin, smoothing);
    float slope = squares != 0 ? judged.slope : beta * judged.slope;
    double numbers[] = {judged.loss, 1.0,           margin > 0.0 ? 1.0 : 0.0, margin,
                        answers[0].given, answers[1].given};
    for (int i = 0; i < 6; ++i) scores[6 * pair + i] = counts ? numbers[i] : 0.0;
    scales[2 * pair] = counts ? -slope * (float)shares[0] : 0.0f;
    scales[2 * pair + 1] = counts ? slope * (float)shares[1] : 0.0f;
}

// Multiplies numbers[gridDim.x, width], which are the rows from `first` on. Every `each` rows have one scale.
// One block per row.
template <class T>
void scale_rows(T* numbers, const float* scales, unsigned width, unsigned each, unsigned first) {
    T* row = numbers + (u64)blockIdx.x * width;
    float scale = scales[(first + blockIdx.x) / each];
    bool whole = width % 8 == 0 && is_aligned(numbers);
    for (unsigned at = 8 * threadIdx.x; at < width; at += 8 * blockDim.x) {
        float x[8];
        unsigned some = some_of_8(at, width);
        load_some(row + at, some, whole, x);
        for (int i = 0; i < 8; ++i) x[i] *= scale;
        store_some(row + at, some, whole, x);
    }
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        scale_rows##SUFFIX(T* numbers, const float* scales, unsigned width, unsigned each,           \
                           unsigned first) {                                                         \
        scale_rows(numbers, scales, width, each, first);                                             \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// Rewards output[2 gridDim.x, time] of pairs become their gradient; labels[2 gridDim.x, time] say where an
// answer ends. Writes scores[gridDim.x, 6]. A block of whole warps for each pair.
template <class T>
void pairwise_reward(T* output, const unsigned* labels, double* scores, unsigned time) {
    u64 pair = blockIdx.x;
    T* rewards = output + 2 * time * pair;
    // The places of the last tokens of the answers, or -1 if there is none.
    int places[2];
    for (int of = 0; of < 2; ++of) {
        float last = -1.0f;
        for (unsigned at = threadIdx.x; at < time; at += blockDim.x)
            if (labels[time * (2 * pair + of) + at] != 0xffffffffu) last = (float)at;
        last = block_max(last);
        places[of] = last < 0.0f ? -1 : (int)fminf(last + 1.0f, (float)(time - 1));
    }
    bool counts = places[0] >= 0 && places[1] >= 0;
    double chosen = 0.0, rejected = 0.0;
    if (counts) {
        chosen = (double)load(rewards + places[0]);
        rejected = (double)load(rewards + time + places[1]);
    }
    double margin = chosen - rejected;
    Judged judged = logistic(margin, 0.0f);
    __syncthreads();  // All have read the rewards.
    for (unsigned at = threadIdx.x; at < 2 * time; at += blockDim.x) {
        float slope = (int)at == places[0] ? judged.slope : 0.0f;
        if ((int)at - (int)time == places[1]) slope = -judged.slope;
        store(rewards + at, counts ? slope : 0.0f);
    }
    if (threadIdx.x > 0) return;
    double numbers[] = {judged.loss, 1.0, margin > 0.0 ? 1.0 : 0.0, margin, chosen, rejected};
    for (int i = 0; i < 6; ++i) scores[6 * pair + i] = counts ? numbers[i] : 0.0;
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        pairwise_reward##SUFFIX(T* output, const unsigned* labels, double* scores, unsigned time) {  \
        pairwise_reward(output, labels, scores, time);                                               \
    }
F32_AND_BF16(MAKE)
#undef MAKE
