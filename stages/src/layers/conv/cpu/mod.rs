//! Convolutions of images `[count, height, width, channels]`, without a copy of all windows (im2col).
//!
//! A window's row is contiguous in an image, since channels are innermost and neighbours in a row follow each
//! other. So a window is a few contiguous segments, and a tile of the output is summed over these where they
//! lie. Only the border is a copy: images are put between zeros, a few at a time. The input gradient is such
//! a product too, with the weights of each kind of pixel turned round.
//!
//! Every number is summed in an order that only the sizes of an image decide. So its bits depend neither on
//! the threads nor on the images beside it.

pub(crate) mod filters;
pub(crate) mod padded;
pub(crate) mod slide;
pub(crate) mod weights;

use crate::cpu::parts::{By, PRODUCTS, cut};
use crate::pool::Buffer;

pub(crate) use filters::Filters;
pub(crate) use weights::{add_weight_grad, is_added_up_first};

use padded::Padded;
use slide::{Pixels, slide};

/// How many numbers of padded images are in memory at a time, if that is not less than one image: half of the
/// second-level cache of most CPUs.
const PADDED: usize = 128 * 1024;

/// A window that moves over images, where it is a square, or over sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// The length of its sides.
    pub(crate) kernel: usize,
    /// How far it moves.
    pub(crate) stride: usize,
    /// The width of the border around an image, or before and after a sequence.
    pub(crate) padding: usize,
}

impl Window {
    /// How many places it has along a side of this length.
    pub(crate) fn places(self, side: usize) -> Option<usize> {
        let rest = (side + 2 * self.padding).checked_sub(self.kernel)?;
        Some(rest / self.stride + 1)
    }
}

/// The size of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
}

impl Image {
    /// How many numbers it has.
    pub(crate) fn count(self) -> usize {
        self.height * self.width * self.channels
    }

    /// The image of what a window sees at each of its places.
    ///
    /// # Panics
    /// When the window is larger than the image and its border.
    pub(crate) fn seen_by(self, window: Window, channels: usize) -> Self {
        let places = |side| window.places(side).expect("checked: the window fits");
        Self {
            height: places(self.height),
            width: places(self.width),
            channels,
        }
    }
}

/// `out = bias + convolution of the images`. `out` are images of the filters' outputs.
pub(crate) fn forward(
    out: &mut [f32],
    bias: Option<&[f32]>,
    images: &[f32],
    image: Image,
    filters: &Filters,
) {
    let window = filters.window();
    let seen = image.seen_by(window, filters.sizes()[1]);
    let border = [window.padding; 2];
    share(out, seen, images, image, filters, |out, images, room| {
        let padded = Padded::new(images, image, [border; 2], room);
        let pixels = Pixels {
            size: [seen.height, seen.width],
            from: padded.places([0, 0], window.stride),
            to: places(seen, [0, 0], 1),
        };
        for phase in filters.phases() {
            slide(out, bias, &padded, pixels, phase);
        }
    });
}

/// The gradient of the images, for this gradient of the outputs. `filters` are turned round.
pub(crate) fn backward(out: &mut [f32], grads: &[f32], image: Image, filters: &Filters) {
    let window = filters.window();
    let seen = image.seen_by(window, filters.sizes()[0]);
    let borders = [image.height, image.width].map(|side| filters::borders(window, side));
    share(out, image, grads, seen, filters, |out, grads, room| {
        if window.stride > window.kernel {
            // Some pixels are in no window.
            out.fill(0.0);
        }
        let padded = Padded::new(grads, seen, borders, room);
        for phase in filters.phases() {
            let [down, across] = [(image.height, 0), (image.width, 1)]
                .map(|(side, axis)| phase.reach(window, side, axis, borders[axis][0]));
            let pixels = Pixels {
                size: [down.count, across.count],
                from: padded.places([down.window, across.window], 1),
                to: places(image, [down.first, across.first], window.stride),
            };
            slide(out, None, &padded, pixels, phase);
        }
    });
}

/// How many numbers a pass needs while it runs, with windows whose border keeps the sides: padded images, or
/// what the gradient of the weights copies.
pub(crate) fn scratch(sides: [usize; 2], [inputs, outputs]: [usize; 2], kernel: usize) -> usize {
    let padded: usize = sides.iter().map(|side| side + kernel - 1).product();
    let channels = inputs.max(outputs);
    let few = (PADDED / (sides.iter().product::<usize>() * channels).max(1)).max(1);
    (few * padded * channels).max(weights::scratch(sides, outputs, kernel))
}

/// Where pixels lie: the first one, and the distances of pixels, lines and images.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    first: usize,
    across: usize,
    down: usize,
    image: usize,
}

/// Every `step`-th pixel of both directions, from this line and column on.
fn places(image: Image, [line, column]: [usize; 2], step: usize) -> Places {
    let down = image.width * image.channels;
    Places {
        first: line * down + column * image.channels,
        across: step * image.channels,
        down: step * down,
        image: image.count(),
    }
}

/// Lets the threads share the images, and gives each a few at a time, with room to pad them.
fn share(
    out: &mut [f32],
    to: Image,
    images: &[f32],
    from: Image,
    filters: &Filters,
    work: impl Fn(&mut [f32], &[f32], &mut Buffer) + Sync,
) {
    let weight = filters.count() * to.height * to.width / PRODUCTS;
    let rows = (By(out, to.count()), By(images, from.count()));
    cut(rows, weight.max(1), |_, (out, images)| {
        let few = (PADDED / from.count()).max(1);
        let groups = out
            .chunks_mut(few * to.count())
            .zip(images.chunks(few * from.count()));
        let mut room = Buffer::pooled(0);
        for (out, images) in groups {
            work(out, images, &mut room);
        }
    });
}
