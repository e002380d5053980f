//! Files and folders of data that cannot be used.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::IndexProblem;

/// What is wrong with a file of data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileProblem {
    /// It has no bytes.
    #[error("is empty")]
    Empty,
    /// It is a folder where a file was expected.
    #[error("is not a file; name a token file")]
    Folder,
    /// A pipe, a device or a socket: it has no size and cannot be read twice.
    #[error("is a {kind}, not a regular file; write what it gives into a file first")]
    NotRegular {
        /// Pipe, device or socket.
        kind: &'static str,
    },
    /// A NumPy array where plain tokens were expected.
    #[error(
        "is a NumPy array (.npy), whose header would be read as tokens; write the tokens alone, as \
         `array.astype('uint16').tofile('tokens.bin')` does"
    )]
    Npy,
    /// It is the index of a token file, and does not fit it.
    #[error("{0}")]
    Index(IndexProblem),
    /// It is not text.
    #[error(
        "is not UTF-8 at byte {byte}: convert it, as with iconv, or train on its bytes without a tokenizer"
    )]
    NotUtf8 {
        /// The first byte that is not, from 0.
        byte: u64,
    },
    /// The description of a token file cannot be read.
    #[error(
        "does not describe a token file ({0}): write both again with `pipewright tokenize`, or remove it"
    )]
    NoDescription(String),
    /// A token file is not as it is described.
    #[error(
        "is not the file that `{}` describes: write both again with `pipewright tokenize`, or remove the \
         description",
        description.display()
    )]
    NotAsDescribed {
        /// The description.
        description: PathBuf,
    },
    /// A file of wider tokens.
    #[error("has a 0 in every second place when it is read as u16: set data.dtype to \"u32\"")]
    Wider,
    /// A file of numbers of 64 bits.
    #[error(
        "has numbers of 64 bits, and tokens have 16 or 32: write them as u16 or u32, with numpy by \
         `tokens.astype(\"uint32\").tofile(...)`, and set data.dtype to that"
    )]
    Numbers64,
    /// Text where tokens were expected.
    #[error(
        "is text, and not tokens: set data.kind to its form, such as \"text\", or make tokens of it with \
         `pipewright tokenize`"
    )]
    TextAsTokens,
    /// Something else where tokens were expected.
    #[error("is {what}, and not tokens: {cure}")]
    NoTokens {
        /// What it is.
        what: &'static str,
        /// What to do.
        cure: &'static str,
    },
    /// It is something else than text.
    #[error("is {what}, and not text: {cure}")]
    NoText {
        /// What it is.
        what: &'static str,
        /// What makes text of it.
        cure: &'static str,
    },
    /// It is no Parquet, or is damaged.
    #[error("is no Parquet that can be read: {0}")]
    NoParquet(String),
    /// A table without the column.
    #[error("has no column \"{column}\" (data.field), only \"{}\"", has.join("\", \""))]
    NoColumn {
        /// The column.
        column: String,
        /// The columns that it has.
        has: Vec<String>,
    },
    /// It cannot be read as comma-separated values.
    #[error("cannot be read as comma-separated values: {0}")]
    NoCsv(String),
    /// A table without a column of targets.
    #[error("has no column \"{column}\" for targets, only \"{}\"", has.join("\", \""))]
    NoTarget {
        /// The column.
        column: String,
        /// The columns that it has.
        has: Vec<String>,
    },
    /// A column of bytes that are not marked as text.
    #[error("has bytes in the column \"{0}\" that are not marked as text: write the column as strings")]
    BinaryColumn(String),
    /// A row of a table that cannot be read.
    #[error("is damaged at row {row}: {cause}")]
    BrokenRow {
        /// The row, from 1.
        row: u64,
        /// The reader's message.
        cause: String,
    },
    /// It has no document.
    #[error("has no document")]
    NoDocuments,
    /// Its length is not a whole number of tokens.
    #[error(
        "holds {bytes} bytes, which is not a whole number of tokens of {each} bytes: set data.dtype to the \
         type of its tokens, or write it again if it is not complete"
    )]
    Ragged {
        /// The file's length.
        bytes: u64,
        /// The bytes of a token.
        each: u64,
    },
    /// Its first bytes are not the format's.
    #[error(
        "is not an IDX file of unsigned bytes with {} dimensions: it starts with {magic:08x}, expected \
         000008{:02x}",
        range(dims), dims.end()
    )]
    NotIdx {
        /// Its first four bytes.
        magic: u32,
        /// The numbers of dimensions that it may have.
        dims: RangeInclusive<u8>,
    },
    /// It ends before its contents begin.
    #[error("is truncated: it ends in {what}")]
    EndsInHeader {
        /// The part of the header.
        what: &'static str,
    },
    /// The dimensions in its header are 0, or larger than any file.
    #[error("has impossible dimensions {dims:?} in its header")]
    Dimensions {
        /// The dimensions.
        dims: Vec<usize>,
    },
    /// It has no whole records.
    #[error("has {bytes} bytes, which are no whole records of {record}: CIFAR-10's binary form was expected")]
    Records {
        /// The bytes of the file.
        bytes: u64,
        /// The bytes of a record.
        record: usize,
    },
    /// It is shorter than its header says.
    #[error("is truncated: it holds {held} of the {expected} bytes that its dimensions {dims:?} call for")]
    Truncated {
        /// The bytes after the header.
        held: u64,
        /// The bytes that should be there.
        expected: u64,
        /// The dimensions in its header.
        dims: Vec<usize>,
    },
    /// It is compressed, and too small for what its header says.
    #[error(
        "is truncated: {packed} compressed bytes cannot hold the {expected} bytes that its dimensions \
         {dims:?} call for"
    )]
    PackedTooSmall {
        /// The file's length.
        packed: u64,
        /// The bytes that should be there.
        expected: u64,
        /// The dimensions in its header.
        dims: Vec<usize>,
    },
    /// It is longer than its header says.
    #[error("holds more than the {expected} bytes that its dimensions {dims:?} call for")]
    TooLong {
        /// The bytes that should be there.
        expected: u64,
        /// The dimensions in its header.
        dims: Vec<usize>,
    },
    /// The end of a gzip stream is missing.
    #[error("is truncated: the end of its gzip stream is missing")]
    GzipEnd,
    /// The labels' file cannot be found by the name of the images' file.
    #[error(
        "is not one of a known pair: its name does not say `images`, so its labels cannot be found; name the \
         file of labels"
    )]
    NoLabelsName,
}

/// What is wrong with a folder of data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderProblem {
    /// It has no file of text.
    #[error("holds no text (hidden and binary files, `target` and `runs` are skipped)")]
    NoText,
    /// It has no file of this kind.
    #[error("holds no file whose name ends in `.{0}`")]
    NoFiles(&'static str),
    /// It has no file of images.
    #[error("holds no IDX images (a file named such as `train-images-idx3-ubyte.gz`)")]
    NoImages,
    /// It has no file of CIFAR-10.
    #[error("holds neither `data_batch_1.bin` nor `test_batch.bin`: unpack CIFAR-10's binary version there")]
    NoCifar,
    /// It has more than one file of images.
    #[error("holds {count} files of images; name one, such as `{}`", first.display())]
    SeveralImages {
        /// How many.
        count: usize,
        /// The first.
        first: PathBuf,
    },
}

/// A range as text: one number, or two.
fn range(dims: &RangeInclusive<u8>) -> String {
    if dims.start() == dims.end() {
        dims.start().to_string()
    } else {
        format!("{} to {}", dims.start(), dims.end())
    }
}
