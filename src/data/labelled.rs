//! Images with a label each, out of a pair of IDX files.

use std::path::{Path, PathBuf};

use super::idx::Idx;
use super::text;
use crate::error::{Error, Result};

/// Images with a label each, out of a pair of IDX files.
#[derive(Debug)]
pub struct LabelledImages {
    pub(super) images: Idx,
    pub(super) labels: Idx,
}

impl LabelledImages {
    /// Reads a pair of IDX files, plain or gzipped: `images` of bytes `[count, height, width]`, `labels` of
    /// `[count]`. Without `labels` they are the file beside the images whose name says `labels` for `images`
    /// and `idx1` for `idx3`. When `images` is a folder, it is the one that holds exactly one such pair.
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
