//! Llama, Mistral, Mixtral, Qwen-2 and Qwen-3.

use pipewright_stages::models::Llama;

use crate::pretrained::head::{Head, SCORE};
use crate::pretrained::key::{Key, alias, may_be_null, nothing, only, told, used};
use crate::pretrained::mapped::Mapped;

/// The keys of all these families, besides the keys of every family.
pub(in crate::pretrained) const SHARED: &[Key] = &[
    used("hidden_size", "4096"),
    used("num_hidden_layers", "32"),
    used("num_attention_heads", "32"),
    used("tie_word_embeddings", "false"),
    may_be_null("pad_token_id", "null"),
    may_be_null("rope_parameters", "null"),
    may_be_null("rope_scaling", "null"),
    used("original_max_position_embeddings", "null"),
    only("hidden_act", &["\"silu\"", "\"swish\""], "`silu`"),
    only("partial_rotary_factor", &["1.0"], "1: all numbers of a head turn"),
    only("rope_interleaved", &["false"], "false"),
    only("use_mrope", &["false"], "false"),
    told("attention_dropout", "0.0", &["0.0", "null"]),
    nothing("pretraining_tp"),
];

pub(in crate::pretrained) const LLAMA: &[Key] = &[
    used("vocab_size", "32000"),
    used("intermediate_size", "11008"),
    may_be_null("num_key_value_heads", "null"),
    may_be_null("head_dim", "null"),
    used("max_position_embeddings", "2048"),
    used("rms_norm_eps", "1e-6"),
    used("rope_theta", "10000.0"),
    may_be_null("bos_token_id", "1"),
    may_be_null("eos_token_id", "2"),
    only("attention_bias", &["false"], NO_SUCH_LAYER),
    only("mlp_bias", &["false"], NO_SUCH_LAYER),
    only("sliding_window", &["null"], "left out: a token of a Llama sees all before it"),
    only("layer_types", &["null"], "left out: all blocks are alike"),
    nothing("use_sliding_window max_window_layers"),
];

pub(in crate::pretrained) const MISTRAL: &[Key] = &[
    used("vocab_size", "32000"),
    used("intermediate_size", "14336"),
    used("num_key_value_heads", "8"),
    may_be_null("head_dim", "null"),
    used("max_position_embeddings", "131072"),
    used("rms_norm_eps", "1e-6"),
    used("rope_theta", "10000.0"),
    may_be_null("bos_token_id", "1"),
    may_be_null("eos_token_id", "2"),
    may_be_null("sliding_window", "4096"),
    only("layer_types", &["null"], "left out: all blocks are alike"),
    nothing("attention_bias mlp_bias use_sliding_window max_window_layers"),
];

pub(in crate::pretrained) const MIXTRAL: &[Key] = &[
    used("vocab_size", "32000"),
    used("intermediate_size", "14336"),
    used("num_key_value_heads", "8"),
    may_be_null("head_dim", "null"),
    used("max_position_embeddings", "131072"),
    used("rms_norm_eps", "1e-5"),
    used("rope_theta", "1000000.0"),
    may_be_null("bos_token_id", "1"),
    may_be_null("eos_token_id", "2"),
    may_be_null("sliding_window", "null"),
    used("num_local_experts", "8"),
    alias("num_experts", "num_local_experts"),
    used("num_experts_per_tok", "2"),
    only("router_jitter_noise", &["0.0"], "0"),
    only("layer_types", &["null"], "left out: all blocks are alike"),
    told("output_router_logits", "false", &["false"]),
    nothing("router_aux_loss_coef attention_bias mlp_bias use_sliding_window max_window_layers"),
];

pub(in crate::pretrained) const QWEN2: &[Key] = &[may_be_null("head_dim", "null"), nothing("attention_bias")];

pub(in crate::pretrained) const QWEN3: &[Key] =
    &[used("head_dim", "128"), only("attention_bias", &["false"], NO_SUCH_LAYER)];

/// The keys of both Qwens.
pub(in crate::pretrained) const QWENS: &[Key] = &[
    used("vocab_size", "151936"),
    used("intermediate_size", "22016"),
    may_be_null("num_key_value_heads", "32"),
    used("max_position_embeddings", "32768"),
    used("rms_norm_eps", "1e-6"),
    used("rope_theta", "10000.0"),
    may_be_null("bos_token_id", "null"),
    may_be_null("eos_token_id", "null"),
    used("use_sliding_window", "false"),
    may_be_null("sliding_window", "4096"),
    used("max_window_layers", "28"),
    may_be_null("layer_types", "null"),
    nothing("mlp_bias"),
];

const NO_SUCH_LAYER: &str = "false, because this program has no such layer";

/// The keys of `rope_parameters` or `rope_scaling`. Those without effect belong to scalings that are refused.
pub(in crate::pretrained) const ROPE: &[Key] = &[
    used("rope_type", "null"),
    used("type", "null"),
    used("rope_theta", "null"),
    used("factor", "null"),
    used("low_freq_factor", "null"),
    used("high_freq_factor", "null"),
    used("original_max_position_embeddings", "null"),
    only("partial_rotary_factor", &["1.0"], "1: all numbers of a head turn"),
    only("mrope_section", &["null"], "left out: a token has one position"),
    only("full_attention", &["null"], ONE_FOR_ALL),
    only("sliding_attention", &["null"], ONE_FOR_ALL),
    may_be_null("attention_factor", "null"),
    may_be_null("beta_fast", "null"),
    may_be_null("beta_slow", "null"),
    may_be_null("mscale", "null"),
    may_be_null("mscale_all_dim", "null"),
    only("truncate", &["true"], "true"),
    nothing("finetuned long_factor short_factor"),
];

const ONE_FOR_ALL: &str = "left out: all blocks have the same angles";

/// What their blocks are called.
pub(in crate::pretrained) const BLOCKS: &str = "model.layers.";

/// The linear layers of a block: our names, and theirs.
pub(in crate::pretrained) const LINEAR: &[(&str, &str)] = &[
    ("attn.q", "self_attn.q_proj"),
    ("attn.k", "self_attn.k_proj"),
    ("attn.v", "self_attn.v_proj"),
    ("attn.out", "self_attn.o_proj"),
    ("mlp.gate", "mlp.gate_proj"),
    ("mlp.up", "mlp.up_proj"),
    ("mlp.down", "mlp.down_proj"),
];

/// How many of them, from the first on, are of attention.
pub(in crate::pretrained) const OF_ATTENTION: usize = 4;

/// All parameters of a model, each with its tensors there.
pub(in crate::pretrained) fn table(model: &Llama, head: Head) -> Vec<Mapped> {
    let (vocab, dim) = (model.vocab, model.dim);
    let mut all = vec![Mapped::one("wte.weight", &[vocab, dim], "model.embed_tokens.weight")];
    for index in 0..model.layers {
        all.extend(attention(model, index));
        all.extend(match model.experts {
            Some(routing) => experts(model, routing.experts, index),
            None => mlp(model, index),
        });
    }
    all.push(Mapped::one("ln_f.weight", &[dim], "model.norm.weight"));
    match head {
        Head::Tokens if model.tied => {}
        Head::Tokens => all.push(Mapped::one("lm_head.weight", &[vocab, dim], "lm_head.weight")),
        Head::Reward => all.push(Mapped::one(SCORE, &[1, dim], SCORE)),
    }
    all
}

fn attention(model: &Llama, index: usize) -> Vec<Mapped> {
    let (ours, theirs) = (format!("h.{index}"), format!("model.layers.{index}"));
    let (dim, heads) = (model.dim, model.heads);
    let (queries, keys) = (heads.query * heads.width, heads.key_value * heads.width);
    let of_three = |kind: &str, rest: &[usize]| {
        let part = |(letter, rows): (&str, usize)| {
            let dims = [&[rows], rest].concat();
            (format!("{theirs}.self_attn.{letter}_proj.{kind}"), dims)
        };
        let three = [("q", queries), ("k", keys), ("v", keys)];
        Mapped::stacked(format!("{ours}.attn.qkv.{kind}"), three.map(part).into())
    };
    let norm = format!("{theirs}.input_layernorm.weight");
    let mut all = vec![Mapped::one(format!("{ours}.ln_1.weight"), &[dim], norm), of_three("weight", &[dim])];
    if model.bias {
        all.push(of_three("bias", &[]));
    }
    if model.head_norms {
        for norm in ["q_norm.weight", "k_norm.weight"] {
            let there = format!("{theirs}.self_attn.{norm}");
            all.push(Mapped::one(format!("{ours}.attn.{norm}"), &[heads.width], there));
        }
    }
    let there = format!("{theirs}.self_attn.o_proj.weight");
    all.push(Mapped::one(format!("{ours}.attn.out.weight"), &[dim, queries], there));
    all
}

fn mlp(model: &Llama, index: usize) -> Vec<Mapped> {
    let (ours, theirs) = (format!("h.{index}"), format!("model.layers.{index}"));
    let (dim, ffn) = (model.dim, model.ffn);
    let norm = format!("{theirs}.post_attention_layernorm.weight");
    let part = |which: &str| (format!("{theirs}.mlp.{which}_proj.weight"), vec![ffn, dim]);
    let down = format!("{theirs}.mlp.down_proj.weight");
    vec![
        Mapped::one(format!("{ours}.ln_2.weight"), &[dim], norm),
        Mapped::stacked(format!("{ours}.mlp.gate_up.weight"), ["gate", "up"].map(part).into()),
        Mapped::one(format!("{ours}.mlp.down.weight"), &[dim, ffn], down),
    ]
}

/// Mixtral's second half of a block. Its `w1` is the gate, `w3` is up, and `w2` is down.
fn experts(model: &Llama, count: usize, index: usize) -> Vec<Mapped> {
    let (ours, theirs) = (format!("h.{index}"), format!("model.layers.{index}"));
    let (dim, ffn) = (model.dim, model.ffn);
    let norm = format!("{theirs}.post_attention_layernorm.weight");
    let router = format!("{theirs}.block_sparse_moe.gate.weight");
    let mut all = vec![
        Mapped::one(format!("{ours}.ln_2.weight"), &[dim], norm),
        Mapped::one(format!("{ours}.mlp.router.weight"), &[count, dim], router),
    ];
    for expert in 0..count {
        let ours = format!("{ours}.mlp.experts.{expert}");
        let there = |which: &str| format!("{theirs}.block_sparse_moe.experts.{expert}.{which}.weight");
        let part = |which: &str| (there(which), vec![ffn, dim]);
        all.push(Mapped::stacked(format!("{ours}.gate_up.weight"), ["w1", "w3"].map(part).into()));
        all.push(Mapped::one(format!("{ours}.down.weight"), &[dim, ffn], there("w2")));
    }
    all
}
