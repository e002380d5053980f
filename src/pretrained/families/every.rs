//! The keys that a `config.json` of any family may have.

use crate::pretrained::key::{Key, may_be_null, nothing, only, used};

/// The keys of every family. Those that say how text is generated are ignored by transformers too, if
/// they are here: it reads them in `generation_config.json`.
pub(in crate::pretrained) const KEYS: &[Key] = &[
    may_be_null("architectures", "[]"),
    used("model_type", "\"\""),
    only("quantization_config", &["null"], "left out: quantised weights are not read"),
    only("per_layer_config", &["null"], "left out: all blocks are alike"),
    only("is_encoder_decoder", &["false", "null"], "false"),
    only("is_causal", &["true"], "true"),
    only("add_cross_attention", &["false", "null"], "false"),
    only("pruned_heads", &["{}", "null"], "empty"),
    nothing(
        "_attn_implementation _attn_implementation_autoset _commit_hash _name_or_path \
         assistant_confidence_threshold assistant_lookbehind attn_implementation bad_words_ids \
         begin_suppress_tokens chunk_size_feed_forward cls_token_id cross_attention_hidden_size \
         decoder_start_token_id diversity_penalty do_sample dtype early_stopping \
         encoder_no_repeat_ngram_size encoder_repetition_penalty epsilon_cutoff eta_cutoff \
         experts_implementation exponential_decay_length_penalty finetuning_task forced_bos_token_id \
         forced_eos_token_id id2label initializer_range is_decoder is_llama_config label2id \
         length_penalty max_length max_new_tokens min_length name_or_path no_repeat_ngram_size \
         num_assistant_tokens num_assistant_tokens_schedule num_beam_groups num_beams num_labels \
         num_return_sequences output_attentions output_hidden_states output_scores prefix problem_type \
         remove_invalid_values repetition_penalty return_dict return_dict_in_generate sep_token_id \
         suppress_tokens target_lookbehind task_specific_params temperature tf_legacy_loss \
         tie_encoder_decoder tokenizer_class top_k top_p torch_dtype torchscript transformers.js_config \
         transformers_version typical_p unsloth_fixed unsloth_version use_bfloat16 use_cache",
    ),
];
