//! The names of tensors, and the order of rows.

/// Inside of a block: Hugging Face's names and llama.cpp's.
const IN_BLOCK: [(&str, &str); 11] = [
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// Outside of blocks.
const OUTSIDE: [(&str, &str); 3] =
    [("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];

/// llama.cpp's name for a tensor of Hugging Face.
pub(super) fn there(name: &str) -> Option<String> {
    let (place, kind) = name.rsplit_once('.')?;
    let found = |table: &[(&str, &'static str)], place: &str| {
        table.iter().find(|(ours, _)| *ours == place).map(|(_, theirs)| *theirs)
    };
    let Some(rest) = place.strip_prefix("model.layers.") else {
        return Some(format!("{}.{kind}", found(&OUTSIDE, place)?));
    };
    let (index, place) = rest.split_once('.')?;
    Some(format!("blk.{index}.{}.{kind}", found(&IN_BLOCK, place)?))
}

/// Whether llama.cpp has the rows of each head of this tensor in another order, in Llama's files.
pub(super) fn is_permuted(name: &str) -> bool {
    name.contains("self_attn.q_proj") || name.contains("self_attn.k_proj")
}

/// Brings the rows of heads, of `row` numbers or bytes each, back into the order of Hugging Face. There a
/// head's two halves turn with each other; in the file, neighbours do.
pub(super) fn unpermute<N: Copy>(numbers: &[N], head: usize, row: usize) -> Vec<N> {
    let mut ordered = Vec::with_capacity(numbers.len());
    for head in numbers.chunks_exact(head * row) {
        let rows: Vec<&[N]> = head.chunks_exact(row).collect();
        for first in 0..2 {
            rows.iter().skip(first).step_by(2).for_each(|row| ordered.extend_from_slice(row));
        }
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_rows_of_a_head_are_its_first_half() {
        let numbers: Vec<f32> = (0..16).map(|number| number as f32).collect();
        let ordered = unpermute(&numbers, 4, 2);
        assert_eq!(ordered[..8], [0.0, 1.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0]);
        assert_eq!(ordered[8..], [8.0, 9.0, 12.0, 13.0, 10.0, 11.0, 14.0, 15.0]);
    }

    #[test]
    fn names_are_those_of_llama_cpp() {
        for (ours, theirs) in [
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.layers.12.self_attn.q_proj.bias", "blk.12.attn_q.bias"),
            ("model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"),
            ("lm_head.weight", "output.weight"),
        ] {
            assert_eq!(there(ours).as_deref(), Some(theirs));
        }
        assert_eq!(there("model.layers.0.other.weight"), None);
    }
}
