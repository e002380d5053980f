//! GPT-2. Our names and layouts are the same as in its checkpoints.

use pipewright_stages::models::Gpt;

use crate::pretrained::head::{Head, SCORE};
use crate::pretrained::key::{Key, alias, may_be_null, nothing, only, told, used};
use crate::pretrained::mapped::Mapped;

/// The keys of its `config.json`, besides the keys of every family.
pub(in crate::pretrained) const KEYS: &[Key] = &[
    used("vocab_size", "50257"),
    used("n_positions", "1024"),
    used("n_embd", "768"),
    used("n_layer", "12"),
    used("n_head", "12"),
    alias("max_position_embeddings", "n_positions"),
    alias("hidden_size", "n_embd"),
    alias("num_hidden_layers", "n_layer"),
    alias("num_attention_heads", "n_head"),
    may_be_null("n_inner", "null"),
    used("tie_word_embeddings", "true"),
    may_be_null("bos_token_id", "50256"),
    may_be_null("eos_token_id", "50256"),
    only(
        "activation_function",
        &["\"gelu_new\"", "\"gelu_pytorch_tanh\""],
        "`gelu_new` or `gelu_pytorch_tanh`",
    ),
    only("layer_norm_epsilon", &["1e-5"], "1e-5"),
    only("scale_attn_weights", &["true"], "true"),
    only("scale_attn_by_inverse_layer_idx", &["false"], "false"),
    told("embd_pdrop", "0.1", &["0.0"]),
    told("resid_pdrop", "0.1", &["0.0"]),
    told("attn_pdrop", "0.1", &["0.0"]),
    // In `f32` the order of its products is the same.
    nothing("reorder_and_upcast_attn"),
    // Its embedding has no `padding_idx`.
    nothing("pad_token_id"),
    nothing(
        "n_ctx summary_activation summary_first_dropout summary_proj_to_labels summary_type \
         summary_use_proj",
    ),
];

/// What its tensors are called in models with a head.
pub(in crate::pretrained) const PREFIX: &str = "transformer.";

/// What its blocks are called there.
pub(in crate::pretrained) const BLOCKS: &str = "transformer.h.";

/// The linear layers of a block: our names, and theirs.
pub(in crate::pretrained) const LINEAR: &[(&str, &str)] = &[
    ("attn.c_attn", "attn.c_attn"),
    ("attn.c_proj", "attn.c_proj"),
    ("mlp.c_fc", "mlp.c_fc"),
    ("mlp.c_proj", "mlp.c_proj"),
];

/// All parameters of a model, each with its tensors there.
pub(in crate::pretrained) fn table(model: &Gpt, head: Head) -> Vec<Mapped> {
    let (dim, vocab) = (model.dim, model.vocab);
    let mut names = vec![
        ("wte.weight".to_owned(), vec![vocab, dim]),
        ("wpe.weight".to_owned(), vec![model.context, dim]),
    ];
    for index in 0..model.layers {
        let name = |rest: &str| format!("h.{index}.{rest}");
        for norm in ["ln_1", "ln_2"] {
            names.push((name(&format!("{norm}.weight")), vec![dim]));
            names.push((name(&format!("{norm}.bias")), vec![dim]));
        }
        for (linear, sizes) in [
            ("attn.c_attn", [dim, 3 * dim]),
            ("attn.c_proj", [dim, dim]),
            ("mlp.c_fc", [dim, 4 * dim]),
            ("mlp.c_proj", [4 * dim, dim]),
        ] {
            names.push((name(&format!("{linear}.weight")), sizes.to_vec()));
            names.push((name(&format!("{linear}.bias")), vec![sizes[1]]));
        }
    }
    names.push(("ln_f.weight".to_owned(), vec![dim]));
    names.push(("ln_f.bias".to_owned(), vec![dim]));
    match head {
        Head::Tokens if model.tied => {}
        Head::Tokens => names.push(("lm_head.weight".to_owned(), vec![vocab, dim])),
        Head::Reward => names.push((SCORE.to_owned(), vec![1, dim])),
    }
    let there = |name: &str| match head {
        // Behind a head that transformers does not know in the model alone, it wants all names in full.
        Head::Reward if name != SCORE => format!("{PREFIX}{name}"),
        _ => name.to_owned(),
    };
    let one = |(name, dims): (String, Vec<usize>)| Mapped::one(name.as_str(), &dims, there(&name));
    names.into_iter().map(one).collect()
}
