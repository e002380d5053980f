//! Labelled images such as MNIST: the files that have them, and micro-batches of them. Training takes them in
//! a new order each epoch, validation in the order of the file.

mod cifar;
mod idx;
pub(super) mod labelled;

use std::ops::Range;
use std::sync::Arc;

use pipewright_stages::rng::{key, philox};
use pipewright_stages::{Shape, Tensor};

use super::order::SampleOrder;
use super::range::{check_rows, check_span};
use super::{Course, DataSource, Fingerprint, IGNORED, LabelledImages};
use crate::error::{DataError, Result};
use crate::id::MicroBatch;

/// Micro-batches of [`LabelledImages`]. Input: `f32` of `[rows, height, width]`, from 0 to 1; of CIFAR-10
/// `[rows, 32, 32, 3]`, of mean 0 and deviation 1. Target: ids of `[rows]`.
#[derive(Debug)]
pub struct Images {
    all: Arc<LabelledImages>,
    span: Range<u64>,
    rows: usize,
    order: SampleOrder,
    augment: Option<Augment>,
}

impl Images {
    /// For training: the images of `span`, in a new order each epoch, every image exactly once an epoch.
    /// `rows`: images in a micro-batch; `micro_batches`: how many of these a step takes.
    ///
    /// # Errors
    /// When the span is empty or not within the images, or when `rows` is 0.
    pub fn shuffled(
        all: Arc<LabelledImages>,
        span: Range<u64>,
        rows: usize,
        micro_batches: u32,
        seed: u64,
    ) -> Result<Self> {
        let order = SampleOrder::shuffled("images", seed, rows, micro_batches);
        Self::of(all, span, rows, order, "training")
    }

    /// For validation: the images of `span` in order. If they do not fill the last micro-batch, its remaining
    /// rows have the target [`IGNORED`].
    ///
    /// # Errors
    /// When the span is empty or not within the images, or when `rows` is 0.
    pub fn in_order(all: Arc<LabelledImages>, span: Range<u64>, rows: usize) -> Result<Self> {
        Self::of(all, span, rows, SampleOrder::InOrder, "validation")
    }

    fn of(
        all: Arc<LabelledImages>,
        span: Range<u64>,
        rows: usize,
        order: SampleOrder,
        purpose: &'static str,
    ) -> Result<Self> {
        let (name, count) = (all.name(), all.count());
        check_span(&name, &span, count)?;
        check_rows(&name, rows)?;
        if span.is_empty() {
            let path = all.images.path.display();
            return Err(
                DataError::new(format!("`{path}`: none of its {count} images is for {purpose}")).into()
            );
        }
        Ok(Self { all, span, rows, order, augment: None })
    }

    /// The same images, with another course.
    #[must_use]
    pub fn on_course(mut self, of: Course) -> Self {
        self.order = self.order.on_course(of);
        self
    }

    /// The same images, each moved by up to 4 pixels, with zeros behind its border, and flipped or not, at
    /// random (He et al., 2016). The changes are keyed by the seed, the epoch and the image.
    #[must_use]
    pub fn with_crops_and_flips(mut self, seed: u64) -> Self {
        self.augment = Some(Augment::new(seed));
        self
    }

    /// The image at a row and its epoch, or `None` after the end of the span.
    fn image(&self, step: u64, micro_batch: MicroBatch, row: usize) -> Option<(usize, u64)> {
        let count = self.span.end - self.span.start;
        let (index, epoch) = self.order.sample(count, step, micro_batch, (row, self.rows))?;
        Some(((self.span.start + index) as usize, epoch))
    }

    /// Writes an image, as it is changed.
    fn write(&self, pixels: &mut [f32], bytes: &[u8], change: Option<Change>) {
        let Some(change) = change else {
            return self.all.numbers(bytes, pixels);
        };
        let (sides, colors) = self.sides();
        for (place, pixel) in pixels.chunks_exact_mut(colors).enumerate() {
            match change.source(place, sides) {
                Some(from) => self.all.numbers(&bytes[from * colors..][..colors], pixel),
                None => pixel.fill(0.0),
            }
        }
    }

    /// Height and width, and how many numbers a pixel has.
    fn sides(&self) -> ([usize; 2], usize) {
        match *self.all.images.dims {
            [_, height, width, colors] => ([height, width], colors),
            [_, height, width] => ([height, width], 1),
            _ => ([1, self.input_shape().last()], 1),
        }
    }

    fn input_shape(&self) -> Shape {
        Shape::f32(&self.all.images.dims).with_first(self.rows)
    }
}

impl DataSource for Images {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        let mut input = Tensor::zeros(self.input_shape().dims());
        let mut target = Tensor::scratch_ids(&[self.rows]);
        target.ids_mut().fill(IGNORED);
        let size = input.shape().count() / self.rows;
        for (row, pixels) in input.f32_mut().chunks_exact_mut(size).enumerate() {
            let Some((image, epoch)) = self.image(step, micro_batch, row) else {
                break;
            };
            let bytes = &self.all.images.bytes[image * size..(image + 1) * size];
            let change = self.augment.map(|augment| augment.change(epoch, image as u64));
            self.write(pixels, bytes, change);
            target.ids_mut()[row] = u32::from(self.all.labels.bytes[image]);
        }
        Ok((input, target))
    }

    fn describe(&self) -> String {
        self.all.name()
    }

    fn shapes(&self) -> (Shape, Shape) {
        (self.input_shape(), Shape::ids(&[self.rows]))
    }

    /// The fingerprint covers all images and labels.
    fn fingerprint(&self) -> Result<Fingerprint> {
        let (Range { start, end }, rows) = (&self.span, self.rows);
        let images = format!("images from {start}..{end}");
        let (order, samples) = self.order.fingerprint(&images);
        Ok(Fingerprint {
            name: self.all.name(),
            contents: self.all.checksum(),
            batches: match self.augment {
                Some(augment) => format!("{rows} {order}, {augment:?}"),
                None => format!("{rows} {order}"),
            },
            is_sample: false,
            part: Some(self.span.clone()),
            samples,
            sources: Vec::new(),
        })
    }

    fn is_endless(&self) -> bool {
        true
    }
}

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
