//! Tensors of experts that are saved together, as transformers has them in memory, and as it saves them
//! without `save_original_format`.

/// A tensor in another one.
pub(super) struct Inside {
    /// Its name in files that have it by itself.
    pub(super) name: String,
    pub(super) dims: Vec<usize>,
    /// Its first number there.
    pub(super) start: usize,
}

/// What is inside a tensor of this name. All others are inside themselves, and so are those without numbers.
pub(super) fn inside(name: &str, dims: &[usize]) -> Vec<Inside> {
    if dims.contains(&0) {
        return vec![whole(name.to_owned(), dims)];
    }
    if let Some(block) = name.strip_suffix(".mlp.gate.weight") {
        return vec![whole(format!("{block}.block_sparse_moe.gate.weight"), dims)];
    }
    let gate_up = name.strip_suffix(".mlp.experts.gate_up_proj");
    let down = name.strip_suffix(".mlp.experts.down_proj");
    match (gate_up, down, dims) {
        (Some(block), _, &[experts, wide, dim]) => apart(block, &["w1", "w3"], [experts, wide, dim]),
        (_, Some(block), &[experts, dim, ffn]) => apart(block, &["w2"], [experts, dim, ffn]),
        _ => vec![whole(name.to_owned(), dims)],
    }
}

fn whole(name: String, dims: &[usize]) -> Inside {
    Inside { name, dims: dims.to_vec(), start: 0 }
}

/// The matrices of each expert, one under the other.
fn apart(block: &str, parts: &[&str], [experts, rows, columns]: [usize; 3]) -> Vec<Inside> {
    let rows = rows / parts.len();
    let matrices = (0..experts).flat_map(|expert| parts.iter().map(move |part| (expert, part)));
    let inside = |(place, (expert, part)): (usize, (usize, &&str))| Inside {
        name: format!("{block}.block_sparse_moe.experts.{expert}.{part}.weight"),
        dims: vec![rows, columns],
        start: place * rows * columns,
    };
    matrices.enumerate().map(inside).collect()
}
