//! Settings that make no sense.

use super::Cause;

/// A setting that makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// 0 where there must be at least one.
    #[error("{what} is 0: it must be at least 1")]
    Zero {
        /// The setting.
        what: &'static str,
    },
    /// Heads that do not divide the width.
    #[error("dim {dim} is not divisible by heads {heads}: choose heads that divide dim")]
    Heads {
        /// The width.
        dim: usize,
        /// The heads.
        heads: usize,
    },
    /// Query heads that cannot share the key and value heads evenly.
    #[error(
        "{query} query heads cannot share {key_value} key/value heads evenly: choose query heads that are a \
         multiple of the key/value heads"
    )]
    Groups {
        /// The query heads.
        query: usize,
        /// The key heads, and the value heads.
        key_value: usize,
    },
    /// More experts for a token than there are.
    #[error("a token cannot choose {chosen} of {experts} experts: it must be 1 to {experts}")]
    Chosen {
        /// The experts of a token.
        chosen: usize,
        /// All experts.
        experts: usize,
    },
    /// A coefficient of the auxiliary loss that is negative or no number.
    #[error("the auxiliary loss's coefficient is {value}: it must be 0 or more, such as 0.01")]
    Auxiliary {
        /// The coefficient.
        value: f32,
    },
    /// Heads of an odd width, whose numbers make no pairs.
    #[error(
        "heads of {width} numbers cannot be turned, since a rotary embedding turns pairs: choose an even \
         width"
    )]
    OddHeads {
        /// The width of a head.
        width: usize,
    },
    /// A number of a rotary embedding out of its range.
    #[error("the rotary embedding's {what} is {value}: it must be {expected}")]
    Rope {
        /// The setting.
        what: &'static str,
        /// Its value.
        value: f64,
        /// What it must be.
        expected: &'static str,
    },
    /// A probability of dropout out of its range.
    #[error("dropout {rate} is not a probability below 1: choose one in 0..1, such as 0.1")]
    Dropout {
        /// The probability.
        rate: f32,
    },
    /// A label smoothing out of its range.
    #[error("label smoothing {share} is not a share below 1: choose one in 0..1, such as 0.1")]
    Smoothing {
        /// The share of a target that is spread.
        share: f32,
    },
    /// The distance from which on Huber's loss is linear, out of its range.
    #[error("Huber's delta is {delta}: it must be a number above 0, such as 1.0")]
    Delta {
        /// The distance.
        delta: f32,
    },
    /// A window that is larger than the image and its border.
    #[error(
        "a window of {kernel} x {kernel} does not fit into images of {} x {} with a border of {padding}: \
         choose a smaller kernel, more padding or larger images",
        sides[0],
        sides[1]
    )]
    Window {
        /// Height and width of the images.
        sides: [usize; 2],
        /// The length of the window's sides.
        kernel: usize,
        /// The width of the border.
        padding: usize,
    },
    /// A window that is longer than the sequence and its borders.
    #[error(
        "a window of {kernel} does not fit into sequences of {time} with a border of {padding}: choose a \
         smaller kernel, more padding or longer sequences"
    )]
    WindowOfTime {
        /// The length of the sequences.
        time: usize,
        /// The length of the window.
        kernel: usize,
        /// The zeros before and after a sequence.
        padding: usize,
    },
    /// A border so wide that a window would see no pixel.
    #[error("padding {padding} is not smaller than the kernel {kernel}: a window would see no pixel")]
    Padding {
        /// The width of the border.
        padding: usize,
        /// The length of the window's sides.
        kernel: usize,
    },
    /// Groups of channels that do not divide them.
    #[error(
        "{channels} channels cannot be divided into {groups} groups: choose groups that divide the channels"
    )]
    ChannelGroups {
        /// The channels.
        channels: usize,
        /// The groups.
        groups: usize,
    },
    /// A residual network without blocks.
    #[error("blocks {blocks:?}: give 1 to 12 groups at least one block each, such as 2,2,2,2")]
    Blocks {
        /// The blocks of each group.
        blocks: Vec<usize>,
    },
    /// A network of convolutions without outputs.
    #[error("channels {channels:?} are too few: give each convolution one at least, such as 32,64")]
    Convolutions {
        /// The outputs of each convolution.
        channels: Vec<usize>,
    },
    /// More pools than images can be halved.
    #[error(
        "images of {} x {} cannot be halved {pools} times: choose fewer convolutions or larger images",
        sides[0],
        sides[1]
    )]
    Pools {
        /// Height and width of the images.
        sides: [usize; 2],
        /// How many pools there are.
        pools: usize,
    },
    /// A perceptron with fewer than two widths.
    #[error("sizes {sizes:?} are too few: give the input's and the output's width at least")]
    Widths {
        /// The widths.
        sizes: Vec<usize>,
    },
    /// A name that no device has.
    #[error("`{name}` is no device: write `cpu`, or `cuda:0` for the first GPU")]
    NoDevice {
        /// The name.
        name: String,
    },
    /// Threads that the system cannot start.
    #[error("no {count} threads: {source}")]
    Threads {
        /// How many there should be.
        count: usize,
        /// The system's reason.
        source: Cause,
    },
}
