//! How units are distributed over stages.

use pipewright_stages::layers::Relu;
use pipewright_stages::{Result, StageBuilder};
use proptest::prelude::*;

use super::*;

fn model(costs: &[f64]) -> Model {
    let units = costs
        .iter()
        .enumerate()
        .map(|(i, &cost)| LayerSpec::of(format!("unit{i}"), cost, move || Relu::new(&format!("unit{i}"))));
    Model::new(units.collect())
}

/// The layers' names, stage by stage, read from the stages' `Debug` output.
fn stages(built: Result<Vec<StageBuilder<Sequential>>>) -> Vec<Vec<String>> {
    let names = |stage: Sequential| {
        let text = format!("{stage:?}");
        text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    };
    built.unwrap().into_iter().map(|stage| names(stage.build().unwrap())).collect()
}

fn gpt() -> Model {
    Gpt { vocab: 9, dim: 4, layers: 4, heads: 2, context: 4, dropout: 0.0, tied: false, seed: 0 }
        .model()
        .unwrap()
}

fn by_names(lists: &[&[&str]]) -> Result<Vec<StageBuilder<Sequential>>> {
    let lists: Vec<Vec<String>> =
        lists.iter().map(|list| list.iter().map(|&entry| entry.to_owned()).collect()).collect();
    gpt().split_by(&lists)
}

fn refusal(lists: &[&[&str]]) -> String {
    by_names(lists).err().unwrap().to_string()
}

/// The lowest possible cost of the most expensive stage, found by trying every split.
fn best(costs: &[f64], stages: usize) -> f64 {
    if stages == 1 {
        return costs.iter().sum();
    }
    let cuts = 1..=costs.len() - (stages - 1);
    cuts.map(|cut| costs[..cut].iter().sum::<f64>().max(best(&costs[cut..], stages - 1)))
        .fold(f64::INFINITY, f64::min)
}

proptest! {
    #[test]
    fn a_balanced_cut_is_the_best_and_holds_every_unit_once(
        costs in prop::collection::vec((0_u32..20).prop_map(f64::from), 1..12), stages_wanted in 1_u32..6,
    ) {
        let wanted = stages_wanted.min(costs.len() as u32);
        let parts = stages(model(&costs).split(wanted));
        prop_assert_eq!(parts.len(), wanted as usize);
        prop_assert!(parts.iter().all(|part| !part.is_empty()));
        let all: Vec<String> = (0..costs.len()).map(|i| format!("unit{i}")).collect();
        prop_assert_eq!(parts.concat(), all);
        let cost = |name: &String| costs[name["unit".len()..].parse::<usize>().unwrap()];
        let largest = parts.iter().map(|part| part.iter().map(cost).sum::<f64>()).fold(0.0, f64::max);
        prop_assert_eq!(largest, best(&costs, wanted as usize));
    }
}

#[test]
fn the_head_and_the_embedding_are_counted() {
    let gpt =
        Gpt { vocab: 50_000, dim: 16, layers: 6, heads: 2, context: 8, dropout: 0.0, tied: true, seed: 0 };
    let costs = gpt.model().unwrap().costs();
    assert!(costs[0] > 0.0 && costs[0] < costs[1]);
    assert!(costs[13] > costs[1..13].iter().sum(), "a large vocabulary makes the head the heaviest unit");
    let head = gpt.model().unwrap().split(2).unwrap().pop().unwrap().build().unwrap();
    assert!(!format!("{head:?}").contains("h.5"));
}

#[test]
fn entries_are_units_prefixes_and_ranges() {
    let parts: [&[&str]; 3] = [&["embed", "h.0"], &["h.1..h.2.attn", "h.2.mlp"], &["h.3", "head"]];
    assert_eq!(by_names(&parts).unwrap().len(), 3);
    let parts: [&[&str]; 2] = [&["embed..h.3.attn"], &["h.3.mlp..head"]];
    assert_eq!(by_names(&parts).unwrap().len(), 2);
}

#[test]
fn wrong_partitions_are_refused_with_the_layer() {
    let unknown = refusal(&[&["embed", "h.0..h.3"], &["haed"]]);
    assert_eq!(unknown, "partition: unknown layer `haed`: did you mean `head`?");
    assert!(refusal(&[&["embed", "h.0.att"]]).contains("unknown layer `h.0.att`: did you mean `h.0.attn`?"));
    let missing = refusal(&[&["embed", "h.0", "h.2"], &["h.3", "head"]]);
    assert_eq!(
        missing,
        "partition: layer `h.1.attn` is missing before `h.2.attn` in stage 0: keep the model's order"
    );
    let missing = refusal(&[&["embed", "h.0..h.3"]]);
    assert_eq!(missing, "partition: layer `head` is missing: add it to a stage");
    let repeated = refusal(&[&["embed", "h.0..h.2"], &["h.2", "h.3", "head"]]);
    assert_eq!(
        repeated,
        "partition: layer `h.2.attn` comes again in stage 1: name it once, in the model's order"
    );
    let backwards = refusal(&[&["embed", "h.3..h.0"], &["head"]]);
    assert_eq!(backwards, "partition: `h.3..h.0` runs backwards: turn it round");
    let empty = refusal(&[&["embed..h.3"], &[], &["head"]]);
    assert_eq!(empty, "partition: stage 1 is empty: give it a layer or leave it out");
}

#[test]
fn more_stages_than_layers_are_refused() {
    let error = model(&[1.0; 3]).split(4).err().unwrap().to_string();
    assert_eq!(error, "4 stages for 3 layers: use at most 3 stages or a deeper model");
    assert_eq!(model(&[1.0]).split(0).err().unwrap().to_string(), "0 stages: a pipeline has at least 1");
}
