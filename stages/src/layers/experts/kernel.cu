// Rows on their way to experts and back. A token has a row for each of its experts.

// Adds to each token, `width` numbers of sums, its rows times their weights. Without `weights` these are 1.
// The token's `chosen` rows are at its part of `places`, and are added in this order. With FROM_ZERO the sums
// start with nothing. One block of whole warps per token.
template <bool FROM_ZERO, class T>
void experts_mix(T* sums, const T* rows, const unsigned* places, const float* weights, unsigned chosen,
                 unsigned width) {
    sums += (u64)blockIdx.x * width;
    places += (u64)blockIdx.x * chosen;
    bool whole = width % 8 == 0 && is_aligned(sums) && is_aligned(rows);
    for (unsigned first = 8 * threadIdx.x; first < width; first += 8 * blockDim.x) {
        unsigned count = some_of_8(first, width);
        float sum[8] = {};
        if (!FROM_ZERO) load_some(sums + first, count, whole, sum);
        for (unsigned i = 0; i < chosen; ++i) {
            float weight = weights ? weights[places[i]] : 1.0f, x[8];
            load_some(rows + (u64)places[i] * width + first, count, whole, x);
            for (int k = 0; k < 8; ++k) sum[k] = fmaf(x[k], weight, sum[k]);
        }
        store_some(sums + first, count, whole, sum);
    }
}

// Of each row, `width` numbers of grads and of values: writes their scalar product, which is the slope of the
// row's weight, and multiplies both by the weight. One block of whole warps per row.
template <class T>
void experts_weigh(T* grads, T* values, float* slopes, const float* weights, unsigned width) {
    u64 row = blockIdx.x;
    grads += row * width;
    values += row * width;
    bool whole = width % 8 == 0 && is_aligned(grads) && is_aligned(values);
    float weight = weights[row], slope = 0.0f;
    for (unsigned first = 8 * threadIdx.x; first < width; first += 8 * blockDim.x) {
        unsigned count = some_of_8(first, width);
        float g[8], x[8];
        load_both(grads + first, count, g, values + first, count, x, whole);
        for (int i = 0; i < 8; ++i) {
            slope = fmaf(g[i], x[i], slope);
            g[i] *= weight;
            x[i] *= weight;
        }
        store_some(grads + first, count, whole, g);
        store_some(values + first, count, whole, x);
    }
    slope = block_sum(slope);
    if (threadIdx.x == 0) slopes[row] = slope;
}

// A micro-batch's choice: of each token its experts and the places of its rows, [tokens, chosen] both; the
// weight of each row; how many rows each expert has.
struct Choice {
    const unsigned *experts, *places;
    const float* weights;
    const unsigned* counts;
    unsigned chosen;
};

// The gradient of scores[tokens, experts], from the slope of each row's weight. It is the sum of two
// gradients: of the softmax over the chosen experts, and of the auxiliary loss. The slope of this loss along
// the probability of an expert is `share` times the expert's rows. A warp works on a token.
template <class T>
void experts_scores(T* out, const T* scores, const float* slopes, Choice choice, u64 tokens,
                    unsigned experts, float share) {
    u64 token = global_thread() / 32;
    if (token >= tokens) return;
    out += token * experts;
    scores += token * experts;
    const unsigned* own = choice.experts + token * choice.chosen;
    const unsigned* places = choice.places + token * choice.chosen;
    float largest = -3.4028235e38f, total = 0.0f, mean = 0.0f, chosen_mean = 0.0f;
    for (unsigned i = lane(); i < experts; i += 32) largest = fmaxf(largest, load(scores + i));
    largest = warp_max(largest);
    for (unsigned i = lane(); i < experts; i += 32) total += expf(load(scores + i) - largest);
    total = warp_sum(total);
    for (unsigned i = lane(); i < experts; i += 32)
        mean = fmaf(expf(load(scores + i) - largest) / total, share * (float)choice.counts[i], mean);
    mean = warp_sum(mean);
    for (unsigned i = 0; i < choice.chosen; ++i)
        chosen_mean = fmaf(choice.weights[places[i]], slopes[places[i]], chosen_mean);
    for (unsigned i = lane(); i < experts; i += 32) {
        float along = share * (float)choice.counts[i] - mean;
        float grad = share > 0.0f ? expf(load(scores + i) - largest) / total * along : 0.0f;
        for (unsigned k = 0; k < choice.chosen; ++k)
            if (own[k] == i) grad = fmaf(choice.weights[places[k]], slopes[places[k]] - chosen_mean, grad);
        store(out + i, grad);
    }
}

#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        experts_mix##SUFFIX(T* sums, const T* rows, const unsigned* places, const float* weights,    \
                            unsigned chosen, unsigned width) {                                       \
        experts_mix<true>(sums, rows, places, weights, chosen, width);                               \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        experts_add##SUFFIX(T* sums, const T* rows, const unsigned* places, unsigned chosen,         \
                            unsigned width) {                                                        \
        experts_mix<false>(sums, rows, places, (const float*)0, chosen, width);                      \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        experts_weigh##SUFFIX(T* grads, T* values, float* slopes, const float* weights,              \
                              unsigned width) {                                                      \
        experts_weigh(grads, values, slopes, weights, width);                                        \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        experts_scores##SUFFIX(T* out, const T* scores, const float* slopes, const unsigned* chosen, \
                               const unsigned* places, const float* weights, const unsigned* counts, \
                               u64 tokens, unsigned of_token, unsigned experts, float share) {       \
        Choice choice = {chosen, places, weights, counts, of_token};                                 \
        experts_scores(out, scores, slopes, choice, tokens, experts, share);                         \
    }
F32_AND_BF16(MAKE)
#undef MAKE
