//! Changes of images that keep their label.

use pipewright_stages::rng::{key, philox};

/// How far an image is moved at most, in pixels.
const FAR: usize = 4;

/// A random move of an image by up to 4 pixels in both directions, with zeros behind its border, and a random
/// flip of left and right: the changes of He et al. (2016) for CIFAR-10.
///
/// They are keyed by the seed, the epoch and the image. So they depend neither on where a run was resumed nor
/// on how a step is divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Augment {
    key: [u32; 2],
}

/// What happens to one image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// The line and the column that become the first, after `FAR` lines and columns of zeros.
    from: [usize; 2],
    flips: bool,
}

impl Augment {
    pub(super) fn new(seed: u64) -> Self {
        Self { key: key(seed, "crops and flips") }
    }

    /// What happens to an image in an epoch.
    pub(super) fn change(self, epoch: u64, image: u64) -> Change {
        let halves = |number: u64| [number as u32, (number >> 32) as u32];
        let ([image, more], [epoch, later]) = (halves(image), halves(epoch));
        let [line, column, flips, _] = philox(self.key, [image, more, epoch, later]);
        let places = 2 * FAR as u64 + 1;
        Change {
            // The high bits of a product, so each place is as likely as the others.
            from: [line, column].map(|draw| ((u64::from(draw) * places) >> 32) as usize),
            flips: flips >> 31 == 1,
        }
    }
}

impl Change {
    /// Which pixel comes to this place of an image of such sides. `None`: a zero.
    pub(super) fn source(self, place: usize, [height, width]: [usize; 2]) -> Option<usize> {
        let (line, column) = (place / width, place % width);
        let column = if self.flips { width - 1 - column } else { column };
        let line = (line + self.from[0]).checked_sub(FAR)?;
        let column = (column + self.from[1]).checked_sub(FAR)?;
        (line < height && column < width).then_some(line * width + column)
    }
}
