//! CIFAR-10 in its binary form: records of a label and an image of 32 x 32 pixels. Krizhevsky, "Learning
//! multiple layers of features from tiny images" (2009).

use std::io::Read;
use std::path::{Path, PathBuf};

use super::idx::Idx;
use crate::data::file::{self, wrong};
use crate::error::{DataError, Error, Result};

/// The side of an image.
const SIDE: usize = 32;
const PIXELS: usize = SIDE * SIDE;
const COLORS: usize = 3;
/// The bytes of a record: a label, then the image color by color.
const RECORD: usize = 1 + COLORS * PIXELS;

/// The mean of each color in the training set, and its standard deviation, from 0 to 1.
pub(super) const MEANS: [f32; COLORS] = [0.4914, 0.4822, 0.4465];
pub(super) const DEVIATIONS: [f32; COLORS] = [0.2470, 0.2435, 0.2616];

/// The images `[count, 32, 32, 3]` and the labels of a file, or of all files of a folder: first the files of
/// training, in the order of their names, then the file of the test.
pub(super) fn read(path: &Path) -> Result<(Idx, Idx)> {
    let files = match path.is_dir() {
        true => files_in(path)?,
        false => vec![path.to_owned()],
    };
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for file in files {
        add(&file, &mut pixels, &mut labels)?;
    }
    let count = labels.len();
    let idx = |dims, bytes| Idx { path: path.to_owned(), dims, bytes };
    Ok((idx(vec![count, SIDE, SIDE, COLORS], pixels), idx(vec![count], labels)))
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let is_of_training = |name: &str| name.starts_with("data_batch") && name.ends_with(".bin");
    let mut files = file::entries(folder)?;
    files.retain(|path| is_of_training(&file::name(path)));
    let test = folder.join("test_batch.bin");
    files.extend(test.exists().then_some(test));
    match files.is_empty() {
        true => Err(DataError::new(format!(
            "the folder `{}` holds neither `data_batch_1.bin` nor `test_batch.bin`: unpack CIFAR-10's binary \
             version there",
            folder.display()
        ))
        .into()),
        false => Ok(files),
    }
}

/// Adds a file's images and labels.
fn add(path: &Path, pixels: &mut Vec<u8>, labels: &mut Vec<u8>) -> Result<()> {
    let (file, length) = file::open(path)?;
    if length == 0 {
        return Err(wrong(path, "is empty"));
    }
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    let (records, []) = bytes.as_chunks::<RECORD>() else {
        return Err(wrong(
            path,
            format!(
                "has {} bytes, which are no whole records of {RECORD}: CIFAR-10's binary form was expected",
                bytes.len()
            ),
        ));
    };
    for [label, planes @ ..] in records {
        labels.push(*label);
        pixels.extend((0..COLORS * PIXELS).map(|at| planes[at % COLORS * PIXELS + at / COLORS]));
    }
    Ok(())
}
