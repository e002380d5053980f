//! A model of 1.1 thousand million weights trains in the memory that is planned for it.

use std::io::BufWriter;

use pipewright::stages::rng;

use super::*;

/// The sizes of TinyLlama: the numbers of a row, of a row inside of a block, and of all keys; tokens; blocks.
const DIM: usize = 2048;
const FFN: usize = 5632;
const KEYS: usize = 256;
const VOCAB: usize = 32_000;
const LAYERS: usize = 22;

const SETTINGS: &str = "\
[model]
path = 'model'
base = 'q4'

[lora]
rank = 8
targets = ['*.attn.q', '*.attn.v', '*.mlp.down']

[data]
kind = 'tokens'
path = 'tokens.bin'
seq = 16
validation = 0.0

[pipeline]
stages = 2
dtype = 'bf16'
micro_batches = 2
micro_batch_size = 1

[train]
name = 'large'
steps = 2
";

/// What the program itself takes: its code, its threads, and what the allocator keeps.
const PROGRAM: f64 = 64e6;

/// The tensors of a Llama, by the names of Hugging Face.
fn tensors() -> Vec<(String, Vec<usize>)> {
    let of_layer = |layer: usize| {
        [
            ("self_attn.q_proj", vec![DIM, DIM]),
            ("self_attn.k_proj", vec![KEYS, DIM]),
            ("self_attn.v_proj", vec![KEYS, DIM]),
            ("self_attn.o_proj", vec![DIM, DIM]),
            ("mlp.gate_proj", vec![FFN, DIM]),
            ("mlp.up_proj", vec![FFN, DIM]),
            ("mlp.down_proj", vec![DIM, FFN]),
            ("input_layernorm", vec![DIM]),
            ("post_attention_layernorm", vec![DIM]),
        ]
        .map(|(name, dims)| (format!("model.layers.{layer}.{name}.weight"), dims))
    };
    let table = |name: &str| (name.to_owned(), vec![VOCAB, DIM]);
    let norm = ("model.norm.weight".to_owned(), vec![DIM]);
    let outer = [table("model.embed_tokens.weight"), norm, table("lm_head.weight")];
    (0..LAYERS).flat_map(of_layer).chain(outer).collect()
}

/// Writes a folder of random weights in `bf16`. Parts of a million numbers are used again and again: new ones
/// for all places would take longer than the training.
fn write_model(folder: &Path) {
    let config = serde_json::json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB, "hidden_size": DIM,
        "intermediate_size": FFN, "num_hidden_layers": LAYERS, "num_attention_heads": 32,
        "num_key_value_heads": 4, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0, "tie_word_embeddings": false, "hidden_act": "silu",
    });
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let mut end = 0;
    let mut header = serde_json::Map::new();
    for (name, dims) in tensors() {
        let begin = end;
        end += 2 * dims.iter().product::<usize>();
        let about = serde_json::json!({"dtype": "BF16", "shape": dims, "data_offsets": [begin, end]});
        header.insert(name, about);
    }
    let header = serde_json::Value::Object(header).to_string();
    let mut file = BufWriter::new(File::create(folder.join("model.safetensors")).unwrap());
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    let mut noise = vec![0.0; 1 << 20];
    rng::fill_normal(rng::key(1, "large"), 0.02, &mut noise);
    let noise: Vec<u8> = noise.iter().flat_map(|number: &f32| number.to_le_bytes()[2..].to_vec()).collect();
    let one = 1.0_f32.to_le_bytes();
    for (index, (_, dims)) in tensors().iter().enumerate() {
        let mut left = 2 * dims.iter().product::<usize>();
        if dims.len() == 1 {
            file.write_all(&one[2..].repeat(left / 2)).unwrap();
            continue;
        }
        let mut start = 2 * index;
        while left > 0 {
            let part = &noise[start..][..left.min(noise.len() - start)];
            file.write_all(part).unwrap();
            (left, start) = (left - part.len(), (start + 2 * 977) % (1 << 16));
        }
    }
    file.flush().unwrap();
}

/// The most memory of a process so far, if it still runs.
fn most(process: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(1024.0 * line.trim().strip_suffix(" kB")?.parse::<f64>().ok()?)
}

/// The columns of the table of memory, as sums over the ranks in bytes: weights first, all last.
fn planned(stdout: &str) -> Vec<f64> {
    let mut sums = vec![0.0; 7];
    for line in stdout.lines().filter(|line| line.starts_with("rank ")) {
        let words: Vec<&str> = line.split_whitespace().skip(2).collect();
        for (sum, part) in sums.iter_mut().zip(words.chunks(2)) {
            let unit = match part[1] {
                "GiB" => 3,
                "MiB" => 2,
                "KiB" => 1,
                _ => 0,
            };
            *sum += part[0].parse::<f64>().unwrap() * 1024.0_f64.powi(unit);
        }
    }
    sums
}

#[test]
fn a_large_model_in_4_bits_trains_in_the_memory_that_is_planned() {
    // Not in memory, as a folder for temporary files may be.
    let place = Place(TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    write_model(&place.path("model"));
    place.write("my.toml", SETTINGS);
    let tokens = (0..20_000_usize).map(|at| ((at * at / 7 + at) % VOCAB) as u16);
    place.write("tokens.bin", tokens.flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
    let mut running = Running::new(place.command(&["train", "my.toml"]));
    let mut held = 0.0;
    while running.child.0.try_wait().unwrap().is_none() {
        held = most(running.child.0.id()).unwrap_or(held);
        std::thread::sleep(Duration::from_millis(20));
    }
    let stdout = running.end().done().stdout();
    let losses: Vec<f64> =
        place.lines("runs/large").iter().map(|line| line["loss"].as_f64().unwrap()).collect();
    assert!(losses.len() == 2 && losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
    let planned = planned(&stdout);
    let (weights, all) = (planned[0], planned[6]);
    println!("planned {weights:.4e} for weights of {all:.4e} bytes, the process held {held:.4e}");
    assert!(weights < 1.2e9, "{weights} bytes are planned for weights:\n{stdout}");
    assert!(held - (all - weights) < 1.2e9, "{held} bytes were held:\n{stdout}");
    assert!(held < 1.05 * all + PROGRAM, "{held} bytes were held, and {all} are planned:\n{stdout}");
    assert!(all < 1.05 * held, "{held} bytes were held, and {all} are planned:\n{stdout}");
}
