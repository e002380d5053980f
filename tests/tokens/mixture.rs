//! Mixtures: each sample once, sources by their shares, micro-batches of about equal cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use pipewright::data::{
    Course, DataSource, IGNORED, Longer, Mixture, MixtureSource, Packing, Sequences, Windows,
};
use pipewright::id::MicroBatch;
use pipewright::stages::Shape;

use super::sequences::{documents, texts};
use super::*;

const SEQ: usize = 24;

/// One sequence in each micro-batch, and one micro-batch in each step.
fn samples(count: usize, packing: Packing, seed: u64) -> Arc<Sequences> {
    let documents = documents(&texts(count));
    let all = Sequences::shuffled(documents, 0..count as u64, packing, (1, SEQ), 1, seed);
    Arc::new(all.expect("sequences").trimmed())
}

fn of(source: Arc<Sequences>, rows: usize, micro_batches: u32) -> Mixture {
    Mixture::new(vec![named("all", 1.0, source)], rows, micro_batches, 100).expect("a mixture")
}

fn named(name: &str, share: f64, source: Arc<dyn DataSource>) -> MixtureSource {
    MixtureSource { name: name.to_owned(), share, source }
}

/// The documents of a row, each with its targets.
type Row = Vec<(Vec<u32>, Vec<u32>)>;

/// The rows of a step, without what stands after their ends, and how many places its micro-batches have.
fn rows(source: &dyn DataSource, step: u64, micro_batches: u32) -> (Vec<Row>, usize) {
    let (mut all, mut places) = (Vec::new(), 0);
    for micro_batch in (0..micro_batches).map(MicroBatch) {
        let (input, target) = source.micro_batch(step, micro_batch).expect("data");
        let starts = source.documents(step, micro_batch).expect("data");
        let shape = *input.shape();
        assert_eq!(source.shapes_of(step, micro_batch), (shape, *target.shape()));
        assert!(shape.count() <= source.shapes().0.count() && shape.last() <= source.shapes().0.last());
        places += shape.count();
        for row in 0..shape.dims()[0] {
            let part = row * shape.last()..(row + 1) * shape.last();
            let (input, target) = (&input.ids()[part.clone()], &target.ids()[part.clone()]);
            let mut documents = Row::new();
            for place in 0..input.len() {
                let start = starts.as_ref().map_or(0, |starts| starts.ids()[part.start + place]);
                if start as usize == place {
                    documents.push((Vec::new(), Vec::new()));
                }
                let (inputs, targets) = documents.last_mut().expect("the first place begins a document");
                inputs.push(input[place]);
                targets.push(target[place]);
            }
            // What follows the last document has no targets.
            documents.retain(|(_, targets)| targets.iter().any(|target| *target != IGNORED));
            all.push(documents);
        }
    }
    (all, places)
}

/// The tokens of rows whose padding is cut off.
fn targets(rows: &[Row]) -> Vec<Vec<u32>> {
    let of_row = |row: &Row| {
        let targets = row.iter().flat_map(|(_, targets)| targets.iter().copied());
        targets.filter(|target| *target != IGNORED).collect()
    };
    let mut all: Vec<Vec<u32>> = rows.iter().map(of_row).collect();
    all.sort_unstable();
    all
}

#[test]
fn a_step_has_the_samples_that_it_has_without_a_mixture_in_fewer_places() {
    for packing in [Packing::Single, Packing::Joined, Packing::Apart(Longer::Cut)] {
        for (size, micro_batches) in [(1, 4), (4, 1), (3, 5), (8, 4)] {
            let mixture = of(samples(60, packing, 7), size, micro_batches);
            let plain =
                Sequences::shuffled(documents(&texts(60)), 0..60, packing, (size, SEQ), micro_batches, 7);
            let plain = plain.expect("sequences");
            for step in [0, 1, 17] {
                let (mixed, places) = rows(&mixture, step, micro_batches);
                let (as_they_come, without) = rows(&plain, step, micro_batches);
                assert_eq!(targets(&mixed), targets(&as_they_come), "{packing:?}, step {step}");
                // Lengths are rounded up to a multiple of 16.
                assert!(places <= size * micro_batches as usize * SEQ, "{places}");
                if packing == Packing::Single && size == 8 {
                    assert!(places < without, "{places} places, {without} without a mixture");
                }
            }
        }
    }
}

#[test]
fn an_epoch_has_each_sample_once_for_any_replicas_and_also_when_the_batch_changes() {
    let source = samples(60, Packing::Single, 3);
    let count = source.count() as usize;
    let all = targets(&epoch_of(&source, count));
    for replicas in [1, 2, 3] {
        // 12 samples in each of 3 steps, then 4 in each of 6.
        let first = of(Arc::clone(&source), 2, 6);
        let second = of(Arc::clone(&source), 1, 4).on_course(Course::new(12).go_on(3, 4));
        let mut read = Vec::new();
        for (mixture, steps, micro_batches) in [(&first, 0..3, 6), (&second, 3..9, 4)] {
            for step in steps {
                // Each replica asks for its own numbers.
                for replica in 0..replicas {
                    let own = (0..micro_batches).filter(|micro_batch| micro_batch % replicas == replica);
                    for micro_batch in own {
                        read.extend(one(mixture, step, micro_batch));
                    }
                }
            }
        }
        assert_eq!(targets(&read), all, "{replicas} replicas");
    }
}

fn one(source: &dyn DataSource, step: u64, micro_batch: u32) -> Vec<Row> {
    let all = rows(source, step, micro_batch + 1).0;
    let before = rows(source, step, micro_batch).0.len();
    all[before..].to_vec()
}

fn epoch_of(source: &Sequences, count: usize) -> Vec<Row> {
    (0..count as u64).flat_map(|step| rows(source, step, 1).0).collect()
}

#[test]
fn sources_are_mixed_by_their_shares_and_each_one_follows_its_own_order() {
    let corpus = Arc::new(Corpus::built_in());
    let windows: Arc<dyn DataSource> =
        Arc::new(Windows::drawn(corpus, 0..10_000, 1, SEQ, 5).expect("windows"));
    let sources = [samples(40, Packing::Single, 1), samples(50, Packing::Apart(Longer::Cut), 2)];
    let mixture = Mixture::new(
        vec![
            named("short", 5.0, sources[0].clone()),
            named("packed", 3.0, sources[1].clone()),
            named("windows", 2.0, Arc::clone(&windows)),
            named("never", 0.0, samples(3, Packing::Single, 9)),
        ],
        2,
        5,
        100,
    );
    let mixture = mixture.expect("a mixture");
    let mut taken: BTreeMap<String, u64> = BTreeMap::new();
    for step in 0..30 {
        let before = taken.clone();
        for (name, samples) in mixture.sequences_of(step) {
            *taken.entry(name).or_default() += samples;
        }
        let expected = [("short", 5), ("packed", 3), ("windows", 2), ("never", 0)];
        for (name, each) in expected {
            assert_eq!(taken[name], each * (step + 1), "{name} after step {step}");
        }
        let of_source = |name: &str, source: &dyn DataSource| {
            let first = before.get(name).copied().unwrap_or(0);
            (first..taken[name]).flat_map(|sample| rows(source, sample, 1).0).collect::<Vec<_>>()
        };
        let mut alone = of_source("short", &*sources[0]);
        alone.extend(of_source("packed", &*sources[1]));
        alone.extend(of_source("windows", &*windows));
        assert_eq!(targets(&rows(&mixture, step, 5).0), targets(&alone), "step {step}");
        // Documents are apart as they are alone, also beside sources without documents.
        let mut documents: Vec<_> = rows(&mixture, step, 5).0.into_iter().flatten().collect();
        let mut alone: Vec<_> = alone.into_iter().flatten().collect();
        documents.iter_mut().chain(&mut alone).for_each(cut);
        documents.sort_unstable();
        alone.sort_unstable();
        assert_eq!(documents, alone, "step {step}");
    }
    assert_eq!(Shape::ids(&[2, SEQ]), mixture.shapes().0);
}

/// Cuts off the places after the last target, which padding may follow.
fn cut((inputs, targets): &mut (Vec<u32>, Vec<u32>)) {
    let last = targets.iter().rposition(|target| *target != IGNORED).expect("it has a target");
    inputs.truncate(last + 1);
    targets.truncate(last + 1);
}

#[test]
fn a_validation_has_each_sample_once() {
    let count = 60;
    let source = Sequences::in_order(documents(&texts(count)), 0..count as u64, Packing::Single, (1, SEQ));
    let source = Arc::new(source.expect("sequences").trimmed());
    let all = rows(&*source, 0, count as u32).0;
    for (size, micro_batches) in [(4, 15), (7, 9), (1, 60), (8, 12)] {
        let samples = Arc::<Sequences>::clone(&source);
        let mixture = Mixture::in_order(samples, count as u64, size, micro_batches, 100).expect("a mixture");
        for step in [0, 3] {
            let (mixed, places) = rows(&mixture, step, micro_batches);
            let mixed: Vec<_> = mixed.into_iter().filter(|row| !row.is_empty()).collect();
            assert_eq!(targets(&mixed), targets(&all));
            assert!(places <= count * SEQ + 16 * micro_batches as usize, "{places}");
        }
        // More micro-batches than samples, and fewer.
        let few = Mixture::in_order(Arc::<Sequences>::clone(&source), 5, size, 9, 100).expect("a mixture");
        let mixed: Vec<_> = rows(&few, 0, 9).0.into_iter().filter(|row| !row.is_empty()).collect();
        assert_eq!(targets(&mixed), targets(&all[..5.min(9 * size)]));
    }
}

#[test]
fn fingerprints_tell_mixtures_apart() {
    let source = || samples(40, Packing::Single, 1);
    let other = || samples(41, Packing::Single, 1);
    let of = |shares: [f64; 2], rows: usize, pairs: u64| {
        let sources = vec![named("a", shares[0], source()), named("b", shares[1], other())];
        Mixture::new(sources, rows, 4, pairs).expect("a mixture").fingerprint().expect("a fingerprint")
    };
    let print = of([1.0, 2.0], 2, 100);
    assert!(print.same_batches(&of([1.0, 2.0], 2, 100)));
    for changed in [of([1.0, 3.0], 2, 100), of([1.0, 2.0], 3, 100), of([1.0, 2.0], 2, 101)] {
        assert!(!print.same_batches(&changed) && print.same_contents(&changed));
    }
    // A mixture of one source has the contents of the source, so that a run may go on with it.
    let single = super::mixture::of(source(), 2, 4).fingerprint().expect("a fingerprint");
    assert!(single.same_contents(&source().fingerprint().expect("a fingerprint")));
    assert_eq!(single.samples.expect("an order").course, Course::new(8));
}

#[test]
fn what_is_no_mixture_is_refused() {
    let refused = |shares: [f64; 2], rows: usize| {
        let sources = shares.map(|share| named("part", share, samples(9, Packing::Single, 1)));
        Mixture::new(sources.into(), rows, 2, 100).expect_err("refused").to_string()
    };
    has(&refused([1.0, -2.0], 1), &["-2 is no share of a source: choose 0 or more"]);
    has(&refused([0.0, 0.0], 1), &["no source has a share above 0"]);
    has(&refused([1.0, 1.0], 0), &["a micro-batch of part needs at least one row"]);
    let none = Mixture::new(Vec::new(), 1, 1, 100).expect_err("refused").to_string();
    has(&none, &["a mixture needs at least one source"]);
    let wide = Sequences::in_order(documents(&texts(9)), 0..9, Packing::Single, (2, SEQ)).expect("sequences");
    let wide = Mixture::new(vec![named("wide", 1.0, Arc::new(wide))], 1, 1, 100);
    has(&wide.expect_err("refused").to_string(), &["wide gives ids[2, 24]", "one in each micro-batch"]);
}
