//! How much memory the units of a model need. Known before anything is made.

use super::part::Part;
use crate::layers::{
    ConvSizes, Layout, SCORES_AT_ONCE, SCORES_ON_GPU, adds_in_place, half_scratch, packed_halves,
    packed_weights, product_scratch,
};

/// What one unit of a model holds while it trains, for one micro-batch. Fields count numbers: of four
/// bytes, or of two in `bf16`. Weights, and what is in place, always have four.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitSizes {
    /// Weights. The gradient and each of the optimizer's tensors hold as many numbers; running means have no
    /// tensors of the optimizer, and are counted as if they had.
    pub weights: u64,
    /// The part of `weights` that is a tied copy of the embedding's.
    pub tied: u64,
    /// Packed copies of weights, in the order in which products on the CPU read them in `f32`.
    pub packed: u64,
    /// The same in `bf16`.
    pub packed_bf16: u64,
    /// The weights whose gradient on the CPU is added in place to the sum of the group before, if it is the
    /// gradient of a whole gradient group.
    pub in_place: u64,
    /// What forward keeps for backward-input.
    pub saved: u64,
    /// The part of `saved` that has four bytes in `bf16` too: ids, and sums over rows.
    pub saved_f32: u64,
    /// What forward keeps besides `saved` if nothing is recomputed: the outputs of cheap layers.
    pub cheap: u64,
    /// The part of `saved` that the unit before keeps too.
    pub shared: u64,
    /// What backward-input keeps for backward-weight.
    pub pending: u64,
    /// The part of `pending` that has four bytes in `bf16` too: ids, and gradients of norms.
    pub pending_f32: u64,
    /// The part of `pending` that each of several shards keeps whole.
    pub pending_whole: u64,
    /// The output.
    pub output: u64,
    /// What forward keeps if the unit recomputes its interior in backward.
    pub selective: u64,
    /// The part of `selective` that has four bytes in `bf16` too.
    pub selective_f32: u64,
    /// What a pass needs in addition while it runs. Units of the same model use the same buffers.
    pub working: u64,
    /// The same in `bf16` on the CPU.
    pub working_bf16: u64,
    /// What a pass on a GPU needs beyond `working`: a GPU has more rows of scores in memory at once.
    pub more_on_gpu: u64,
    /// The bytes that convolutions on a GPU need in addition while a pass runs.
    pub windows_on_gpu: u64,
    /// How many rows of scores are [deferred](Part::is_deferred).
    pub deferred: usize,
    /// What shards give each other in a forward, a backward-input and a backward-weight.
    pub exchanges: [Exchanges; 3],
}

/// What the shards of a unit give each other in a pass, if its layers are divided among shards. All fields
/// but the first count numbers of all rows of a micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchanges {
    /// How often each shard gives something to each other one.
    pub times: u64,
    /// Numbers that are gathered: each shard gets those of the others.
    pub gathered: u64,
    /// The same, of four bytes also in `bf16`; or numbers that are added up, where each shard gets the parts
    /// of the sums of its rows.
    pub summed: u64,
    /// Numbers of rows. Each row goes from some shard to the one that has it.
    pub sent: u64,
    /// The same, of four bytes also in `bf16`.
    pub sent_f32: u64,
}

impl Exchanges {
    /// The bytes that a shard gets from the others, if there are this many shards. A number has `dtype`
    /// bytes.
    pub fn bytes(&self, shards: u32, dtype: usize) -> f64 {
        let [shards, dtype] = [f64::from(shards), dtype as f64];
        let whole = dtype * self.gathered as f64 + 4.0 * self.summed as f64;
        let of_rows = dtype * self.sent as f64 + 4.0 * self.sent_f32 as f64;
        (1.0 - 1.0 / shards) * (whole + of_rows / shards)
    }

    fn add(&mut self, more: Self) {
        self.times += more.times;
        self.gathered += more.gathered;
        self.summed += more.summed;
        self.sent += more.sent;
        self.sent_f32 += more.sent_f32;
    }
}

/// Goes through the units of a model, in order, and adds up what their parts need.
#[derive(Default)]
pub(super) struct Walk {
    /// The rows of a micro-batch: tokens, or images.
    rows: usize,
    /// Whether scores are deferred, where that saves memory.
    defers: bool,
    /// The numbers of the activation.
    now: u64,
    /// Whether the part before keeps the activation, or can make it again.
    is_kept: bool,
    /// Whether the part before can make it again, and does not keep it.
    is_cheap: bool,
    /// The input of this unit.
    input: u64,
    /// The sizes of this unit.
    sizes: UnitSizes,
    /// What the products of this unit need while they run: the most in `f32`, and in `bf16`.
    scratch: [u64; 2],
    /// What convolutions widen to `f32` in `bf16`.
    widened: u64,
    /// What is recomputed with the interior of a block, of it in `f32`.
    interior: [u64; 2],
    /// Whether a product of this unit has divided outputs already: the next one has divided inputs.
    is_divided: bool,
}

impl Walk {
    /// Before the first unit: `now` numbers, in this many rows.
    pub(super) fn new(rows: usize, now: u64, defers: bool) -> Self {
        Self { rows, now, defers, ..Self::default() }
    }

    /// The sizes of the next unit.
    pub(super) fn unit(&mut self, parts: &[Part]) -> UnitSizes {
        *self =
            Self { is_kept: self.is_kept, input: self.now, ..Self::new(self.rows, self.now, self.defers) };
        for (index, part) in parts.iter().enumerate() {
            self.add(part, index);
        }
        let sizes = std::mem::take(&mut self.sizes);
        UnitSizes {
            output: self.now,
            selective: sizes.saved - self.interior[0],
            selective_f32: sizes.saved_f32 - self.interior[1],
            working: sizes.working + self.scratch[0],
            working_bf16: sizes.working + self.scratch[1] + 2 * self.widened,
            ..sizes
        }
    }

    fn add(&mut self, part: &Part, index: usize) {
        let (input, rows) = (self.now, self.rows as u64);
        let is_cheap = std::mem::take(&mut self.is_cheap);
        match *part {
            Part::Embedding(tables, dim) => {
                self.now = rows * dim as u64;
                self.sizes.weights += (tables.iter().sum::<usize>() * dim) as u64;
                let forward = Exchanges { times: 1, sent_f32: self.now, ..Exchanges::default() };
                let weight = Exchanges { times: 1, gathered: self.now, ..Exchanges::default() };
                self.exchange([forward, Exchanges::default(), weight]);
                self.save(0, rows);
                self.pend(self.now, rows);
            }
            // Two sums a row. Backward-weight gets gradients of scale and shift, also where it has no shift.
            Part::Norm(dim, parameters) => {
                self.sizes.weights += (parameters * dim) as u64;
                self.save(input, 2 * rows);
                self.pend(0, 2 * dim as u64);
                self.sizes.working += 3 * input;
                (self.is_kept, self.is_cheap) = (true, true);
            }
            Part::HeadNorm(heads) => {
                let gains = 2 * heads.width as u64;
                self.sizes.weights += gains;
                self.save(input, 2 * rows * (heads.query + heads.key_value) as u64);
                self.pend(0, gains);
            }
            // A sum for each head.
            Part::Attention(heads, _) => {
                self.now = rows * (heads.query * heads.width) as u64;
                self.save(input + self.now, rows * heads.query as u64);
                self.sizes.working += 2 * input + self.now;
                self.is_kept = true;
            }
            Part::Linear(sizes, layout, has_bias) => {
                self.sizes.cheap += if is_cheap { input } else { 0 };
                self.linear(sizes, layout, index);
                self.sizes.weights += if has_bias { sizes[1] as u64 } else { 0 };
            }
            Part::Scores(sizes, is_tied) => {
                self.sizes.tied = if is_tied { sizes.iter().product::<usize>() as u64 } else { 0 };
                if self.defers && part.is_deferred(self.rows) {
                    return self.deferred_scores(sizes);
                }
                self.sizes.cheap += if is_cheap { input } else { 0 };
                self.linear(sizes, Layout::OutIn, index);
            }
            // Its buffer, and the one of queries, keys and values, which are 3/4 as wide.
            Part::Gelu => {
                self.save(input, 0);
                self.sizes.working += input + 3 * input / 4;
                (self.is_kept, self.is_cheap) = (true, true);
            }
            Part::Gated => {
                self.now = input / 2;
                self.save(input, 0);
                self.sizes.working += input + self.now;
                (self.is_kept, self.is_cheap) = (true, true);
            }
            // The memory of products is an upper bound: it depends on how many tokens choose an expert.
            Part::Experts([dim, ffn], routing) => {
                let (chosen, experts) = (rows * routing.chosen as u64, routing.experts as u64);
                let (wide, scores) = (chosen * ffn as u64, rows * experts);
                // Tokens to the experts, and their rows back; also the slopes of the weights of all rows.
                let sent = chosen * dim as u64;
                let rows_back = Exchanges { times: 2, gathered: input, sent, ..Exchanges::default() };
                let tokens = Exchanges { times: 1, gathered: input, ..Exchanges::default() };
                let backward = Exchanges { times: 3, summed: chosen, ..rows_back };
                self.exchange([rows_back, backward, tokens]);
                self.sizes.pending_whole += input + scores;
                self.matrices([dim, routing.experts], Layout::OutIn, self.rows, 1);
                for sizes in [[dim, 2 * ffn], [ffn, dim]] {
                    // An expert with few tokens packs all of its weights.
                    self.matrices(sizes, Layout::OutIn, 1, experts);
                    // Memory for gradients of weights has sizes that are powers of two, each up to twice as
                    // large as the one before.
                    self.product(sizes, Layout::OutIn, 2);
                }
                // The input, the scores, gate and up. Also which experts were chosen, with which weights.
                self.save(input + scores + 2 * wide, 2 * chosen);
                // The gradients of the scores, gate and up, and the output; the inputs of the router and of
                // the second products; the choice of experts.
                self.pend(scores + 3 * wide + 2 * input, 2 * chosen);
                self.sizes.working += chosen * (dim as u64 + 1) + 4 * wide;
            }
            Part::OwnRows => {
                let rows = Exchanges { times: 1, sent: input, ..Exchanges::default() };
                self.exchange([rows, rows, Exchanges::default()]);
            }
            Part::Rotary(_) | Part::Dropout => self.is_kept = false,
            // Buffers are reused by length: with the norm's, five are as wide as the input.
            Part::Residual => {
                self.sizes.working += 2 * input;
                self.end_block();
            }
            Part::Relu => {
                self.save(input, 0);
                self.sizes.working = self.sizes.working.max(input);
                self.is_kept = true;
            }
            Part::Conv(sides, channels, kernel, has_bias) => {
                let rows = self.rows;
                self.convolution(ConvSizes { rows, sides, channels, kernel }, index);
                self.sizes.weights += if has_bias { channels[1] as u64 } else { 0 };
            }
            // Its parameters and running means. It keeps a mean and a deviation for each channel.
            Part::BatchNorm(channels) => {
                let channels = channels as u64;
                self.sizes.weights += 4 * channels;
                self.save(input, 2 * channels);
                self.pend(0, 4 * channels);
                if index == 1 {
                    self.sizes.working += input;
                    self.widened += input;
                }
                self.is_kept = false;
            }
            // It keeps where the largest numbers are.
            Part::MaxPool(numbers) => {
                self.now = rows * numbers as u64;
                self.save(0, self.now);
                self.sizes.working += self.input + input;
                self.is_kept = false;
            }
            Part::GlobalAverage(channels) => {
                self.now = rows * channels as u64;
                self.is_kept = false;
            }
            Part::Shortcut => {
                self.now = self.input;
                self.sizes.pending -= self.input;
                self.is_kept = true;
            }
            Part::Sum => {
                self.sizes.working = self.input + input;
                self.end_block();
            }
        }
    }

    /// Adds what shards give each other in the three passes.
    fn exchange(&mut self, passes: [Exchanges; 3]) {
        self.sizes.exchanges.iter_mut().zip(passes).for_each(|(all, more)| all.add(more));
    }

    /// Products with divided outputs gather their input, and add up its gradient. Those with divided inputs
    /// do it the other way.
    fn divide_linear(&mut self, [input, output]: [u64; 2]) {
        let gather = |gathered| Exchanges { times: 1, gathered, ..Exchanges::default() };
        let sum = |summed| Exchanges { times: 1, summed, ..Exchanges::default() };
        match std::mem::replace(&mut self.is_divided, true) {
            false => self.exchange([gather(input), sum(input), gather(input)]),
            true => {
                self.exchange([sum(output), gather(output), Exchanges::default()]);
                self.sizes.pending_whole += output;
            }
        }
    }

    fn linear(&mut self, sizes: [usize; 2], layout: Layout, index: usize) {
        let input = self.now;
        self.divide_linear([input, (self.rows * sizes[1]) as u64]);
        self.keep_input(index);
        self.now = (self.rows * sizes[1]) as u64;
        self.pend(input + self.now, 0);
        self.matrices(sizes, layout, self.rows, 1);
        self.product(sizes, layout, 1);
        if self.sizes.working == 0 {
            self.sizes.working = input + self.now;
        }
    }

    /// Scores that are deferred to the backward. Until then, their input is held.
    fn deferred_scores(&mut self, sizes: [usize; 2]) {
        let (input, rows) = (self.now, SCORES_AT_ONCE.min(self.rows));
        self.matrices(sizes, Layout::OutIn, self.rows, 1);
        let needs = [product_scratch, half_scratch].map(|scratch| scratch(sizes, Layout::OutIn, rows) as u64);
        self.needs(needs);
        let all = Exchanges { times: 2, gathered: input, summed: input, ..Exchanges::default() };
        self.exchange([Exchanges::default(), all, Exchanges::default()]);
        // Rows of the input and of its gradient, and their scores.
        let of_rows = |rows: usize| (rows * (2 * sizes[0] + sizes[1])) as u64;
        self.sizes.deferred = self.rows;
        self.sizes.working += 2 * input + of_rows(rows);
        self.sizes.more_on_gpu = of_rows(SCORES_ON_GPU.min(self.rows)) - of_rows(rows);
    }

    fn convolution(&mut self, conv: ConvSizes, index: usize) {
        let input = self.now;
        self.keep_input(index);
        self.now = conv.outputs();
        self.pend(input + self.now, 0);
        let (sizes, packed, scratch) = (&mut self.sizes, conv.packed(), conv.scratch());
        sizes.weights += conv.weights();
        sizes.in_place += conv.in_place();
        sizes.packed += packed;
        // With `bf16`, packed weights and what products need are in `f32` too.
        sizes.packed_bf16 += 2 * packed;
        self.needs([scratch, 2 * scratch]);
        // Blocks of a GPU have sizes of powers of two, and are kept.
        self.sizes.windows_on_gpu = self.sizes.windows_on_gpu.max(2 * conv.rows_on_gpu());
        if index == 0 {
            self.sizes.working = self.now;
            self.widened = input + self.now;
        }
    }

    /// The input is kept, unless the part before in this unit keeps it.
    fn keep_input(&mut self, index: usize) {
        if index == 0 || !self.is_kept {
            self.save(self.now, 0);
        }
        if index == 0 && self.is_kept {
            self.sizes.shared = self.now;
        }
        self.is_kept = false;
    }

    /// If a block recomputes its interior, it keeps its input only.
    fn end_block(&mut self) {
        self.interior = [self.sizes.saved - self.input, self.sizes.saved_f32];
        self.is_kept = false;
    }

    /// Forward keeps these numbers, and these in `f32`.
    fn save(&mut self, numbers: u64, f32: u64) {
        self.sizes.saved += numbers + f32;
        self.sizes.saved_f32 += f32;
    }

    /// Backward-input keeps these numbers, and these in `f32`.
    fn pend(&mut self, numbers: u64, f32: u64) {
        self.sizes.pending += numbers + f32;
        self.sizes.pending_f32 += f32;
    }

    /// The weights of `count` linear layers, with their copies for products of `rows` rows.
    fn matrices(&mut self, sizes: [usize; 2], layout: Layout, rows: usize, count: u64) {
        let numbers = count * sizes.iter().product::<usize>() as u64;
        self.sizes.weights += numbers;
        self.sizes.packed += count * packed_weights(sizes, layout, rows) as u64;
        self.sizes.packed_bf16 += count * packed_halves(sizes) as u64;
        self.sizes.in_place += if adds_in_place(self.rows) { numbers } else { 0 };
    }

    /// A product of a linear layer, whose memory is there `times` times.
    fn product(&mut self, sizes: [usize; 2], layout: Layout, times: u64) {
        let needs = [product_scratch, half_scratch].map(|scratch| scratch(sizes, layout, self.rows));
        self.needs(needs.map(|numbers| times * numbers as u64));
    }

    fn needs(&mut self, [f32, bf16]: [u64; 2]) {
        self.scratch = [self.scratch[0].max(f32), self.scratch[1].max(bf16)];
    }
}
