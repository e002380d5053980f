//! Images with one label each, from a pair of IDX files or from CIFAR-10.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::cifar;
use super::idx::{Header, Idx};
use crate::checksum::{Checksum, ChecksumBuilder};
use crate::data::file::{self, wrong};
use crate::error::{DataError, Error, Result};

/// Images with one label each, from a pair of IDX files or from CIFAR-10.
#[derive(Debug)]
pub struct LabelledImages {
    pub(super) images: Idx,
    pub(super) labels: Idx,
    /// The mean and the deviation of each color, which become 0 and 1.
    colors: Option<[[f32; 3]; 2]>,
    checksum: OnceLock<Checksum>,
}

impl LabelledImages {
    /// Reads a pair of IDX files, plain or gzipped: `images` of bytes `[count, height, width]`, `labels` of
    /// `[count]`.
    ///
    /// If `labels` is `None`, the labels' file is found by the name of the images' file, as in MNIST:
    /// `labels` in place of `images`, and `idx1` in place of `idx3`. If `images` is a folder, it must hold
    /// exactly one such pair.
    ///
    /// # Errors
    /// When a file is missing, empty or truncated, when its magic number is wrong, or when the counts differ.
    pub fn read(images: &Path, labels: Option<&Path>) -> Result<Self> {
        let images = if images.is_dir() { images_in(images)? } else { images.to_owned() };
        let images = Header::read(&images, 2..=3)?;
        let labels = labels.map_or_else(|| labels_of(images.path()), |labels| Ok(labels.to_owned()))?;
        let labels = Header::read(&labels, 1..=1)?;
        // Compare before reading the contents, which may be long.
        if images.items() != labels.items() {
            return Err(Error::from(DataError::new(format!(
                "`{}` holds {} images and `{}` {} labels: they are not a pair",
                images.path().display(),
                images.items(),
                labels.path().display(),
                labels.items()
            ))));
        }
        Ok(Self {
            images: images.contents()?,
            labels: labels.contents()?,
            colors: None,
            checksum: OnceLock::new(),
        })
    }

    /// Reads CIFAR-10 in its binary form: a file, or a folder with `data_batch_1.bin` and so on, then
    /// `test_batch.bin`, whose 10,000 images are the last ones. Images are `[count, 32, 32, 3]`; each color
    /// has mean 0 and deviation 1 over the training set.
    ///
    /// # Errors
    /// When a file is missing or empty, or has no whole records of 3073 bytes.
    pub fn cifar10(path: &Path) -> Result<Self> {
        let (images, labels) = cifar::read(path)?;
        Ok(Self {
            images,
            labels,
            colors: Some([cifar::MEANS, cifar::DEVIATIONS]),
            checksum: OnceLock::new(),
        })
    }

    /// The numbers of some pixels, whose colors are side by side.
    pub(in crate::data) fn numbers(&self, bytes: &[u8], numbers: &mut [f32]) {
        for (number, &byte) in numbers.iter_mut().zip(bytes) {
            *number = f32::from(byte) / 255.0;
        }
        if let Some([means, deviations]) = self.colors {
            for pixel in numbers.as_chunks_mut::<3>().0 {
                for ((number, mean), deviation) in pixel.iter_mut().zip(means).zip(deviations) {
                    *number = (*number - mean) / deviation;
                }
            }
        }
    }

    /// A name for messages: the images' file.
    pub(in crate::data) fn name(&self) -> String {
        format!("`{}`", self.images.path.display())
    }

    /// The checksum of all images, their dimensions and their labels. It is computed once.
    pub(in crate::data) fn checksum(&self) -> Checksum {
        *self.checksum.get_or_init(|| {
            let mut checksum = ChecksumBuilder::new();
            checksum.add(format!("{:?}", self.images.dims).as_bytes());
            checksum.add(&self.images.bytes);
            checksum.add(&self.labels.bytes);
            checksum.checksum()
        })
    }

    /// The number of images.
    pub fn count(&self) -> u64 {
        self.images.dims[0] as u64
    }

    /// Checks that every label is below `classes`.
    ///
    /// # Errors
    /// For the first label that is too high: names the file, the label's position, the label and the limit.
    pub fn check_classes(&self, classes: usize) -> Result<()> {
        match self.labels.bytes.iter().position(|&label| usize::from(label) >= classes) {
            None => Ok(()),
            Some(image) => Err(Error::from(DataError::new(format!(
                "`{}`: label {} of image {image} is outside the model's {classes} classes (0..={})",
                self.labels.path.display(),
                self.labels.bytes[image],
                classes.saturating_sub(1)
            )))),
        }
    }
}

/// The labels' file for an images' file, by MNIST's names.
fn labels_of(images: &Path) -> Result<PathBuf> {
    let name = images.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let labels = name.replace("images", "labels").replace("idx3", "idx1");
    if labels == name {
        return Err(wrong(
            images,
            "is not one of a known pair: its name does not say `images`, so its labels cannot be found; name \
             the file of labels",
        ));
    }
    Ok(images.with_file_name(labels))
}

/// The only images' file in a folder.
fn images_in(folder: &Path) -> Result<PathBuf> {
    let mut found = file::entries(folder)?;
    found.retain(|path| file::name(path).contains("images-idx"));
    let problem = match found.as_slice() {
        [one] => return Ok(one.clone()),
        [] => "holds no IDX images (a file named such as `train-images-idx3-ubyte.gz`)".to_owned(),
        [first, ..] => {
            format!("holds {} files of images; name one, such as `{}`", found.len(), first.display())
        }
    };
    Err(Error::from(DataError::new(format!("the folder `{}` {problem}", folder.display()))))
}
