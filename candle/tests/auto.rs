//! What a layer of candle's leaves to backward-weight, profiles know, and so does the schedule `auto`.

use std::collections::BTreeMap;

use candle_nn::{Module, VarBuilder, embedding, linear};
use pipewright::id::Rank;
use pipewright::plan::{Costs, Goal, Wanted, auto};
use pipewright::schedule::{LinkKind, Pass, Placement};
use pipewright_candle::{CandleLayer, split_linear};
use pipewright_cli::compose::{self, LayerPlace, register_layer};
use pipewright_cli::config::Config;

const DIM: usize = 8;

type Built = Box<dyn Module>;

fn register(kind: &str, build: fn(VarBuilder<'static>) -> candle_core::Result<Built>) {
    let make = move |place: &LayerPlace, _: BTreeMap<String, u32>| {
        CandleLayer::new(&place.name, place.seed, |weights| {
            let module = build(weights)?;
            Ok(move |x: &candle_core::Tensor| module.forward(x))
        })
    };
    register_layer(&format!("test.{kind}"), make).expect("its name has a dot");
}

/// The measured costs of four layers of candle's, as a stage each.
fn measured(kind: &str) -> Costs {
    let text = format!(
        "[data]\npath = 'tests'\nseq = 8\n[model]\nkind = 'stack'\nstack = [\n\
         {{ kind = 'test.embedding' }},\n\
         {{ kind = 'test.{kind}' }},\n{{ kind = 'test.{kind}' }},\n{{ kind = 'test.head' }}]\n\
         [pipeline]\nstages = 2\nmicro_batches = 4\nmicro_batch_size = 1\npin = false\n"
    );
    let config = Config::parse("my.toml", &text, &[], &[]).expect("a right config");
    let measured = compose::measure(&config, 1, |_, _| {}).expect("it trains");
    measured.costs.stages(&[1, 1, 1, 1]).expect("four layers")
}

#[test]
fn auto_never_puts_apart_what_the_tape_computes_at_once() {
    register("embedding", |weights| Ok(Box::new(embedding(256, DIM, weights)?)));
    register("whole", |weights| Ok(Box::new(linear(DIM, DIM, weights)?)));
    register("split", |weights| Ok(Box::new(split_linear(DIM, DIM, weights)?)));
    register("head", |weights| Ok(Box::new(linear(DIM, 256, weights)?)));
    let looped = Placement::looped(4, 1).expect("four ranks");
    let waits = |costs: &Costs| -> Vec<bool> {
        let stages = costs.of(&looped).expect("four stages");
        stages.iter().map(|stage| stage.backward_weight > 0.0).collect()
    };
    assert_eq!(waits(&measured("split")), [false, true, true, false]);
    let costs = measured("whole");
    assert_eq!(waits(&costs), [false; 4]);
    // However long passes took on this machine.
    let wanted = Wanted {
        ranks: 4,
        chunks: Some(1),
        micro_batches: 6,
        costs: &costs,
        memory: None,
        links: LinkKind::Buffered,
        goal: Goal::Makespan,
    };
    let schedule = auto(&wanted).expect("there is one").schedule;
    let mut passes = (0..4).flat_map(|rank| schedule.passes(Rank(rank)));
    assert!(passes.all(|(pass, _)| pass != Pass::BackwardInput), "{}", schedule.csv());
}
