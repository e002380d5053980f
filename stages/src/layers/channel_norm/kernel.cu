// Batch and group norm: sums over the rows of each channel, and loops that treat each channel in its own way.
// Sums are in f32 over 32 numbers, and in f64 over these, as on the CPU. Their order depends on sizes alone.

// partials[gridDim.x, 2, channels] = for each channel, both sums over slices of `slice` rows. `add` adds what
// a row gives: add(row, channel, sums). A block of 8 warps has 32 channels, and a warp every eighth row.
template <class F> void channel_sums(double* partials, u64 rows, unsigned channels, u64 slice, F add) {
    __shared__ double sums[2][8][32];
    unsigned channel = blockIdx.y * 32 + lane();
    u64 first = blockIdx.x * slice, end = first + slice < rows ? first + slice : rows;
    double sum[2] = {0.0, 0.0};
    for (u64 row = first + warp(); row < end && channel < channels;) {
        float few[2] = {0.0f, 0.0f};
        for (int i = 0; i < 32 && row < end; ++i, row += 8) add(row, channel, few);
        sum[0] += few[0], sum[1] += few[1];
    }
    sums[0][warp()][lane()] = sum[0];
    sums[1][warp()][lane()] = sum[1];
    __syncthreads();
    if (warp() >= 2 || channel >= channels) return;
    double total = 0.0;
    for (int other = 0; other < 8; ++other) total += sums[warp()][other][lane()];
    partials[((u64)blockIdx.x * 2 + warp()) * channels + channel] = total;
}

// The sums of x - shift and of its square, where the shift is the first row of all, or `each` slice's:
// numbers near the mean lose nothing when they are squared.
template <class T>
void channel_moments(double* partials, const T* in, u64 rows, unsigned channels, u64 slice, unsigned each) {
    const T* shift = in + (each ? blockIdx.x * slice * channels : 0);
    channel_sums(partials, rows, channels, slice, [=](u64 row, unsigned channel, float* few) {
        float x = load(in + row * channels + channel) - load(shift + channel);
        few[0] += x;
        few[1] = fmaf(x, x, few[1]);
    });
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256) channel_moments##SUFFIX(                       \
        double* partials, const T* in, u64 rows, unsigned channels, u64 slice, unsigned each) {      \
        channel_moments(partials, in, rows, channels, slice, each);                                  \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// The sums of the gradient, and of it times x - mean. The mean of a channel is means[slice * of_slice +
// channel / width * step].
template <class T>
void channel_slopes(double* partials, const T* grads, const T* in, const float* means, u64 rows,
                    unsigned channels, u64 slice, unsigned of_slice, unsigned width, unsigned step) {
    means += (u64)blockIdx.x * of_slice;
    channel_sums(partials, rows, channels, slice, [=](u64 row, unsigned channel, float* few) {
        u64 at = row * channels + channel;
        float grad = load(grads + at);
        few[0] += grad;
        few[1] = fmaf(grad, load(in + at) - means[channel / width * step], few[1]);
    });
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256) channel_slopes##SUFFIX(                        \
        double* partials, const T* grads, const T* in, const float* means, u64 rows,                 \
        unsigned channels, u64 slice, unsigned of_slice, unsigned width, unsigned step) {            \
        channel_slopes(partials, grads, in, means, rows, channels, slice, of_slice, width, step);    \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// out[i] = f(x, g, channel, image) for each number of in[images, pixels, channels] and of grads, which may be
// `out`. `image` is how many numbers one has. Without HAS_GRADS, g is 0. Each thread has eight numbers.
template <bool HAS_GRADS, class T, class F>
void each_channel(T* out, const T* in, const T* grads, u64 count, unsigned channels, u64 image, F f) {
    u64 first = 8 * global_thread();
    unsigned some = some_of_8(first, count);
    if (some == 0) return;
    bool whole = some == 8 && is_aligned(out) && is_aligned(in) && is_aligned(grads);
    float x[8], g[8] = {};
    load_some(in + first, some, whole, x);
    if (HAS_GRADS) load_some(grads + first, some, whole, g);
    u64 which = first / image, left = image - first % image;
    unsigned channel = first % channels;
    for (unsigned i = 0; i < 8; ++i) {
        if (i < some) x[i] = f(x[i], g[i], channel, which);
        if (++channel == channels) channel = 0;
        if (--left == 0) left = image, ++which;
    }
    store_some(out + first, some, whole, x);
}

// ---- Batch norm ----

// stats[2, channels] = the means and the variances of in[rows, channels], from sums over slices of the
// rows. A block for each channel.
template <class T>
void batch_moments(float* stats, const double* partials, const T* in, u64 rows, u64 slices) {
    unsigned channel = blockIdx.x, channels = gridDim.x;
    double sum = 0.0, squares = 0.0;
    for (u64 slice = threadIdx.x; slice < slices; slice += blockDim.x) {
        sum += partials[2 * slice * channels + channel];
        squares += partials[(2 * slice + 1) * channels + channel];
    }
    sum = block_sum(sum) / rows;
    squares = block_sum(squares) / rows;
    if (threadIdx.x > 0) return;
    double variance = squares - sum * sum;
    stats[channel] = (float)(load(in + channel) + sum);
    stats[channels + channel] = (float)(variance < 0.0 ? 0.0 : variance);  // NaN stays.
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(128) batch_moments##SUFFIX(                         \
        float* stats, const double* partials, const T* in, u64 rows, u64 slices) {                   \
        batch_moments(stats, partials, in, rows, slices);                                            \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// out[rows, channels] = (in - mean) / sqrt(variance + epsilon) * weight + bias.
template <class T>
void batch_norm(T* out, const T* in, const float* means, const float* variances, const float* weight,
                const float* bias, u64 count, unsigned channels, float epsilon) {
    each_channel<false>(out, in, in, count, channels, count, [=](float x, float, unsigned channel, u64) {
        float scale = weight[channel] / sqrtf(variances[channel] + epsilon);
        return fmaf(x - means[channel], scale, bias[channel]);
    });
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256) batch_norm##SUFFIX(                            \
        T* out, const T* in, const float* means, const float* variances, const float* weight,        \
        const float* bias, u64 count, unsigned channels, float epsilon) {                            \
        batch_norm(out, in, means, variances, weight, bias, count, channels, epsilon);               \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// From the sums of slopes over slices of the rows: adds[4, channels], the gradients of weight and bias and
// what is added to both running means; by[3, channels], the factors of the gradient and of x - mean in the
// input gradient, and what is added. A block for each channel.
extern "C" __global__ void __launch_bounds__(128)
    batch_slopes(float* adds, float* by, const double* partials, const float* stats, const float* weight,
                 u64 rows, u64 slices, float epsilon) {
    unsigned channel = blockIdx.x, channels = gridDim.x;
    double total = 0.0, along = 0.0;
    for (u64 slice = threadIdx.x; slice < slices; slice += blockDim.x) {
        total += partials[2 * slice * channels + channel];
        along += partials[(2 * slice + 1) * channels + channel];
    }
    total = block_sum(total);
    along = block_sum(along);
    if (threadIdx.x > 0) return;
    float mean = stats[channel], variance = stats[channels + channel], count = (float)rows;
    float deviation = 1.0f / sqrtf(variance + epsilon), scale = weight[channel] * deviation;
    float weight_grad = (float)along * deviation, bias_grad = (float)total;
    adds[channel] = weight_grad;
    adds[channels + channel] = bias_grad;
    adds[2 * channels + channel] = mean;
    adds[3 * channels + channel] = variance * (count / (count - 1.0f));
    by[channel] = scale;
    by[channels + channel] = -scale * deviation * weight_grad / count;
    by[2 * channels + channel] = -scale * bias_grad / count;
}

// Turns grads[rows, channels] into the input gradient.
template <class T>
void batch_norm_backward(T* grads, const T* in, const float* means, const float* by, u64 count,
                         unsigned channels) {
    each_channel<true>(grads, in, grads, count, channels, count,
                       [=](float x, float g, unsigned channel, u64) {
                           float slope = by[channels + channel], shift = by[2 * channels + channel];
                           return fmaf(g, by[channel], fmaf(x - means[channel], slope, shift));
                       });
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256) batch_norm_backward##SUFFIX(                   \
        T* grads, const T* in, const float* means, const float* by, u64 count, unsigned channels) {  \
        batch_norm_backward(grads, in, means, by, count, channels);                                  \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// ---- Group norm: a warp for each group of channels of an image ----

// stats[images, groups, 2] = the mean and the reciprocal deviation of each group, from sums over images of
// in[images, pixels, channels].
template <class T>
void group_moments(float* stats, const double* partials, const T* in, u64 pixels, unsigned channels,
                   unsigned groups, float epsilon) {
    unsigned width = channels / groups, first = blockIdx.x % groups * width;
    u64 image = blockIdx.x / groups;
    const double* sums = partials + 2 * image * channels + first;
    in += image * pixels * channels + first;
    double mean = 0.0, variance = 0.0;
    for (unsigned i = lane(); i < width; i += 32) mean += load(in + i) + sums[i] / pixels;
    mean = warp_sum(mean) / width;
    for (unsigned i = lane(); i < width; i += 32) {
        double sum = sums[i] / pixels, apart = load(in + i) + sum - mean;
        double own = sums[channels + i] / pixels - sum * sum;
        variance += (own < 0.0 ? 0.0 : own) + apart * apart;
    }
    variance = warp_sum(variance) / width;
    if (lane() > 0) return;
    stats[2 * (u64)blockIdx.x] = (float)mean;
    stats[2 * (u64)blockIdx.x + 1] = (float)(1.0 / sqrt(variance + epsilon));
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(32) group_moments##SUFFIX(                          \
        float* stats, const double* partials, const T* in, u64 pixels, unsigned channels,            \
        unsigned groups, float epsilon) {                                                            \
        group_moments(stats, partials, in, pixels, channels, groups, epsilon);                       \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// out = (in - mean) * deviation * weight + bias, each [count] numbers of images of `image` numbers.
template <class T>
void group_norm(T* out, const T* in, const float* stats, const float* weight, const float* bias, u64 count,
                u64 image, unsigned channels, unsigned groups) {
    unsigned width = channels / groups;
    each_channel<false>(out, in, in, count, channels, image,
                        [=](float x, float, unsigned channel, u64 which) {
                            const float* of = stats + 2 * (which * groups + channel / width);
                            return fmaf(x - of[0], of[1] * weight[channel], bias[channel]);
                        });
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256) group_norm##SUFFIX(                            \
        T* out, const T* in, const float* stats, const float* weight, const float* bias, u64 count,  \
        u64 image, unsigned channels, unsigned groups) {                                             \
        group_norm(out, in, stats, weight, bias, count, image, channels, groups);                    \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// From the sums of slopes over images: adds[images, 2, channels], the gradients of weight and bias;
// by[images, groups, 2], the factor of x - mean in the input gradient, and what is added.
extern "C" __global__ void __launch_bounds__(32)
    group_slopes(float* adds, float* by, const double* partials, const float* stats, const float* weight,
                 u64 pixels, unsigned channels, unsigned groups) {
    unsigned width = channels / groups, first = blockIdx.x % groups * width;
    u64 image = blockIdx.x / groups;
    const double* sums = partials + 2 * image * channels + first;
    float deviation = stats[2 * (u64)blockIdx.x + 1];
    adds += 2 * image * channels + first;
    double total = 0.0, along = 0.0;
    for (unsigned i = lane(); i < width; i += 32) {
        total += (float)sums[i] * (double)weight[first + i];
        along += (float)sums[channels + i] * (double)weight[first + i];
        adds[i] = (float)sums[channels + i] * deviation;
        adds[channels + i] = (float)sums[i];
    }
    total = warp_sum(total) / ((double)pixels * width);
    along = warp_sum(along) / ((double)pixels * width);
    if (lane() > 0) return;
    by[2 * (u64)blockIdx.x] = -deviation * deviation * deviation * (float)along;
    by[2 * (u64)blockIdx.x + 1] = -deviation * (float)total;
}

// Turns grads, [count] numbers of images of `image` numbers, into the input gradient.
template <class T>
void group_norm_backward(T* grads, const T* in, const float* stats, const float* by, const float* weight,
                         u64 count, u64 image, unsigned channels, unsigned groups) {
    unsigned width = channels / groups;
    each_channel<true>(grads, in, grads, count, channels, image,
                       [=](float x, float g, unsigned channel, u64 which) {
                           u64 group = 2 * (which * groups + channel / width);
                           float scale = stats[group + 1] * weight[channel];
                           return fmaf(g, scale, fmaf(x - stats[group], by[group], by[group + 1]));
                       });
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256) group_norm_backward##SUFFIX(                   \
        T* grads, const T* in, const float* stats, const float* by, const float* weight, u64 count,  \
        u64 image, unsigned channels, unsigned groups) {                                             \
        group_norm_backward(grads, in, stats, by, weight, count, image, channels, groups);           \
    }
F32_AND_BF16(MAKE)
#undef MAKE
