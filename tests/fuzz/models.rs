//! Models of others: Hugging Face's folders, `.gguf` files, tokenizers, adapters.

use pipewright::pretrained::{self, Target as Adapted, import, open_adapters, read_adapters};
use pipewright::tokenizer::TextStream;

use super::*;
use crate::folders::{copied, read_model};

/// Words of `config.json` and of headers.
const WORDS: &str = "llama, mistral, qwen3, gpt2, mixtral, rope_parameters, llama3, F32, BF16, F64, \
                     I64, model.embed_tokens.weight, lm_head.weight, data_offsets, shape, \
                     ../model.safetensors";

#[test]
fn model_configs() {
    let _alone = alone();
    for family in ["llama", "llama3", "mistral", "mixtral", "qwen2", "qwen3", "gpt2"] {
        let folder = copied(&format!("hf/{family}"));
        let path = folder.path().join("config.json");
        Target {
            name: "model_configs",
            seeds: vec![contents(&path)],
            words: WORDS,
            inputs: 100,
            bytes: 64 * MIB,
            blocks: 4_000_000,
        }
        .fuzz(|input| {
            write(&path, input);
            told(read_model(folder.path()))
        });
    }
}

#[test]
fn safetensors() {
    let _alone = alone();
    let folder = copied("hf/llama");
    let path = folder.path().join("model.safetensors");
    Target {
        name: "safetensors",
        seeds: vec![contents(&path)],
        words: WORDS,
        inputs: 500,
        bytes: 64 * MIB,
        blocks: 1_000_000,
    }
    .fuzz(|input| {
        write(&path, input);
        told(read_model(folder.path()))
    });
}

#[test]
fn indexes_of_safetensors() {
    let _alone = alone();
    let folder = copied("hf/llama");
    let (one, part) = (folder.path().join("model.safetensors"), "model-00001-of-00001.safetensors");
    let index = folder.path().join("model.safetensors.index.json");
    fs::rename(&one, folder.path().join(part)).expect("renamed");
    let places = json!({"model.norm.weight": part, "lm_head.weight": part});
    let whole = json!({"metadata": {"total_size": 1}, "weight_map": places});
    Target {
        name: "indexes_of_safetensors",
        seeds: vec![whole.to_string().into_bytes()],
        words: WORDS,
        inputs: 500,
        bytes: 64 * MIB,
        blocks: 1_000_000,
    }
    .fuzz(|input| {
        write(&index, input);
        told(read_model(folder.path()))
    });
}

#[test]
fn gguf_files() {
    let _alone = alone();
    let scratch = TempDir::new().expect("a folder");
    let (path, folder) = (scratch.path().join("m.gguf"), scratch.path().join("m"));
    let mut file = gguf::small();
    let block = [&[0x00, 0x38][..], &[4; 32]].concat();
    file.tensor("blk.0.attn_output.weight", &[32, 32], 8, &block.repeat(32));
    Target {
        name: "gguf_files",
        seeds: vec![file.bytes()],
        words: "llama, gpt2, tokenizer.ggml.tokens, general.alignment, blk.0.attn_q.weight",
        inputs: 600,
        bytes: 64 * MIB,
        blocks: 4_000_000,
    }
    .fuzz(|input| {
        write(&path, input);
        let imported = told(import(&path, &folder));
        let read = imported.and_then(|_| {
            let _ = Tokenizer::read(&folder).and_then(|tokenizer| tokenizer.encode("Hear me speak"));
            told(read_model(&folder))
        });
        let _ = fs::remove_dir_all(&folder);
        read
    });
}

/// A tokenizer with few words, and each kind of part that has sizes or patterns.
fn small_tokenizer() -> Value {
    json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0},
        "padding": null,
        "added_tokens": [{"id": 6, "content": "<|endoftext|>", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true}],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"},
            {"type": "Replace", "pattern": {"Regex": " +"}, "content": "a"}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "(?i:'s)|\\p{L}+|\\s+(?!\\S)"}, "behavior": "Isolated",
                "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false,
            "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": "a", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": {"a": 0, "b": 1, "e": 2, "r": 3, "er": 4, "c": 5}, "merges": ["e r"]}
    })
}

#[test]
fn tokenizers() {
    let _alone = alone();
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("tokenizer.json");
    let golden = here("tests/golden/tokenizer/tokenizer.json");
    Target {
        name: "tokenizers",
        seeds: vec![
            format!("{:#}", small_tokenizer()).into_bytes(),
            small_tokenizer().to_string().into_bytes(),
            contents(&golden),
        ],
        words: "WordPiece, Unigram, WordLevel, Metaspace, Strip, Fuse, ByteFallback, CTC, Punctuation, \
                (a+)+$, (?=a), \\\\1, Lowercase, Precompiled, TemplateProcessing, Digits, Prepend",
        inputs: 500,
        bytes: 256 * MIB,
        blocks: 8_000_000,
    }
    .fuzz(|input| {
        write(&path, input);
        let tokenizer = told(Tokenizer::read(&path))?;
        let _ = (tokenizer.end_of_text(None), tokenizer.special_tokens());
        let _ = tokenizer.check_vocabulary(1 << 16);
        let tokens =
            told(tokenizer.encode("Hear me speak, naïve café 😀.<|endoftext|> aaaaaaaaaaaaaaaaaaaaaaab"))?;
        told(tokenizer.encode_with_places("  berber aaa\n\n"))?;
        let mut stream = TextStream::new(&tokenizer);
        for &token in tokens.iter().chain(&[0, 5, 6, 7, u32::MAX]) {
            told(stream.push(token))?;
        }
        told(stream.finish())?;
        told(tokenizer.decode(&tokens)).map(|_| ())
    });
}

/// The layers of the golden model that have adapters.
fn adapted(patterns: &[String]) -> Vec<Adapted> {
    let known = [("attn.q", [32, 32]), ("attn.v", [32, 16]), ("mlp.down", [48, 32])];
    let known = known.into_iter().filter(|(name, _)| patterns.iter().any(|pattern| pattern.ends_with(name)));
    known.flat_map(|(name, sizes)| [0, 1].map(|block| (format!("h.{block}.{name}"), sizes))).collect()
}

fn adapters(name: &'static str, file: &str) {
    let folder = copied("hf/llama/lora");
    let path: PathBuf = folder.path().join(file);
    let architecture = pretrained::read_config(&here("tests/golden/hf/llama")).expect("it is whole");
    Target {
        name,
        seeds: vec![contents(&path)],
        words: "LORA, q_proj, model.layers.0.mlp.down_proj, lm_head, all-linear, none, F16",
        inputs: 500,
        bytes: 64 * MIB,
        blocks: 1_000_000,
    }
    .fuzz(|input| {
        write(&path, input);
        let adapters = told(read_adapters(folder.path(), architecture.base()))?;
        told(open_adapters(folder.path(), &architecture, adapters.rank, &adapted(&adapters.targets)))
            .map(|_| ())
    });
}

#[test]
fn adapter_configs() {
    let _alone = alone();
    adapters("adapter_configs", "adapter_config.json");
}

#[test]
fn adapter_weights() {
    let _alone = alone();
    adapters("adapter_weights", "adapter_model.safetensors");
}
