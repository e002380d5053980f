//! Which units go to which stage.

use std::cmp::Ordering;
use std::ops::Range;

use strsim::levenshtein;

use crate::error::{Error, Result};

/// How many units each stage gets so that the most expensive stage is as cheap as possible. Every stage gets
/// at least one unit. Of equally good splits it takes the one with the cheapest early stages.
pub(super) fn balance(costs: &[f64], stages: usize) -> Result<Vec<usize>> {
    check_stages(costs.len(), stages)?;
    let mut sums = vec![0.0];
    sums.extend(costs.iter().scan(0.0, |sum, cost| {
        *sum += cost;
        Some(*sum)
    }));
    // `best[s][n]`: for the first n units in s + 1 stages, the lowest cost of the most expensive stage, and
    // the first unit of the last stage.
    let mut best = vec![sums.iter().map(|&sum| (sum, 0)).collect::<Vec<(f64, usize)>>()];
    for stage in 1..stages {
        let before = &best[stage - 1];
        let row = (0..sums.len()).map(|end| {
            let starts = stage..end;
            let largest = |start: usize| before[start].0.max(sums[end] - sums[start]);
            let cuts = starts.map(|start| (largest(start), start));
            cuts.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, 0))
        });
        best.push(row.collect());
    }
    let mut counts = Vec::with_capacity(stages);
    let mut end = costs.len();
    for row in best.iter().rev() {
        counts.push(end - row[end].1);
        end = row[end].1;
    }
    counts.reverse();
    Ok(counts)
}

fn check_stages(units: usize, stages: usize) -> Result<()> {
    if stages == 0 {
        return Err(Error::new("0 stages: a pipeline has at least 1"));
    }
    if stages > units {
        return Err(Error::new(format!(
            "{stages} stages for {units} layers: use at most {units} stages or a deeper model"
        )));
    }
    Ok(())
}

/// How many units each stage gets in an explicit partition.
pub(super) fn by_names(names: &[&str], partition: &[Vec<String>]) -> Result<Vec<usize>> {
    check_stages(names.len(), partition.len())?;
    let mut next = 0;
    let mut counts = Vec::with_capacity(partition.len());
    for (stage, entries) in partition.iter().enumerate() {
        let before = next;
        for entry in entries {
            next = take(names, next, find_range(names, entry)?, stage)?;
        }
        if next == before {
            return Err(wrong(format!("stage {stage} is empty: give it a layer or leave it out")));
        }
        counts.push(next - before);
    }
    match names.get(next) {
        Some(missing) => Err(wrong(format!("layer `{missing}` is missing: add it to a stage"))),
        None => Ok(counts),
    }
}

/// The error for a wrong partition.
fn wrong(text: String) -> Error {
    Error::new(text).at("partition")
}

/// Gives a stage a range of units. Fails unless the range starts at unit `next`; returns the unit after it.
fn take(names: &[&str], next: usize, range: Range<usize>, stage: usize) -> Result<usize> {
    let name = names[range.start];
    match range.start.cmp(&next) {
        Ordering::Equal => Ok(range.end),
        Ordering::Less => Err(wrong(format!(
            "layer `{name}` comes again in stage {stage}: name it once, in the model's order"
        ))),
        Ordering::Greater => Err(wrong(format!(
            "layer `{}` is missing before `{name}` in stage {stage}: keep the model's order",
            names[next]
        ))),
    }
}

/// The units that an entry names.
fn find_range(names: &[&str], entry: &str) -> Result<Range<usize>> {
    let Some((first, last)) = entry.split_once("..") else {
        return find(names, entry);
    };
    let (first, last) = (find(names, first)?, find(names, last)?);
    if first.start >= last.end {
        return Err(wrong(format!("`{entry}` runs backwards: turn it round")));
    }
    Ok(first.start..last.end)
}

/// The unit of this name, or all units with this prefix.
fn find(names: &[&str], entry: &str) -> Result<Range<usize>> {
    let entry = entry.trim();
    let is_in = |name: &&str| {
        name.strip_prefix(entry)
            .is_some_and(|rest| !entry.is_empty() && (rest.is_empty() || rest.starts_with('.')))
    };
    let Some(start) = names.iter().position(is_in) else {
        let nearest = names.iter().min_by_key(|name| levenshtein(name, entry)).copied().unwrap_or_default();
        return Err(wrong(format!("unknown layer `{entry}`: did you mean `{nearest}`?")));
    };
    let count = names[start..].iter().take_while(|name| is_in(name)).count();
    Ok(start..start + count)
}
