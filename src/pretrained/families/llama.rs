//! Llama, Mistral, Mixtral, Qwen-2 and Qwen-3.

use pipewright_stages::models::Llama;

use crate::pretrained::mapped::Mapped;

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
pub(in crate::pretrained) fn table(model: &Llama) -> Vec<Mapped> {
    let (vocab, dim) = (model.vocab, model.dim);
    let mut all = vec![Mapped::one(
        "wte.weight",
        &[vocab, dim],
        "model.embed_tokens.weight",
    )];
    for index in 0..model.layers {
        all.extend(attention(model, index));
        all.extend(match model.experts {
            Some(routing) => experts(model, routing.experts, index),
            None => mlp(model, index),
        });
    }
    all.push(Mapped::one("ln_f.weight", &[dim], "model.norm.weight"));
    if !model.tied {
        all.push(Mapped::one("lm_head.weight", &[vocab, dim], "lm_head.weight"));
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
    let mut all = vec![
        Mapped::one(format!("{ours}.ln_1.weight"), &[dim], norm),
        of_three("weight", &[dim]),
    ];
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
    all.push(Mapped::one(
        format!("{ours}.attn.out.weight"),
        &[dim, queries],
        there,
    ));
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
        Mapped::stacked(
            format!("{ours}.mlp.gate_up.weight"),
            ["gate", "up"].map(part).into(),
        ),
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
        all.push(Mapped::stacked(
            format!("{ours}.gate_up.weight"),
            ["w1", "w3"].map(part).into(),
        ));
        all.push(Mapped::one(
            format!("{ours}.down.weight"),
            &[dim, ffn],
            there("w2"),
        ));
    }
    all
}
