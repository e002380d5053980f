//! `pipewright tokenize`: text and documents become a token file.

use std::path::PathBuf;
use std::time::Instant;

use super::bars::{EncodingBar, FetchingBar};
use super::out::{self, no_folder};
use crate::{Error, Result, compose};
use pipewright::data::{Form, Recipe, TokenWriter, Width, odd_files, packed_apart};
use pipewright::stages::units::counted;
use pipewright::tokenizer::{Tokenizer, told_of_tokenizer};
use pipewright::whole;

/// Turn text, JSON lines or Parquet into a token file, which trains without waiting for the tokenizer.
///
/// A file of text is a document, and so is a line of JSON, and a row of a table. Each is followed by the
/// token that ends a document.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright tokenize texts README.md --tokenizer SmolLM2-135M --out train.bin
  pipewright tokenize part-*.jsonl --field text --tokenizer tokenizer.json --out train.bin
  pipewright tokenize train.jsonl --tokenizer tokenizer.json --out train.bin --megatron

Train on it with data.kind = \"tokens\", data.path = \"train.bin\" and data.tokenizer.")]
pub(super) struct Args {
    /// Files and folders, all of one form: JSON lines (also packed by gzip), Parquet, or else text. The first
    /// bytes of each file show its form. Of a folder of text, all text is read
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// A tokenizer.json, or a folder that has one
    #[arg(long, value_name = "PATH")]
    tokenizer: PathBuf,
    /// The token file to write: u16 up to 65,536 tokens in the vocabulary, else u32, little endian, as
    /// nanoGPT's. It must not exist
    #[arg(long, value_name = "X.bin")]
    out: PathBuf,
    /// The field of a line, or the column of a table, that has the text
    #[arg(long, default_value = "text", value_name = "NAME")]
    field: String,
    /// The token that ends a document [default: <|endoftext|>, <|end_of_text|>, </s> or <eos>, the first that
    /// there is]
    #[arg(long, value_name = "TOKEN")]
    end_of_text: Option<String>,
    /// Say how documents would fit into sequences of this many tokens
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    seq: u32,
    /// Write Megatron's index too, X.idx, which says where each document ends
    #[arg(long)]
    megatron: bool,
}

/// The most documents for which it is computed how they fit into sequences: that takes memory for each.
const PACKED: usize = 5_000_000;

pub(super) fn run(args: &Args) -> Result<()> {
    let begun = Instant::now();
    check(args)?;
    let tokenizer = Tokenizer::read(&args.tokenizer).map_err(Error::not_begun)?;
    super::warn(told_of_tokenizer(&args.tokenizer)?);
    let mut bar = FetchingBar::new(true);
    let inputs = compose::here(&args.inputs, &mut |fetching| bar.show(fetching)).map_err(Error::not_begun)?;
    drop(bar);
    let recipe = Recipe {
        field: args.field.clone(),
        end_of_text: args.end_of_text.clone(),
        ..Recipe::new(Form::of(&inputs).map_err(refused)?)
    };
    super::warn(&odd_files(&inputs, recipe.form).map_err(refused)?);
    let width = Width::of(tokenizer.all_tokens());
    let mut writer = TokenWriter::create(&args.out, width)?;
    let bar = EncodingBar::new(true);
    let encoded = recipe.encode(&inputs, &tokenizer, &mut writer, &mut |encoded| bar.show(encoded));
    drop(bar);
    encoded.map_err(refused)?;
    let written = writer.finish(args.megatron)?;
    super::print(&format!(
        "{}: {} tokens ({}) of {} documents, in {:.1} s\n{}",
        args.out.display(),
        written.tokens,
        width.name(),
        written.documents.len(),
        begun.elapsed().as_secs_f64(),
        lengths(written.documents, args.seq as usize)
    ))
}

/// How long documents are, and how they fit into sequences of `seq` tokens.
fn lengths(mut documents: Vec<u64>, seq: usize) -> String {
    documents.sort_unstable();
    let (Some(shortest), Some(longest)) = (documents.first(), documents.last()) else {
        return String::new();
    };
    let median = documents[documents.len() / 2];
    let longer = documents.iter().filter(|length| **length > seq as u64 + 1).count() as u64;
    let of_lengths = format!("a document has {shortest} to {longest} tokens, half of them at most {median}");
    if documents.len() > PACKED {
        return of_lengths + "\n";
    }
    let (sequences, empty) = packed_apart(documents, seq);
    format!(
        "{of_lengths}; in sequences of {seq} (--seq), with data.packing = \"apart\": {}, {:.1} % of their \
         places empty, {} cut\n",
        counted(sequences, "sequence"),
        100.0 * empty,
        counted(longer, "document")
    )
}

/// Data that cannot be used is the same as a wrong argument: nothing was written.
fn refused(error: pipewright::Error) -> Error {
    match error {
        pipewright::Error::Data(_) => Error::not_begun(error),
        error => error.into(),
    }
}

/// Refuses files that exist, and names that are no `.bin`.
fn check(args: &Args) -> Result<()> {
    if args.out.extension().is_none_or(|extension| extension != "bin") {
        return Err(out::refused(&args.out, "a token file has a name that ends in `.bin`"));
    }
    let index = args.out.with_extension("idx");
    for path in [&args.out, &index] {
        if path.symlink_metadata().is_ok() {
            return Err(out::refused(path, out::EXISTS));
        }
    }
    match whole::parent(&args.out) {
        folder if folder.is_dir() => Ok(()),
        folder => Err(no_folder(&args.out, folder)),
    }
}
