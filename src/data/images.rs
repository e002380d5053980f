//! Labelled images, as MNIST: shuffled anew each epoch for training, in file order for validation.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pipewright_stages::{Shape, Tensor, rng};

use super::idx::Idx;
use super::permutation::permute;
use super::{DataSource, IGNORED, text};
use crate::error::{Error, Result};
use crate::id::MicroBatch;

/// Images with a label each, out of a pair of IDX files.
#[derive(Debug)]
pub struct LabelledImages {
    images: Idx,
    labels: Idx,
}

impl LabelledImages {
    /// Reads a pair of IDX files, plain or gzipped: `images` of bytes `[count, height, width]`, `labels` of `[count]`.
    /// Without `labels` they are the file beside the images whose name says `labels` for `images` and `idx1` for `idx3`.
    /// When `images` is a folder, it is the one that holds exactly one such pair.
    ///
    /// # Errors
    /// When a file is missing, empty or truncated, has a wrong magic number, or when the counts differ.
    pub fn read(images: &Path, labels: Option<&Path>) -> Result<Self> {
        let images = if images.is_dir() {
            images_in(images)?
        } else {
            images.to_owned()
        };
        let images = Idx::read(&images, 2..=3)?;
        let labels = labels.map_or_else(|| labels_of(&images.path), |labels| Ok(labels.to_owned()))?;
        let labels = Idx::read(&labels, 1..=1)?;
        if images.items() != labels.items() {
            return Err(Error::Data(format!(
                "`{}` holds {} images and `{}` {} labels: they are not a pair",
                images.path.display(),
                images.items(),
                labels.path.display(),
                labels.items(),
            )));
        }
        Ok(Self { images, labels })
    }

    /// The number of images.
    pub fn count(&self) -> u64 {
        self.images.items() as u64
    }

    /// Checks that every label is below `classes`.
    ///
    /// # Errors
    /// At the first label outside: names the file, its place, the label and the limit.
    pub fn check_classes(&self, classes: usize) -> Result<()> {
        match self
            .labels
            .bytes
            .iter()
            .position(|&label| usize::from(label) >= classes)
        {
            None => Ok(()),
            Some(index) => Err(Error::Data(format!(
                "`{}`: label {} of image {index} is outside the model's {classes} classes (0..={})",
                self.labels.path.display(),
                self.labels.bytes[index],
                classes.saturating_sub(1),
            ))),
        }
    }
}

/// Micro-batches of [`LabelledImages`]: input `f32` of `[rows, height, width]` from 0 to 1, target ids of `[rows]`.
#[derive(Debug)]
pub struct Images {
    all: Arc<LabelledImages>,
    span: Range<u64>,
    rows: usize,
    order: Order,
}

/// Which image stands at a position.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// An order of its own each epoch; all replicas together take every image once.
    Shuffled {
        key: [u32; 2],
        micro_batches: u32,
        replicas: u32,
    },
    /// As in the file, the same at every step.
    InOrder,
}

impl Images {
    /// For training: the images of `span` in a new order each epoch, every image exactly once an epoch, when each of
    /// `replicas` takes `micro_batches` micro-batches of `rows` a step.
    ///
    /// # Errors
    /// When the span is empty.
    pub fn shuffled(
        all: Arc<LabelledImages>,
        span: Range<u64>,
        rows: usize,
        micro_batches: u32,
        replicas: u32,
        seed: u64,
    ) -> Result<Self> {
        let key = rng::key(seed, "images");
        Self::of(
            all,
            span,
            rows,
            Order::Shuffled {
                key,
                micro_batches,
                replicas,
            },
            "training",
        )
    }

    /// For validation: the images of `span` in order. What the last micro-batch lacks has the target [`IGNORED`].
    ///
    /// # Errors
    /// When the span is empty.
    pub fn in_order(all: Arc<LabelledImages>, span: Range<u64>, rows: usize) -> Result<Self> {
        Self::of(all, span, rows, Order::InOrder, "validation")
    }

    fn of(all: Arc<LabelledImages>, span: Range<u64>, rows: usize, order: Order, what: &str) -> Result<Self> {
        if span.is_empty() {
            let (path, count) = (all.images.path.display(), all.count());
            return Err(Error::Data(format!(
                "`{path}`: none of its {count} images is for {what}"
            )));
        }
        Ok(Self {
            all,
            span,
            rows,
            order,
        })
    }

    /// The image at a row, if the span still has one there.
    fn image(&self, step: u64, micro_batch: MicroBatch, row: usize, replica: u32) -> Option<usize> {
        let count = self.span.end - self.span.start;
        let index = match self.order {
            Order::Shuffled {
                key,
                micro_batches,
                replicas,
            } => {
                let batch = (step * u64::from(replicas) + u64::from(replica)) * u64::from(micro_batches);
                let place = (batch + u64::from(micro_batch.0)) * self.rows as u64 + row as u64;
                permute(key, place / count, count, place % count)
            }
            Order::InOrder => u64::from(micro_batch.0) * self.rows as u64 + row as u64,
        };
        (index < count).then_some((self.span.start + index) as usize)
    }

    fn input_dims(&self) -> Vec<usize> {
        let mut dims = self.all.images.dims.clone();
        dims[0] = self.rows;
        dims
    }
}

impl DataSource for Images {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch, replica: u32) -> Result<(Tensor, Tensor)> {
        let mut input = Tensor::zeros(&self.input_dims());
        let mut target = vec![IGNORED; self.rows];
        let size = input.shape().count() / self.rows;
        for (row, pixels) in input.f32_mut().chunks_exact_mut(size).enumerate() {
            let Some(image) = self.image(step, micro_batch, row, replica) else {
                break;
            };
            let bytes = &self.all.images.bytes[image * size..(image + 1) * size];
            for (pixel, &byte) in pixels.iter_mut().zip(bytes) {
                *pixel = f32::from(byte) / 255.0;
            }
            target[row] = u32::from(self.all.labels.bytes[image]);
        }
        Ok((input, Tensor::from_ids(&[self.rows], target)?))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (Shape::f32(&self.input_dims()), Shape::ids(&[self.rows]))
    }
}

/// The labels' file that belongs to an images' file, by the names of MNIST.
fn labels_of(images: &Path) -> Result<PathBuf> {
    let name = images
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let labels = name.replace("images", "labels").replace("idx3", "idx1");
    if labels == name {
        let path = images.display();
        return Err(Error::Data(format!(
            "`{path}`: its name does not say `images`, so its labels cannot be found; name the file of labels"
        )));
    }
    Ok(images.with_file_name(labels))
}

/// The only file of images in a folder.
fn images_in(folder: &Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).map_err(|error| text::missing(folder, &error))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::io("list", folder))?;
        if entry.file_name().to_string_lossy().contains("images-idx") {
            found.push(entry.path());
        }
    }
    found.sort();
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Error::Data(format!(
            "the folder `{}` holds no IDX images (a file named such as `train-images-idx3-ubyte.gz`)",
            folder.display()
        ))),
        [first, ..] => Err(Error::Data(format!(
            "the folder `{}` holds {} files of images; name one, such as `{}`",
            folder.display(),
            found.len(),
            first.display()
        ))),
    }
}
