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
pub(crate) mod window;

use self::window::{Image, places};
use crate::cpu::parts::{By, PRODUCTS, cut};
use crate::pool::Buffer;
use padded::Padded;
use slide::{Pixels, slide};

pub(crate) use filters::Filters;
pub(crate) use weights::{add_weight_grad, is_added_up_first};

/// How many numbers of padded images are in memory at a time, if that is not less than one image: half of the
/// second-level cache of most CPUs.
const PADDED: usize = 128 * 1024;

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
        let groups = out.chunks_mut(few * to.count()).zip(images.chunks(few * from.count()));
        let mut room = Buffer::pooled(0);
        for (out, images) in groups {
            work(out, images, &mut room);
        }
    });
}
