//! GPT-2. Our names and layouts are those of its checkpoints.

use pipewright_stages::models::Gpt;

use crate::pretrained::mapped::Mapped;

/// What their blocks are called in a model with a head.
pub(in crate::pretrained) const BLOCKS: &str = "transformer.h.";

/// The linear layers of a block: our names, and theirs.
pub(in crate::pretrained) const LINEAR: &[(&str, &str)] = &[
    ("attn.c_attn", "attn.c_attn"),
    ("attn.c_proj", "attn.c_proj"),
    ("mlp.c_fc", "mlp.c_fc"),
    ("mlp.c_proj", "mlp.c_proj"),
];

/// All parameters of a model, each with its tensors there.
pub(in crate::pretrained) fn table(model: &Gpt) -> Vec<Mapped> {
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
    if !model.tied {
        names.push(("lm_head.weight".to_owned(), vec![vocab, dim]));
    }
    let same = |(name, dims): (String, Vec<usize>)| Mapped::one(name.clone(), &dims, name);
    names.into_iter().map(same).collect()
}
