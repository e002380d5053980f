//! Files of models that are damaged in any way: read or refused, without a panic and without much memory.

use std::path::{Path, PathBuf};

use pipewright::pretrained::import;
use pipewright::stages::rng;
use pipewright::tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::counting::largest;
use super::*;
use crate::folders::{copied, read_model};

/// The largest block of memory that a damaged file may take. The files here have a few hundred kilobytes.
const LARGEST: usize = 64 << 20;

/// How many files are changed at random places.
const CHANGED: u32 = 300;

/// Random numbers below a limit.
fn draw(counter: [u32; 2], below: usize) -> usize {
    rng::philox([11, 14], [counter[0], counter[1], 0, 0])[0] as usize % below
}

/// This file cut off at many places. `header` is where most of it is that can be wrong.
fn cut(bytes: &[u8], header: usize) -> impl Iterator<Item = Vec<u8>> + '_ {
    let in_header = (0..header).step_by((header / 100).max(1));
    let behind = (header..bytes.len()).step_by(((bytes.len() - header) / 20).max(1));
    in_header.chain(behind).map(|at| bytes[..at].to_vec())
}

/// This file with other bytes at a few places in a range: any one byte, or eight that are a huge number.
fn changed(bytes: &[u8], range: Range<usize>) -> impl Iterator<Item = Vec<u8>> + '_ {
    (0..CHANGED).map(move |number| {
        let mut bytes = bytes.to_vec();
        for place in 0..=number % 3 {
            let at = range.start + draw([number, 3 * place], range.len());
            let byte = draw([number, 3 * place + 1], 256) as u8;
            match number % 4 {
                0 => bytes[at..range.end].iter_mut().take(8).for_each(|number| *number = byte | 0x7f),
                _ => bytes[at] = byte,
            }
        }
        bytes
    })
}

/// Reads each of these files. Returns how many were refused. `read` returns the message of a refusal, which
/// names the folder.
fn refused(
    files: impl Iterator<Item = Vec<u8>>,
    folder: &Path,
    mut read: impl FnMut(&[u8]) -> Result<(), String>,
) -> usize {
    let mut refused = 0;
    for bytes in files {
        largest();
        let result = read(&bytes);
        let took = largest();
        assert!(took <= LARGEST, "it took {took} bytes: {result:?}");
        if let Err(said) = result {
            assert!(said.contains(&folder.display().to_string()), "{said}");
            refused += 1;
        }
    }
    refused
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

#[test]
fn damaged_safetensors_are_refused_or_read() {
    let _alone = alone();
    let folder = copied("hf/llama");
    let path = folder.path().join("model.safetensors");
    let whole = fs::read(&path).expect("readable");
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().expect("eight bytes")) as usize;
    let mut reread = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("written");
        read_model(folder.path()).map_err(|error| error.to_string())
    };
    let cuts = cut(&whole, header).count();
    assert_eq!(refused(cut(&whole, header), folder.path(), &mut reread), cuts);
    let found = refused(changed(&whole, 0..header), folder.path(), &mut reread);
    assert!(found > CHANGED as usize / 2, "{found}");
    refused(changed(&whole, header..whole.len()), folder.path(), &mut reread);
    assert!(reread(&whole).is_ok());
}

#[test]
fn lengths_that_overflow_are_refused() {
    let _alone = alone();
    let folder = copied("hf/llama");
    let path = folder.path().join("model.safetensors");
    for shape in [json!([1_u64 << 60, 16]), json!([1_u64 << 62])] {
        let entry = json!({"dtype": "F32", "shape": shape, "data_offsets": [0, u64::MAX]});
        let header = json!({"model.norm.weight": entry}).to_string();
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
        fs::write(&path, bytes).expect("written");
        has(
            &read_model(folder.path()).expect_err("refused"),
            &["model.safetensors` is damaged: its header: "],
        );
    }
}

#[test]
fn a_damaged_config_is_refused_or_read() {
    let _alone = alone();
    for family in ["llama", "llama3", "mistral", "qwen3", "gpt2"] {
        let folder = copied(&format!("hf/{family}"));
        let path = folder.path().join("config.json");
        let whole = fs::read(&path).expect("readable");
        let mut reread = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("written");
            read_model(folder.path()).map_err(|error| error.to_string())
        };
        let cuts: Vec<Vec<u8>> = cut(whole.trim_ascii_end(), whole.trim_ascii_end().len()).collect();
        let count = cuts.len();
        assert_eq!(refused(cuts.into_iter(), folder.path(), &mut reread), count);
        refused(changed(&whole, 0..whole.len()), folder.path(), &mut reread);
        let values = other_values(&serde_json::from_slice(&whole).expect("JSON"));
        assert!(refused(values.into_iter(), folder.path(), &mut reread) > 50);
    }
}

/// A config with each value in turn replaced by others, also inside of objects.
fn other_values(config: &Value) -> Vec<Vec<u8>> {
    let others = [
        json!(null),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(u64::MAX),
        json!(1 << 24),
        json!(true),
        json!("eight"),
        json!([8]),
        json!({"eight": 8}),
    ];
    let mut all = Vec::new();
    let mut keys: Vec<String> =
        config.as_object().expect("an object").keys().map(|key| format!("/{key}")).collect();
    let inside = config["rope_parameters"].as_object().into_iter().flatten();
    keys.extend(inside.map(|(key, _)| format!("/rope_parameters/{key}")));
    for key in keys {
        for other in &others {
            let mut changed = config.clone();
            *changed.pointer_mut(&key).expect("it has the key") = other.clone();
            all.push(changed.to_string().into_bytes());
        }
    }
    all
}

#[test]
fn a_damaged_gguf_is_refused_or_imported() {
    let _alone = alone();
    let scratch = TempDir::new().expect("a folder");
    let (path, folder) = (scratch.path().join("m.gguf"), scratch.path().join("m"));
    let mut file = gguf::small();
    let block = [&[0x00, 0x38][..], &[4; 32]].concat();
    file.tensor("blk.0.attn_output.weight", &[32, 32], 8, &block.repeat(32));
    let (whole, header) = (file.bytes(), file.header());
    let mut reread = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("written");
        let imported = import(&path, &folder).map_err(|error| error.to_string());
        let made = folder.exists();
        let _ = fs::remove_dir_all(&folder);
        assert_eq!(made, imported.is_ok(), "nothing is left of a file that is refused");
        imported.map(|_| ())
    };
    let cuts = cut(&whole, header).count();
    assert_eq!(refused(cut(&whole, header), scratch.path(), &mut reread), cuts);
    let found = refused(changed(&whole, 0..header), scratch.path(), &mut reread);
    assert!(found > CHANGED as usize / 4, "{found}");
    assert!(reread(&whole).is_ok());
}

#[test]
fn a_damaged_tokenizer_is_refused_or_used() {
    let _alone = alone();
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("tokenizer.json");
    let whole = fs::read(golden("tokenizer/tokenizer.json")).expect("readable");
    let mut reread = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("written");
        let used = Tokenizer::read(&path).and_then(|tokenizer| {
            let tokens = tokenizer.encode("Hear me speak, naïve café 😀.<|im_end|>")?;
            tokenizer.encode_with_places("Hear me speak")?;
            tokenizer.end_of_text(None)?;
            tokenizer.check_vocabulary(1 << 16)?;
            tokenizer.decode(&tokens)
        });
        used.map(|_| ()).map_err(|error| error.to_string())
    };
    let whole = whole.trim_ascii_end();
    let cuts = cut(whole, whole.len()).count();
    assert_eq!(refused(cut(whole, whole.len()), folder.path(), &mut reread), cuts);
    refused(changed(whole, 0..whole.len()), folder.path(), &mut reread);
    assert!(reread(whole).is_ok());
}
