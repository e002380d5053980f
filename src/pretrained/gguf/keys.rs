//! The keys of a file that say what its model computes, as llama.cpp reads them.

use crate::pretrained::key::{Key, may_be_null, nothing, only, used};

/// The keys of any file. Those that begin with `general.` describe it otherwise.
pub(super) const OF_FILE: &[Key] = &[
    only(
        "split.count",
        &["1", "0"],
        "1: this is one part of a model; join them first, with `llama-gguf-split --merge`",
    ),
    nothing("split.no split.tensors.count"),
    only("general.type", &["\"model\""], "`model`"),
];

/// The keys behind the name of an architecture.
pub(super) const OF_MODEL: &[Key] = &[
    used("block_count", "null"),
    used("context_length", "null"),
    used("embedding_length", "null"),
    used("feed_forward_length", "null"),
    used("attention.head_count", "null"),
    may_be_null("attention.head_count_kv", "null"),
    may_be_null("attention.key_length", "null"),
    may_be_null("attention.value_length", "null"),
    used("attention.layer_norm_rms_epsilon", "null"),
    may_be_null("rope.dimension_count", "null"),
    used("rope.freq_base", "10000.0"),
    used("rope.scaling.type", "\"linear\""),
    may_be_null("rope.scaling.factor", "null"),
    used("rope.scale_linear", "1.0"),
    only("rope.scaling.attn_factor", &["1.0"], "1"),
    only("rope.scaling.alpha", &["0.0"], "0"),
    only("rope.dimension_sections", &["null"], "left out: a token has one position"),
    only("attention.causal", &["true"], "true"),
    only("attention.sliding_window", &["0"], "0: take the folder of Hugging Face for windows"),
    only("attention.sliding_window_pattern", &["null"], "left out"),
    only("attention.scale", &["0.0"], "0"),
    only("attention.output_scale", &["0.0", "1.0"], "0 or 1"),
    only("attention.clamp_kqv", &["0.0"], "0"),
    only("attention.max_alibi_bias", &["0.0"], "0"),
    only("attention.temperature_scale", &["0.0"], "0"),
    only("attn_logit_softcapping", &["0.0"], "0"),
    only("final_logit_softcapping", &["0.0"], "0"),
    only("logit_scale", &["0.0", "1.0"], "0 or 1"),
    only("residual_scale", &["0.0", "1.0"], "0 or 1"),
    only("embedding_scale", &["0.0", "1.0"], "0 or 1"),
    only("expert_count", &["0"], "0: mixtures of experts are not read"),
    only("expert_used_count", &["0"], "0: mixtures of experts are not read"),
    only("nextn_predict_layers", &["0"], "0"),
    only("use_parallel_residual", &["false"], "false"),
    only("pooling_type", &["0"], "0: the model is one that writes text"),
    // The tokens of the embedding are counted.
    nothing("vocab_size"),
    nothing(
        "tensor_data_layout rope.scaling.original_context_length rope.scaling.finetuned \
         rope.scaling.yarn_log_multiplier rope.scaling.yarn_ext_factor rope.scaling.yarn_attn_factor \
         rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow attention.layer_norm_epsilon",
    ),
];
